package pull

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// put appends messages to the topic log, all in one transaction.
func put(t *testing.T, db *pgxpool.Pool, topic string, bodies ...string) {
	t.Helper()
	testenv.Exec(t, db, `INSERT INTO topic_messages (topic, body) SELECT $1, b FROM unnest($2::text[]) WITH ORDINALITY AS u (b, n) ORDER BY n`,
		topic, bodies)
}

// numbers are the decimal numbers of a range, as bodies.
func numbers(from, to int) (list []string) {
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return list
}
