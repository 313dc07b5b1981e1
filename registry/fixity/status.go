package fixity

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// targetsSQL counts by storage_records_fixity alone, and running checks by
// fixity_checks_waiting.
const targetsSQL = `
SELECT p.target, p.provider, p.mode, coalesce(p.interval_days, @days::int) AS days, p.interval_days IS NULL AS by_default,
	s.copies, CASE p.mode WHEN 'off' THEN 0 ELSE s.overdue END AS overdue, s.unread, NULL::float8 AS compliance, s.oldest,
	c.running, c.waiting, c.stuck, b.bad, b.bad_in_time,
	d.checks AS checks_24h, d.bytes AS bytes_24h, CASE WHEN p.paused_until > now() THEN nullif(p.paused_until, 'infinity') END AS paused_until,
	CASE WHEN p.paused_until > now() THEN p.pause_reason ELSE '' END AS pause_reason
FROM fixity_policies p
CROSS JOIN LATERAL (
	SELECT CASE WHEN @exactly THEN (SELECT count(*) FROM storage_records s WHERE s.target = p.target AND s.active) ELSE 0 END AS copies,
		(SELECT count(*) FROM storage_records s WHERE s.target = p.target AND s.active
			AND s.fixity_from <= now() - make_interval(days => coalesce(p.interval_days, @days))) AS overdue,
		CASE WHEN @exactly THEN (SELECT count(*) FROM storage_records s WHERE s.target = p.target AND s.active AND s.last_fixity_at IS NULL) ELSE 0 END AS unread,
		(SELECT min(s.fixity_from) FROM storage_records s WHERE s.target = p.target AND s.active) AS oldest
) s
CROSS JOIN LATERAL (
	SELECT count(*) AS bad,
		count(*) FILTER (WHERE p.mode = 'off' OR s.fixity_from > now() - make_interval(days => coalesce(p.interval_days, @days))) AS bad_in_time
	FROM bad_copies b JOIN storage_records s ON s.id = b.storage_record_id WHERE b.target = p.target
) b
CROSS JOIN LATERAL (
	SELECT count(*) FILTER (WHERE worker <> '' AND run_at > now()) AS running, count(*) FILTER (WHERE worker = '' OR run_at <= now()) AS waiting,
		count(*) FILTER (WHERE attempts >= @tries::int) AS stuck
	FROM fixity_checks c WHERE c.target = p.target
) c
CROSS JOIN LATERAL (
	SELECT coalesce(sum(checks), 0)::bigint AS checks, coalesce(sum(bytes), 0)::bigint AS bytes
	FROM fixity_done d WHERE d.target = p.target AND d.minute > now() - interval '24 hours'
) d
ORDER BY p.target`

// worstSQL walks the head of each target in storage_records_fixity. The few
// files are looked up one by one (generic_files_pkey, fixity_checks_pkey): no plan may
// take it for many.
const worstSQL = `
SELECT (SELECT f.identifier FROM generic_files f WHERE f.id = w.generic_file_id) AS file, w.target, w.last_fixity_at AS checked, w.late,
	coalesce((SELECT c.error FROM fixity_checks c WHERE c.storage_record_id = w.id), '') AS error
FROM (
	SELECT w.* FROM fixity_policies p
	CROSS JOIN LATERAL (
		SELECT s.id, s.generic_file_id, s.target, s.last_fixity_at,
			now() - make_interval(days => coalesce(p.interval_days, @days::int)) - s.fixity_from AS late
		FROM storage_records s
		WHERE s.target = p.target AND s.active AND p.mode <> 'off'
		  AND s.fixity_from <= now() - make_interval(days => coalesce(p.interval_days, @days))
		ORDER BY s.fixity_from, s.id
		LIMIT @most
	) w
	ORDER BY w.late DESC, w.id
	LIMIT @most
) w`

// rateSQL counts the checks since the claims last found nothing left to do, or
// since they began again: as long as something is due, that is all that is done.
const rateSQL = `
SELECT now(), f.paused, f.paused_by, f.paused_at, f.pause_reason, f.allowance, f.fed, f.every, f.fed_at, coalesce(d.checks, 0)::float8, coalesce(d.fastest, 0)::float8 / 60,
	coalesce(extract(epoch FROM now() - greatest(d.began, w.since)), 0)::float8
FROM fixity_feed f
CROSS JOIN LATERAL (SELECT greatest(coalesce(f.drained_at, '-infinity'), now() - interval '24 hours') AS since) w
CROSS JOIN LATERAL (
	SELECT sum(checks) FILTER (WHERE minute >= date_trunc('minute', w.since)) AS checks,
		min(minute) FILTER (WHERE minute >= date_trunc('minute', w.since)) AS began, max(checks) AS fastest
	FROM (SELECT minute, sum(checks) AS checks FROM fixity_done WHERE minute > now() - interval '24 hours' AND checks > 0 GROUP BY minute) m
) d`

// mostCounted is how many copies on record are counted. Above it the planner's
// estimate and, for what comes due, a sample are used: counting ten million takes
// half a minute.
const mostCounted = 1_000_000

// reckoning is a status in the making.
type reckoning struct {
	record.FixityStatus

	pace pace
}

// StatusQuery says what a [Status] is about.
type StatusQuery struct {
	Days  int     // interval of the targets whose policy names none
	Tries int     // failed checks after which a copy counts as one that cannot be checked
	Worst int     // how many of the most overdue copies are named
	Count float64 // copies on record up to which all are counted; 0: a million
}

// Status counts the copies that are overdue or bad, and forecasts when all that are
// due will have been checked. It reads the index of the copies.
func (r Records) Status(ctx context.Context, q StatusQuery) (record.FixityStatus, error) {
	var s reckoning
	if q.Count == 0 {
		q.Count = mostCounted
	}
	err := r.registry.Look(ctx, func(tx pgx.Tx) (err error) {
		var all float64
		if err := tx.QueryRow(ctx, `SELECT reltuples FROM pg_class WHERE oid = 'storage_records'::regclass`).Scan(&all); err != nil {
			return fmt.Errorf("count the copies: %w", err)
		}
		s.Estimated = all > q.Count
		args := pgx.NamedArgs{"days": q.Days, "tries": q.Tries, "most": q.Worst, "exactly": !s.Estimated}
		rows, _ := tx.Query(ctx, targetsSQL, args)
		if s.Targets, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.FixityTarget]); err != nil {
			return fmt.Errorf("count the copies: %w", err)
		}
		rows, _ = tx.Query(ctx, worstSQL, args)
		if s.Worst, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.FixityOverdueCopy]); err != nil {
			return fmt.Errorf("list the most overdue copies: %w", err)
		}
		if err := s.estimate(ctx, tx); err != nil {
			return err
		}
		s.sum()
		if err := s.paced(ctx, tx); err != nil {
			return err
		}
		return s.forecast(ctx, tx, min(1, q.Count/max(all, 1)/4))
	})
	if err != nil {
		return s.FixityStatus, fmt.Errorf("read the fixity status: %w", err)
	}
	return s.FixityStatus, nil
}

// estimate asks the planner how many copies there are, if they were not counted.
func (s *reckoning) estimate(ctx context.Context, tx pgx.Tx) error {
	for i := range s.Targets {
		if !s.Estimated {
			break
		}
		t := &s.Targets[i]
		copies, err := estimated(ctx, tx, t.Target, "")
		if err != nil {
			return err
		}
		if t.Unread, err = estimated(ctx, tx, t.Target, " AND last_fixity_at IS NULL"); err != nil {
			return err
		}
		if t.Oldest != nil { // or else there are none
			t.Copies = max(copies, t.Overdue, 1)
		}
		t.Unread = min(t.Unread, t.Copies)
	}
	return nil
}

// querier is the database, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// estimated is how many copies of a target the planner expects.
func estimated(ctx context.Context, tx querier, target, and string) (int64, error) {
	var plan []struct {
		Plan struct {
			Rows int64 `json:"Plan Rows"`
		} `json:"Plan"`
	}
	err := tx.QueryRow(ctx, `EXPLAIN (FORMAT JSON) SELECT FROM storage_records WHERE target = $1 AND active`+and, target).Scan(&plan)
	if err != nil {
		return 0, fmt.Errorf("estimate the copies: %w", err)
	}
	return plan[0].Plan.Rows, nil
}

// sum adds up the targets.
func (s *reckoning) sum() {
	compliance := func(failing, copies int64) *float64 {
		if copies == 0 {
			return nil
		}
		return new(100 * (1 - float64(min(failing, copies))/float64(copies)))
	}
	var badInTime int64
	for i := range s.Targets {
		t := &s.Targets[i]
		s.Bad += t.Bad
		s.Stuck += t.Stuck
		s.Checks24h += t.Checks24h
		s.Bytes24h += t.Bytes24h
		if t.Promised() {
			t.Compliance = compliance(t.Overdue+t.BadInTime, t.Copies)
			s.Copies += t.Copies
			s.Overdue += t.Overdue
			s.Unread += t.Unread
			badInTime += t.BadInTime
		}
	}
	s.Compliance = compliance(s.Overdue+badInTime, s.Copies)
}

// paced reads what is allowed and how fast checks are made, and compares that with what the
// targets need.
func (s *reckoning) paced(ctx context.Context, tx pgx.Tx) error {
	var checks, fastest, seconds float64
	if err := tx.QueryRow(ctx, rateSQL).Scan(&s.At, &s.Paused, &s.PausedBy, &s.PausedAt, &s.PauseReason, &s.Allowance, &s.Fed, &s.Every, &s.FedAt, &checks, &fastest, &seconds); err != nil {
		return fmt.Errorf("count the checks: %w", err)
	}
	s.measure(checks, fastest, seconds)
	s.Needed = record.FixityNeeded(s.Targets)
	short, _ := s.Short(func(int64) string { return "" })
	s.KeepsUp = short == ""
	return nil
}

// measure works out the pace from the checks that were made in so many seconds, and
// those of the fastest minute, as so many a second. If as many are made as are
// allowed, how fast they are made says only when the last of them is.
func (s *reckoning) measure(checks, fastest, seconds float64) {
	if s.Every <= 0 {
		return // the scheduler never ran, so that nothing is allowed
	}
	const least = 60 // seconds, below which what was done says little
	allowed := float64(s.Fed) / s.Every.Seconds()
	s.pace = pace{rate: max(fastest, allowed), left: float64(s.Allowance), fed: float64(s.Fed), every: s.Every}
	s.pace.next = max(s.Every-s.At.Sub(*s.FedAt), 0)
	s.Rate = allowed
	if checks > 0 && seconds >= least && checks/seconds < allowed {
		s.Rate, s.Measured = checks/seconds, true
		s.pace = pace{rate: s.Rate}
	}
}
