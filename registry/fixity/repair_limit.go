package fixity

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// RepairLimits say how many copies of a provider may fail within an hour. If more do, the
// cause is the provider, and none of its copies is repaired.
type RepairLimits struct {
	Failures int     // copies
	Share    float64 // per cent of the copies that were checked, once there were Least of them
	Least    int
}

// repairLimitSQL counts the copies of a provider that failed within the hour, or since an
// admin last allowed repair: those found bad, and those that were read twice with two
// results (fixity_failures_recent, fixity_done_pkey, repair_stops_released).
const repairLimitSQL = `
WITH since AS MATERIALIZED (
	SELECT greatest(now() - interval '1 hour', max(least(released_at, now()))) AS at FROM repair_stops WHERE provider = @provider
), failed AS MATERIALIZED (
	SELECT count(DISTINCT coalesce(storage_record_id, -id)) AS copies FROM fixity_failures, since WHERE provider = @provider AND noted_at > since.at
), done AS MATERIALIZED (
	SELECT coalesce(sum(d.checks), 0)::bigint AS checks, coalesce(sum(d.wavered), 0)::bigint AS wavered
	FROM since, fixity_policies p JOIN fixity_done d ON d.target = p.target
	WHERE p.provider = @provider AND d.minute >= since.at
), stopped AS (
	INSERT INTO repair_stops (provider, reason)
	SELECT @provider, format('%s copies failed within an hour, and %s more were read with two results; %s were checked. '
		'At most %s copies may fail, or %s %% of %s and more.', copies, wavered, checks, @failures::int, @share::float8, @least::int)
	FROM failed, done
	WHERE copies + wavered > @failures OR checks >= @least AND (copies + wavered) * 100 > checks * @share
	ON CONFLICT (provider) WHERE released_at IS NULL DO NOTHING
	RETURNING reason
)
INSERT INTO alerts (type, subject, content)
SELECT 'Repair Stopped', 'Repair has stopped at ' || @provider,
	'Nothing of ' || @provider || ' is repaired until an admin releases the repair limit: ' || reason FROM stopped`

// CheckRepairLimit stops repair at a provider if more of its copies failed than bit rot
// explains, with one alert to people. It returns why repair has stopped there; nil: it has
// not.
func (r Records) CheckRepairLimit(ctx context.Context, provider string, limits RepairLimits) (*record.FixityRepairStop, error) {
	_, err := r.db.Exec(ctx, repairLimitSQL, pgx.NamedArgs{
		"provider": provider, "failures": limits.Failures, "share": limits.Share, "least": limits.Least,
	})
	if err != nil {
		return nil, fmt.Errorf("check the repair limit of %s: %w", provider, err)
	}
	list, err := r.RepairStops(ctx)
	for _, b := range list {
		if b.Provider == provider {
			return &b, err
		}
	}
	return nil, err
}

// RepairStops lists the providers at which repair has stopped.
func (r Records) RepairStops(ctx context.Context) ([]record.FixityRepairStop, error) {
	return registry.Collect[record.FixityRepairStop](ctx, r.db, "list the providers without repair", `
		SELECT provider, reason, stopped_at FROM repair_stops WHERE released_at IS NULL ORDER BY provider`)
}

// AllowRepair lets repair continue at a provider, which only an admin may decide. Earlier
// failures no longer count.
func (r Records) AllowRepair(ctx context.Context, provider, by string) error {
	u, err := r.registry.Actor(ctx, r.db, by)
	if err == nil && u.Role != registry.RoleAdmin {
		err = fmt.Errorf("%w: %s is no admin", registry.ErrRefused, u.Email)
	}
	if err == nil {
		var id int64
		err = r.db.QueryRow(ctx, `
			UPDATE repair_stops SET released_by = $2, released_at = now() WHERE provider = $1 AND released_at IS NULL RETURNING id`,
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
