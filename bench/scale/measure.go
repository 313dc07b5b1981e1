package scale

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/retry"
)

// sample is how much was done and used up to a moment.
type sample struct {
	at           time.Time // by the clock of the database
	wal          int64     // bytes
	commits      int64     // transactions that wrote
	transactions int64     // all, those that failed included
	statements   int64
	postgres     float64 // seconds of CPU
	machine      float64 // likewise, of all that runs on it
	workers      counts
}

func (s *servers) sample(ctx context.Context, pg rig.Postmaster, crew crew) (one sample, err error) {
	err = s.DB.QueryRow(ctx, `
		SELECT clock_timestamp(), (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
			(SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname = current_database()),
			(SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE userid <> to_regrole(current_user)::oid)`).
		Scan(&one.at, &one.wal, &one.commits, &one.transactions, &one.statements)
	if err != nil {
		return one, fmt.Errorf("read the figures of the database: %w", err)
	}
	one.postgres, one.machine = pg.CPU(), rig.Busy(rig.Procfs)
	one.workers, err = crew.counts()
	return one, err
}

// result is what a run came to.
type result struct {
	bags         mix
	workers      int
	offered      float64 // bags a second
	seconds      float64
	begin, end   sample
	ended, hops  int64 // bags, and stages of bags
	first, later waits
	worst        string // the stage for which bags waited longest, of those behind the first
	worstP50     float64
	activity     map[string]float64 // sessions at work on average, by what they wait for
	connections  int
	statements   []statement
}

// waits are how long bags wait for a worker at a stage, in milliseconds.
type waits struct{ p50, p99 float64 }

// measure runs so many workers on bags that arrive.
func (s *servers) measure(ctx context.Context, c config, bags mix, workers int) (r result, err error) {
	r = result{bags: bags, workers: workers, activity: map[string]float64{}}
	if err := s.empty(ctx); err != nil {
		return r, err
	}
	pg, err := rig.FindPostmaster(ctx, s.DB)
	if err == nil && c.own {
		err = pg.Alone(ctx)
	}
	if err != nil {
		return r, err
	}
	pools, err := s.pools(c)
	if err != nil {
		return r, err
	}
	f, err := newFeed(ctx, s, c, pools, bags, workers)
	if err != nil {
		return r, err
	}
	defer f.farol.Close()
	r.offered = f.rate
	crew, err := startCrew(workers, func(i int) orders {
		return orders{Environment: s.environment(c, i), Durations: c.durations.text}
	})
	defer func() { err = errors.Join(err, crew.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return r, err
	}
	group, running := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(running)
	group.Go(func() error { return f.run(running) })
	group.Go(func() error {
		defer stop()
		return s.window(running, c, pg, crew, &r)
	})
	if err := group.Wait(); err != nil {
		return r, err
	}
	return r, s.ledger(ctx, &r)
}

// settles is how long it takes until a worker that was started more disturbs the others no longer.
const settles = time.Second / 2

// window waits until the workers are busy, and measures.
func (s *servers) window(ctx context.Context, c config, pg rig.Postmaster, crew crew, r *result) (err error) {
	if !retry.Pause(ctx, c.warm+time.Duration(r.workers)*settles+2*r.bags.time(c.durations, 0, 0, nil)) {
		return context.Cause(ctx)
	}
	if _, err := s.DB.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return fmt.Errorf("count statements from now on: %w", err)
	}
	if r.begin, err = s.sample(ctx, pg, crew); err != nil {
		return err
	}
	if err := s.watch(ctx, c.dur, r); err != nil {
		return err
	}
	if r.end, err = s.sample(ctx, pg, crew); err != nil {
		return err
	}
	r.seconds = r.end.at.Sub(r.begin.at).Seconds()
	r.statements, err = s.expensive(ctx, c.statements)
	return err
}

// watchEvery is how often the sessions are looked at.
const watchEvery = 100 * time.Millisecond

// watch looks at what sessions do for a while.
func (s *servers) watch(ctx context.Context, d time.Duration, r *result) error {
	n := 0.0
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		if !retry.Pause(ctx, watchEvery) {
			return context.Cause(ctx)
		}
		rows, err := s.DB.Query(ctx, `
			SELECT coalesce(wait_event_type || ' ' || wait_event, 'CPU'), count(*) FILTER (WHERE state = 'active'), count(*)
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1`)
		if err != nil {
			return fmt.Errorf("look at the sessions: %w", err)
		}
		var event string
		var active, all, sessions int
		_, err = pgx.ForEachRow(rows, []any{&event, &active, &all}, func() error {
			r.activity[event] += float64(active)
			sessions += all
			return nil
		})
		if err != nil {
			return fmt.Errorf("look at the sessions: %w", err)
		}
		r.connections = max(r.connections, sessions)
	}
	for event := range r.activity {
		r.activity[event] /= n
	}
	return nil
}

// ledger reads what was done in the time that was measured. A wait is the time from the end of one
// attempt to the beginning of the next, or from the making of an item to its first attempt.
func (s *servers) ledger(ctx context.Context, r *result) error {
	err := s.DB.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE stage = 'Cleanup'), count(*) FROM work_item_attempts
		WHERE outcome = 'done' AND ended_at >= $1 AND ended_at < $2`, r.begin.at, r.end.at).Scan(&r.ended, &r.hops)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	rows, err := s.DB.Query(ctx, `
		SELECT stage, p[1], p[2] FROM (
			SELECT CASE GROUPING(stage) WHEN 0 THEN stage ELSE '' END AS stage,
				percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY 1000 * extract(epoch FROM claimed_at - ready_at)::float8) AS p
			FROM (
				SELECT a.stage, a.claimed_at, coalesce(lag(a.ended_at) OVER (PARTITION BY a.work_item_id ORDER BY a.claim_token), w.created_at) AS ready_at
				FROM work_item_attempts a JOIN work_items w ON w.id = a.work_item_id
			) attempts
			WHERE claimed_at >= $1 AND claimed_at < $2
			GROUP BY GROUPING SETS ((stage), (stage <> 'Receive'))
			HAVING GROUPING(stage) = 0 OR bool_and(stage <> 'Receive')
		) waits`, r.begin.at, r.end.at)
	if err != nil {
		return fmt.Errorf("read the waits: %w", err)
	}
	var stage string
	var one waits
	_, err = pgx.ForEachRow(rows, []any{&stage, &one.p50, &one.p99}, func() error {
		switch {
		case stage == "":
			r.later = one
		case stage == "Receive":
			r.first = one
		case one.p50 > r.worstP50:
			r.worst, r.worstP50 = stage, one.p50
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the waits: %w", err)
	}
	return nil
}

// statement is a kind of statement, and what all of its calls came to.
type statement struct {
	Text  string
	Calls int64
	MS    float64 // in the database
	WAL   int64
}

// expensive lists the statements that took most of the database's time.
func (s *servers) expensive(ctx context.Context, n int) ([]statement, error) {
	rows, err := s.DB.Query(ctx, `
		SELECT left(regexp_replace(query, '\s+', ' ', 'g'), 100) AS text, calls, total_exec_time AS ms, wal_bytes::bigint AS wal
		FROM pg_stat_statements WHERE userid <> to_regrole(current_user)::oid ORDER BY total_exec_time DESC LIMIT $1`, n)
	if err != nil {
		return nil, fmt.Errorf("list the statements: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[statement])
	if err != nil {
		return nil, fmt.Errorf("list the statements: %w", err)
	}
	return list, nil
}

// cores is how many of the machine a time of CPU had on average.
func (r *result) cores(seconds float64) float64 { return seconds / r.seconds }

// idle is the share of the machine that nobody used.
func (r *result) idle() float64 {
	return max(0, 1-r.cores(r.end.machine-r.begin.machine)/float64(runtime.NumCPU()))
}
