package people

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const profileSQL = `
SELECT u.id, u.email, u.name, u.role, coalesce(u.institution_id, 0) AS institution_id, coalesce(i.identifier, '') AS institution, u.deactivated_at,
	u.totp_sealed IS NOT NULL AS second_factor, u.second_factor_required AS factor_required, u.password_hash IS NOT NULL AS has_password, coalesce(u.oidc_issuer, '') AS issuer,
	u.signed_in_at, (SELECT max(f.locked_until) FROM sign_in_failures f WHERE f.user_id = u.id AND f.locked_until > now()) AS locked_until, -- sign_in_failures_pkey
	u.time_zone, u.created_at, u.updated_at, u.version
FROM users u LEFT JOIN institutions i ON i.id = u.institution_id
WHERE (@all OR u.institution_id = @institution)`

// ProfileFilter narrows a list of people. Empty fields do not.
type ProfileFilter struct {
	Role        string
	Institution string // identifier
	Active      *bool
	After       int64 // only people with a higher ID, for the next page
	Limit       int
}

func scoped(s registry.Scope) pgx.NamedArgs {
	id, _ := s.Institution()
	return pgx.NamedArgs{"all": s.All(), "institution": id}
}

// Profiles lists people within a scope in the order of their IDs.
func (r Records) Profiles(ctx context.Context, s registry.Scope, f ProfileFilter) ([]record.Profile, error) {
	args := scoped(s)
	args["role"], args["of"], args["active"], args["after"], args["n"] = f.Role, f.Institution, f.Active, f.After, f.Limit
	return registry.Collect[record.Profile](ctx, r.db, "list people", profileSQL+`
		AND (@role = '' OR u.role = @role) AND (@of = '' OR i.identifier = @of) AND (@active::boolean IS NULL OR (u.deactivated_at IS NULL) = @active)
		AND u.id > @after ORDER BY u.id LIMIT @n`, args)
}

// Profile returns a person within a scope, or ErrNotFound.
func (r Records) Profile(ctx context.Context, s registry.Scope, id int64) (record.Profile, error) {
	args := scoped(s)
	args["id"] = id
	return registry.One[record.Profile](ctx, r.db, "look up a person", profileSQL+` AND u.id = @id`, args)
}

// Changes are what is set of a person; nil leaves it.
type Changes struct {
	Email          *string
	Name           *string
	Role           *string
	Institution    *string // identifier; "": none
	Active         *bool
	FactorRequired *bool
	TimeZone       *string
}

// changeSQL sets what is not NULL. Triggers end sessions and tokens that no longer hold, and
// keep the last admin.
const changeSQL = `
UPDATE users u SET
	email = coalesce(@email::text, u.email), name = coalesce(@name::text, u.name), role = coalesce(@role::text, u.role),
	institution_id = CASE WHEN @of::text IS NULL THEN u.institution_id ELSE (SELECT id FROM institutions WHERE identifier = @of) END,
	deactivated_at = CASE WHEN @active::boolean THEN NULL WHEN NOT @active THEN coalesce(u.deactivated_at, now()) ELSE u.deactivated_at END,
	second_factor_required = coalesce(@required::boolean, u.second_factor_required), time_zone = coalesce(@zone::text, u.time_zone)
WHERE u.id = @id AND (@all OR u.institution_id = @institution) AND (@version::bigint = 0 OR u.version = @version)`

// Change changes a person within a scope. version is the one that the change was decided
// on; 0 is any. Another one is ErrChanged, a person that there is not ErrNotFound. What the
// rules of people do not allow is ErrRefused. Who needs a second factor from now on and has
// none has no session afterwards.
func (r Records) Change(ctx context.Context, s registry.Scope, id, version int64, c Changes) (record.Profile, error) {
	if c.Institution != nil && *c.Institution != "" {
		if _, err := r.registry.Institution(ctx, *c.Institution); err != nil {
			return record.Profile{}, fmt.Errorf("change a person: %w", notThere(err, *c.Institution))
		}
	}
	if err := noSuchZone(c.TimeZone); err != nil {
		return record.Profile{}, fmt.Errorf("change a person: %w", err)
	}
	args := scoped(s)
	for k, v := range map[string]any{
		"id": id, "version": version, "email": c.Email, "name": c.Name, "role": c.Role, "of": c.Institution, "active": c.Active,
		"required": c.FactorRequired, "zone": c.TimeZone,
	} {
		args[k] = v
	}
	tag, err := r.db.Exec(ctx, changeSQL, args)
	if err == nil && c.FactorRequired != nil && *c.FactorRequired {
		_, err = r.db.Exec(ctx, `
			DELETE FROM sessions WHERE user_id = (SELECT id FROM users WHERE id = @id AND (@all OR institution_id = @institution) AND totp_sealed IS NULL)`, args)
	}
	if err != nil {
		return record.Profile{}, fmt.Errorf("change a person: %w", registry.Refusal(err))
	}
	p, err := r.Profile(ctx, s, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("change a person: %w", registry.ErrChanged)
	}
	return p, err
}

// notThere is the refusal of a name that is of no institution.
func notThere(err error, identifier string) error {
	if errors.Is(err, registry.ErrNotFound) {
		return fmt.Errorf("%w: there is no institution %q", registry.ErrRefused, identifier)
	}
	return err
}

// noSuchZone refuses the name of a time zone that there is not.
func noSuchZone(name *string) error {
	if name == nil {
		return nil
	}
	if _, err := time.LoadLocation(*name); err != nil || *name == "" || *name == "Local" {
		return fmt.Errorf("%w: there is no time zone %q; name one such as Europe/Lisbon", registry.ErrRefused, *name)
	}
	return nil
}

// OwnChanges are what people set of themselves; nil leaves it.
type OwnChanges struct {
	Name     *string
	TimeZone *string
	Scheme   *string // light, dark, or "": as the system of the browser
}

// ChangeOwn changes what people may change of themselves (users_pkey).
func (r Records) ChangeOwn(ctx context.Context, user int64, c OwnChanges) error {
	if err := noSuchZone(c.TimeZone); err != nil {
		return fmt.Errorf("change the own account: %w", err)
	}
	return r.change(ctx, "change the own account", `
		UPDATE users SET name = coalesce($2::text, name), time_zone = coalesce($3::text, time_zone), color_scheme = coalesce($4::text, color_scheme) WHERE id = $1`,
		user, c.Name, c.TimeZone, c.Scheme)
}
