package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry/dial"
)

// farol is the engine that farol work runs: one for all workers of a process.
type farol struct {
	conns   int
	intake  bool // what takes the place of items that left comes as uploads do
	carried bool // a worker takes its items from stage to stage, as farol work does while none waits that comes first

	db     *pgxpool.Pool // of the workers' process
	feed   *pgxpool.Pool // of the producers of items
	names  atomic.Int64  // of the uploads that were put
	loaded atomic.Int64  // how many items were not put
}

func (f *farol) start(ctx context.Context, s *servers) (string, error) {
	u, err := url.Parse(s.Stack.AdminURL)
	if err != nil {
		return "", fmt.Errorf("read the database's URL: %w", err)
	}
	if f.conns > 0 {
		q := u.Query()
		q.Set("pool_max_conns", strconv.Itoa(f.conns))
		u.RawQuery = q.Encode()
	}
	if f.db, err = dial.Connect(ctx, u.String(), "bench"); err != nil {
		return "", err
	}
	if f.feed, err = dial.Connect(ctx, s.Stack.AdminURL, "bench-feed"); err != nil {
		return "", err
	}
	// Record is capped so that it does not swamp a registry with files. There are
	// no files here, and two items at a time would be all that is measured.
	if _, err := f.db.Exec(ctx, `UPDATE stage_settings SET cap = NULL`); err != nil {
		return "", fmt.Errorf("lift the caps: %w", err)
	}
	_, err = f.db.Exec(ctx, `
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		SELECT 'Bench ' || n, 'bench' || n || '.edu', 'r' || n, 's' || n FROM generate_series(0, 3) n
		ON CONFLICT DO NOTHING`)
	if err != nil {
		return "", fmt.Errorf("make the institutions: %w", err)
	}
	var version string
	if err := f.db.QueryRow(ctx, `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)`).Scan(&version); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	return fmt.Sprintf("this tree, %d connections, caps lifted; %s", f.db.Config().MaxConns, version), nil
}

// loadSQL does what the triggers of work_items would have done: see load.
const loadSQL = `
WITH item AS (
	INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, size_band, virtual_start, queued_at)
	SELECT i.id, 'Ingest', ($1::text[])[1 + n % $2], 'bag-' || n || '.tar', i.receiving_bucket, repeat('e', 32), s.size, now(),
		i.identifier || '/bag-' || n, (SELECT max(band) FROM size_bands WHERE min_size <= s.size), n << 20, now()
	FROM generate_series($3::bigint, $4::bigint) n
	JOIN institutions i ON i.receiving_bucket = 'r' || n % 4
	CROSS JOIN LATERAL (SELECT (ARRAY[1000, 100 << 20, 1500 << 20])[1 + n / $2 % 3] AS size) s
	ORDER BY n
	RETURNING *
)
INSERT INTO uploads_in_work SELECT object_identifier, name, etag, id FROM item`

// fill spreads the items over four institutions and three size bands as well.
func (f *farol) fill(ctx context.Context, n, first int) error {
	_, err := f.db.Exec(ctx, `BEGIN; SET LOCAL session_replication_role = replica; -- or it would be refused
		TRUNCATE work_items, work_item_attempts, topic_messages, uploads_in_work, objects_in_work, institution_virtual_times RESTART IDENTITY CASCADE; COMMIT`)
	if err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	if f.carried { // late stages go first, so that no item waits there
		first = 1
	}
	const chunk = 50_000
	for from := 0; from < n; from += chunk {
		if err := f.load(ctx, first, from, min(from+chunk, n)); err != nil {
			return err
		}
	}
	f.loaded.Store(int64(n))
	// Not the ledger: plans that are made while it is known to be empty walk it, and here it
	// grows to a million rows before it is analyzed again.
	if _, err := f.db.Exec(ctx, `VACUUM ANALYZE work_items`); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// load inserts items with the triggers of work_items off, whose part it does:
// millions of them in minutes.
func (f *farol) load(ctx context.Context, first, from, to int) error {
	err := pgx.BeginFunc(ctx, f.feed, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, loadSQL, rig.Stages(), first, from, to-1)
		return err
	})
	if err != nil {
		return fmt.Errorf("load items %d to %d: %w", from, to, err)
	}
	return nil
}

// replace brings items in the place of those that left.
func (f *farol) replace(ctx context.Context, n int) error {
	if f.intake {
		return f.put(ctx, n)
	}
	to := int(f.loaded.Add(int64(n)))
	return f.load(ctx, 1, to-n, to)
}

// put inserts uploads as the bucket reader does, triggers and all.
func (f *farol) put(ctx context.Context, n int) error {
	to := f.names.Add(int64(n))
	_, err := f.feed.Exec(ctx, `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Receive', 'new-' || n || '.tar', i.receiving_bucket, repeat('e', 32),
			(ARRAY[1000, 100 << 20, 1500 << 20])[1 + n % 3], now()
		FROM generate_series($1::bigint, $2::bigint) n
		JOIN institutions i ON i.receiving_bucket = 'r' || n % 4`, to-int64(n)+1, to)
	if err != nil {
		return fmt.Errorf("put %d items: %w", n, err)
	}
	return nil
}

func (f *farol) run(ctx context.Context, l load, t *tally) error {
	engine, err := claim.New(ctx, f.db, claim.DefaultOptions())
	if err != nil {
		return err
	}
	defer engine.Close()
	background, stop := context.WithCancel(ctx)
	var engineRuns errgroup.Group
	engineRuns.Go(func() error { return engine.Run(background) })
	var workers errgroup.Group
	r := &reader{put: f.replace, owes: make(chan struct{}, 1)}
	if !l.Drain {
		engineRuns.Go(func() error { return r.run(background) })
	}
	for i := range l.Workers {
		workers.Go(func() error { return f.work(ctx, engine, l, t, r, i) })
	}
	err = workers.Wait()
	stop()
	return errors.Join(err, engineRuns.Wait(), r.settle(context.WithoutCancel(ctx)))
}

// reader puts new items in the place of those that left, a page at a time, as the
// bucket reader does.
type reader struct {
	put  func(ctx context.Context, n int) error
	left atomic.Int64
	owes chan struct{}
}

// page is how many have to have left: a hundredth of the smallest backlog.
const page = 100

func (r *reader) replace(n int) {
	if r.left.Add(int64(n)) < page {
		return
	}
	select {
	case r.owes <- struct{}{}:
	default:
	}
}

func (r *reader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.owes:
			if err := r.settle(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
	}
}

// settle puts what is owed.
func (r *reader) settle(ctx context.Context) error {
	n := int(r.left.Swap(0))
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return r.put(ctx, n)
}

// work is one worker. Workers begin at different stages and go round, so that
// none of the stages is preferred; where theirs has nothing, they take from the
// next.
func (f *farol) work(ctx context.Context, e *claim.Engine, l load, t *tally, r *reader, number int) error {
	look, stop := e.Wakes(ctx)
	defer stop()
	for round := number; ctx.Err() == nil && !t.over(); round++ {
		n, err := f.batch(ctx, e, l, t, r, wants(round, l.Batch))
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		case <-t.done:
		}
	}
	return nil
}

func wants(round, batch int) []claim.Want {
	list := make([]claim.Want, stages)
	for i, stage := range rig.Stages() {
		list[(i+stages-round%stages)%stages] = claim.Want{Stage: stage, Most: batch}
	}
	return list
}

// batch claims items, ends them and, in a steady run, has new ones put in the place
// of those that left. It is not cut short: a claim whose answer was not waited
// for would stay claimed until its lease lapses.
func (f *farol) batch(ctx context.Context, e *claim.Engine, l load, t *tally, r *reader, wants []claim.Want) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	began := time.Now()
	items, err := e.Claim(ctx, claim.Filter{Stages: wants}, l.Batch)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	t.claimed(began)
	if f.carried {
		return len(items), f.carry(ctx, e, l, t, r, items)
	}
	ends := make([]claim.Ending, len(items))
	at := make([]int, len(items))
	left := 0
	for i, item := range items {
		ends[i].Item = item
		at[i], ends[i].Done = endOf(item)
		t.inHand(at[i])
		if at[i] == stages-1 {
			left++
		}
	}
	if err := errors.Join(e.Settle(ctx, ends)...); err != nil {
		return 0, err
	}
	for i, item := range items {
		t.hop(int(item.ID-1), at[i])
	}
	if left > 0 && !l.Drain {
		r.replace(left)
	}
	return len(items), nil
}

// carry takes each of some items through all stages that are left, side by side. The engine
// makes one statement of the transitions that come at the same time.
func (f *farol) carry(ctx context.Context, e *claim.Engine, l load, t *tally, r *reader, items []claim.Item) error {
	var left atomic.Int64
	var group errgroup.Group
	for _, item := range items {
		group.Go(func() error {
			for next := &item; next != nil; {
				stage, done := endOf(*next)
				t.inHand(stage)
				hold := e.Hold(ctx, *next)
				var err error
				if next = nil; stage < stages-1 {
					next, err = hold.Carry(ctx, done)
				} else if err = hold.Settle(ctx, done, nil); err == nil {
					left.Add(1)
				}
				if err != nil {
					return err
				}
				t.hop(int(item.ID-1), stage)
			}
			return nil
		})
	}
	err := group.Wait()
	if n := int(left.Load()); n > 0 && !l.Drain {
		r.replace(n)
	}
	return err
}

// endOf is the stage of an item, and how it ends there.
func endOf(item claim.Item) (stage int, done claim.Done) {
	stage = slices.Index(rig.Stages(), item.Stage)
	if stage+1 < stages {
		done.Next = rig.Stages()[stage+1]
	}
	return stage, done
}

// verify asks the ledger, in addition to what the workers told.
func (f *farol) verify(ctx context.Context, n int) error {
	var ended, attempts, done, messages int
	err := f.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM work_items WHERE status = 'Success' AND NOT retry),
			(SELECT count(*) FROM work_item_attempts),
			(SELECT count(DISTINCT (work_item_id, stage)) FROM work_item_attempts WHERE outcome = 'done'),
			(SELECT count(*) FROM topic_messages)`).Scan(&ended, &attempts, &done, &messages)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if ended != n || attempts != stages*n || done != stages*n || messages != (stages-1)*n {
		return fmt.Errorf("of %d items %d ended, with %d attempts, %d of them done, and %d messages", n, ended, attempts, done, messages)
	}
	return nil
}

func (f *farol) stop(context.Context) error {
	f.db.Close()
	f.feed.Close()
	return nil
}
