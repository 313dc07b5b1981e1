package people

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// InstitutionFilter narrows a list of institutions. Empty fields do not.
type InstitutionFilter struct {
	State string // A or D
	After int64  // only institutions with a higher ID, for the next page
	Limit int
}

const institutionSQL = `SELECT ` + registry.InstitutionColumns + ` FROM institutions WHERE (@all OR id = @institution)`

// Institutions lists institutions within a scope in the order of their IDs.
func (r Records) Institutions(ctx context.Context, s registry.Scope, f InstitutionFilter) ([]record.Institution, error) {
	args := scoped(s)
	args["state"], args["after"], args["n"] = f.State, f.After, f.Limit
	return registry.Collect[record.Institution](ctx, r.db, "list institutions", institutionSQL+`
		AND (@state = '' OR state = @state) AND id > @after ORDER BY id LIMIT @n`, args)
}

// Institution returns an institution within a scope, or ErrNotFound.
func (r Records) Institution(ctx context.Context, s registry.Scope, id int64) (record.Institution, error) {
	args := scoped(s)
	args["id"] = id
	return registry.One[record.Institution](ctx, r.db, "look up an institution", institutionSQL+` AND id = @id`, args)
}

// InstitutionNamed returns an institution within a scope by its identifier
// (institutions_identifier_key), or ErrNotFound.
func (r Records) InstitutionNamed(ctx context.Context, s registry.Scope, identifier string) (record.Institution, error) {
	args := scoped(s)
	args["identifier"] = identifier
	return registry.One[record.Institution](ctx, r.db, "look up an institution", institutionSQL+` AND identifier = @identifier`, args)
}

// InstitutionChanges are what is set of an institution; nil leaves it.
type InstitutionChanges struct {
	Name            *string
	State           *string
	SpotRestoreDays *int
	DeletionWait    *float64 // hours; below 0: as long as the settings of requests say
	FactorRequired  *bool
	OnlyLonger      bool // the wait of deletions may not become shorter
}

// ChangeInstitution changes an institution within a scope, as [Records.Change] does a
// person. The people of one that is deactivated have no session afterwards, nor have those
// without a second factor if it is required from now on.
func (r Records) ChangeInstitution(ctx context.Context, s registry.Scope, id, version int64, c InstitutionChanges) (record.Institution, error) {
	args := scoped(s)
	for k, v := range map[string]any{
		"id": id, "version": version, "name": c.Name, "state": c.State, "days": c.SpotRestoreDays, "required": c.FactorRequired, "hours": c.DeletionWait,
	} {
		args[k] = v
	}
	if err := r.mayWait(ctx, args, c); err != nil {
		return record.Institution{}, fmt.Errorf("change an institution: %w", registry.Refusal(err))
	}
	tag, err := r.db.Exec(ctx, `
		UPDATE institutions SET name = coalesce(@name::text, name), state = coalesce(@state::text, state), updated_at = now(),
			spot_restore_days = coalesce(@days::integer, spot_restore_days), second_factor_required = coalesce(@required::boolean, second_factor_required),
			deletion_wait = CASE WHEN @hours::float8 < 0 THEN NULL ELSE coalesce(@hours * interval '1 hour', deletion_wait) END
		WHERE id = @id AND (@all OR id = @institution) AND (@version::bigint = 0 OR version = @version)`, args)
	if err == nil {
		_, err = r.db.Exec(ctx, `
			DELETE FROM sessions WHERE (@state::text = 'D' OR @required::boolean)
				AND user_id IN (SELECT id FROM users WHERE institution_id = @id AND (@all OR institution_id = @institution) AND (@state::text = 'D' OR totp_sealed IS NULL))`, args)
	}
	if err != nil {
		return record.Institution{}, fmt.Errorf("change an institution: %w", registry.Refusal(err))
	}
	i, err := r.Institution(ctx, s, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("change an institution: %w", registry.ErrChanged)
	}
	return i, err
}

// mayWait refuses a wait of deletions that is shorter than the one that counts now, if it may
// only become longer. The row stays locked until the change.
func (r Records) mayWait(ctx context.Context, args pgx.NamedArgs, c InstitutionChanges) error {
	if c.DeletionWait == nil || !c.OnlyLonger {
		return nil
	}
	var hours float64
	var shorter bool
	err := r.db.QueryRow(ctx, `
		SELECT extract(epoch FROM coalesce(i.deletion_wait, s.deletion_wait))::float8 / 3600,
			CASE WHEN @hours::float8 < 0 THEN s.deletion_wait ELSE @hours * interval '1 hour' END < coalesce(i.deletion_wait, s.deletion_wait)
		FROM institutions i CROSS JOIN request_settings s WHERE i.id = @id AND (@all OR i.id = @institution) FOR UPDATE OF i`, args).Scan(&hours, &shorter)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return registry.ErrNotFound
	case err != nil:
		return err
	case shorter:
		return fmt.Errorf("%w: approved deletions wait for %g hours; only staff of the archive makes that shorter", registry.ErrRefused, hours)
	}
	return nil
}
