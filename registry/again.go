package registry

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// mostTries is how often a transaction is begun that falls to others.
const mostTries = 4

// Again calls do, and calls it again while the database undoes what it did for
// the sake of other transactions: because of a deadlock, or since they could not
// be put in an order. do must be safe to repeat.
func Again(do func() error) error {
	for tries := 1; ; tries++ {
		err := do()
		var pg *pgconn.PgError
		if tries == mostTries || !errors.As(err, &pg) || pg.Code != "40001" && pg.Code != "40P01" {
			return err
		}
	}
}
