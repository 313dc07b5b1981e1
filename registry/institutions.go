package registry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

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
func (r *Registry) AddInstitution(ctx context.Context, in record.Institution) (record.Institution, error) {
	return One[record.Institution](ctx, r.db, fmt.Sprintf("add institution %q", in.Identifier), addInstitutionSQL, pgx.NamedArgs{
		"name": in.Name, "identifier": in.Identifier, "receiving": in.ReceivingBucket, "restore": in.RestoreBucket,
	})
}

const institutionsSQL = `
SELECT ` + InstitutionColumns + ` FROM institutions
WHERE id > @after AND (state = 'A' OR NOT @active)
ORDER BY id
LIMIT @n`

// Institutions returns up to n institutions after the one with the id given, in
// the order of their ids; only active ones if active is set.
func (r *Registry) Institutions(ctx context.Context, after int64, n int, active bool) ([]record.Institution, error) {
	return Collect[record.Institution](ctx, r.db, "list institutions", institutionsSQL, pgx.NamedArgs{"after": after, "n": n, "active": active})
}

// Institution reads an institution by its identifier. One that there is not is ErrNotFound.
func (r *Registry) Institution(ctx context.Context, identifier string) (record.Institution, error) {
	return One[record.Institution](ctx, r.db, fmt.Sprintf("look up institution %q", identifier), `SELECT `+InstitutionColumns+` FROM institutions WHERE identifier = $1`, identifier)
}
