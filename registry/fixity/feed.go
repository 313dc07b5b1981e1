package fixity

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

const (
	// headroom is how many times as many copies as come due in the mean a release has: an
	// archive that was stored in one day is checked within a quarter of the interval, and a
	// backlog is gone in a third of the time in which it grew. How many copies are
	// read at once the slots of the workers bound.
	headroom = 4
	// leastFeed is a release that is small for any store. Below it nobody need count.
	leastFeed = 2500
)

// readSQL reads the head of each target in storage_records_fixity.
const readSQL = `
SELECT p.target, p.mode, coalesce(p.interval_days, @days::int) AS days, CASE WHEN p.paused_until > now() THEN nullif(p.paused_until, 'infinity') END AS paused_until,
	(SELECT min(s.fixity_from) FROM storage_records s WHERE s.target = p.target AND s.active) AS oldest
FROM fixity_policies p WHERE p.mode = 'read' ORDER BY p.target`

// readTargets lists the targets that are read, with the planner's estimate of their copies.
func readTargets(ctx context.Context, db querier, days int) ([]record.FixityTarget, error) {
	rows, _ := db.Query(ctx, readSQL, pgx.NamedArgs{"days": days})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[record.FixityTarget])
	if err != nil {
		return nil, fmt.Errorf("list what is checked: %w", err)
	}
	for i := range list {
		if list[i].Oldest == nil {
			continue // it has no copies
		}
		if list[i].Copies, err = estimated(ctx, db, list[i].Target, ""); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Follow is how many copies a release has to allow, every so often, for the policies to be
// kept: what comes due in that time in the mean, and headroom. It counts no copies: the
// planner's estimates do. days is the interval of the targets whose policy names none.
func (r Records) Follow(ctx context.Context, every time.Duration, days int) (int, error) {
	targets, err := readTargets(ctx, r.db, days)
	if err != nil {
		return 0, err
	}
	return release(targets, every), nil
}

func release(targets []record.FixityTarget, every time.Duration) int {
	return max(leastFeed, int(math.Ceil(headroom*record.FixityNeeded(targets)*every.Seconds())))
}

// Pace is the part of a [Status] that says whether the checks keep up. It costs the same
// however many copies there are.
func (r Records) Pace(ctx context.Context, days int) (record.FixityStatus, error) {
	s := reckoning{FixityStatus: record.FixityStatus{Estimated: true}}
	err := r.registry.Look(ctx, func(tx pgx.Tx) (err error) {
		if s.Targets, err = readTargets(ctx, tx, days); err != nil {
			return err
		}
		return s.paced(ctx, tx)
	})
	return s.FixityStatus, err
}

// Feed says how many copies may be taken up from now on until it is called
// again, every so often. What was left of the last time is lost; it is returned.
func (r Records) Feed(ctx context.Context, n int, every time.Duration) (left int64, err error) {
	err = r.db.QueryRow(ctx, `
		WITH was AS MATERIALIZED (SELECT allowance FROM fixity_feed)
		UPDATE fixity_feed SET allowance = $1, fed = $1, every = $2, fed_at = now()
		RETURNING (SELECT allowance FROM was)`, n, every).Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("reserve %d checks of copies: %w", n, err)
	}
	if _, err := r.db.Exec(ctx, `DELETE FROM fixity_done WHERE minute < now() - interval '8 days'`); err != nil {
		return left, fmt.Errorf("delete old counts of checks: %w", err)
	}
	return left, nil
}
