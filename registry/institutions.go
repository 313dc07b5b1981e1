package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Institution is a depositor.
type Institution struct {
	ID              int64     `json:"id"`
	Name            string    `json:"name"`
	Identifier      string    `json:"identifier"` // a domain name
	State           string    `json:"state"`      // A or D
	ReceivingBucket string    `json:"receiving_bucket"`
	RestoreBucket   string    `json:"restore_bucket"`
	SpotRestoreDays int       `json:"spot_restore_days"`      // an object is restored at random as often, to see that it can be; 0: none
	DeletionWait    *float64  `json:"deletion_wait_hours"`    // that an approved deletion waits; null: as long as the settings of requests say
	FactorRequired  bool      `json:"second_factor_required"` // of all its people
	CreatedAt       time.Time `json:"created_at"`
	Version         int64     `json:"version"`
}

// InstitutionColumns are those of an [Institution], as a query names them.
const InstitutionColumns = `id, name, identifier, state, receiving_bucket, restore_bucket, spot_restore_days,
	extract(epoch FROM deletion_wait)::float8 / 3600 AS deletion_wait, second_factor_required AS factor_required,
	created_at, version`

const addInstitutionSQL = `
INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
VALUES (@name, @identifier, @receiving, @restore)
RETURNING ` + InstitutionColumns

// AddInstitution registers a depositor by its name, identifier and buckets; the
// other fields of in are ignored. An identifier or bucket that is taken, or that
// is not one, is ErrRefused.
func (r *Registry) AddInstitution(ctx context.Context, in Institution) (Institution, error) {
	rows, _ := r.db.Query(ctx, addInstitutionSQL, pgx.NamedArgs{
		"name": in.Name, "identifier": in.Identifier, "receiving": in.ReceivingBucket, "restore": in.RestoreBucket,
	})
	added, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Institution])
	if err != nil {
		return Institution{}, fmt.Errorf("add institution %q: %w", in.Identifier, Refusal(err))
	}
	return added, nil
}

const institutionsSQL = `
SELECT ` + InstitutionColumns + ` FROM institutions
WHERE id > @after AND (state = 'A' OR NOT @active)
ORDER BY id
LIMIT @n`

// Institutions returns up to n institutions after the one with the id given, in
// the order of their ids; only active ones if active is set.
func (r *Registry) Institutions(ctx context.Context, after int64, n int, active bool) ([]Institution, error) {
	rows, _ := r.db.Query(ctx, institutionsSQL, pgx.NamedArgs{"after": after, "n": n, "active": active})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Institution])
	if err != nil {
		return nil, fmt.Errorf("list institutions: %w", err)
	}
	return list, nil
}

// Institution reads an institution by its identifier. One that there is not is ErrNotFound.
func (r *Registry) Institution(ctx context.Context, identifier string) (Institution, error) {
	rows, _ := r.db.Query(ctx, `SELECT `+InstitutionColumns+` FROM institutions WHERE identifier = $1`, identifier)
	in, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Institution])
	if err != nil {
		return Institution{}, fmt.Errorf("look up institution %q: %w", identifier, Refusal(err))
	}
	return in, nil
}
