package fixity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// BrakeLimits say how many copies of a provider may fail within an hour before that
// is taken for the provider's doing, and nothing there is repaired.
type BrakeLimits struct {
	Failures int     // copies
	Share    float64 // per cent of the copies that were checked, once there were Least of them
	Least    int
}

// A Brake keeps copies of a provider from being repaired.
type Brake struct {
	Provider string    `json:"provider"`
	Reason   string    `json:"reason"`
	PulledAt time.Time `json:"pulled_at"`
}

// brakeSQL counts the copies of a provider that failed within the hour, or since the
// brake was released last: those found bad, and those that were read twice with two
// results (fixity_failures_recent, fixity_done_pkey, repair_brakes_released).
const brakeSQL = `
WITH since AS MATERIALIZED (
	SELECT greatest(now() - interval '1 hour', max(least(released_at, now()))) AS at FROM repair_brakes WHERE provider = @provider
), failed AS MATERIALIZED (
	SELECT count(DISTINCT coalesce(storage_record_id, -id)) AS copies FROM fixity_failures, since WHERE provider = @provider AND noted_at > since.at
), done AS MATERIALIZED (
	SELECT coalesce(sum(d.checks), 0)::bigint AS checks, coalesce(sum(d.wavered), 0)::bigint AS wavered
	FROM since, fixity_policies p JOIN fixity_done d ON d.target = p.target
	WHERE p.provider = @provider AND d.minute >= since.at
), pulled AS (
	INSERT INTO repair_brakes (provider, reason)
	SELECT @provider, format('%s copies failed within an hour, and %s more were read with two results; %s were checked. '
		'At most %s copies may fail, or %s %% of %s and more.', copies, wavered, checks, @failures::int, @share::float8, @least::int)
	FROM failed, done
	WHERE copies + wavered > @failures OR checks >= @least AND (copies + wavered) * 100 > checks * @share
	ON CONFLICT (provider) WHERE released_at IS NULL DO NOTHING
	RETURNING reason
)
INSERT INTO alerts (type, subject, content)
SELECT 'Repair Stopped', 'Repair has stopped at ' || @provider,
	'Nothing of ' || @provider || ' is repaired until an admin releases the brake: ' || reason FROM pulled`

// CheckBrake tells whether repair has stopped at a provider, and stops it if more of
// its copies failed than bit rot explains: then people get one alert. nil is go on.
func (r Records) CheckBrake(ctx context.Context, provider string, limits BrakeLimits) (*Brake, error) {
	_, err := r.db.Exec(ctx, brakeSQL, pgx.NamedArgs{
		"provider": provider, "failures": limits.Failures, "share": limits.Share, "least": limits.Least,
	})
	if err != nil {
		return nil, fmt.Errorf("check the repair limit of %s: %w", provider, err)
	}
	list, err := r.Brakes(ctx)
	for _, b := range list {
		if b.Provider == provider {
			return &b, err
		}
	}
	return nil, err
}

// Brakes lists the providers at which repair has stopped.
func (r Records) Brakes(ctx context.Context) ([]Brake, error) {
	return registry.Collect[Brake](ctx, r.db, "list the providers without repair", `
		SELECT provider, reason, pulled_at FROM repair_brakes WHERE released_at IS NULL ORDER BY provider`, nil)
}

// ReleaseBrake lets repair go on at a provider. Who decides that is an admin. What
// failed until then does not count any more.
func (r Records) ReleaseBrake(ctx context.Context, provider, by string) error {
	u, err := r.registry.Actor(ctx, r.db, by)
	if err == nil && u.Role != registry.RoleAdmin {
		err = fmt.Errorf("%w: %s is no admin", registry.ErrRefused, u.Email)
	}
	if err == nil {
		var id int64
		err = r.db.QueryRow(ctx, `
			UPDATE repair_brakes SET released_by = $2, released_at = now() WHERE provider = $1 AND released_at IS NULL RETURNING id`,
			provider, u.ID).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			err = registry.ErrNotFound
		}
	}
	if err != nil {
		return fmt.Errorf("allow repair at %s again: %w", provider, err)
	}
	return nil
}
