package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// Run keeps the process's leases alive, ends those of workers that died, and
// listens for new work, until ctx is done. It returns only then. Trouble with
// the database is logged and waited out.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.beat = time.Now()
	e.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { e.listen(ctx); return nil })
	group.Go(func() error { e.announce(ctx); return nil })
	group.Go(func() error {
		e.every(ctx, e.options.Heartbeat, "heartbeat", func(ctx context.Context) error {
			if err := e.heartbeat(ctx); err != nil {
				e.stopIfDeaf(ctx)
				return err
			}
			return nil
		})
		return nil
	})
	group.Go(func() error {
		e.every(ctx, e.options.Lease/6, "reaper", func(ctx context.Context) error {
			if _, err := e.Reap(ctx); err != nil {
				return err
			}
			return e.readCaps(ctx)
		})
		return nil
	})
	return group.Wait()
}

// every calls do about once in d, each call with a deadline of d.
func (e *Engine) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	for {
		if !pause(ctx, d*9/10+rand.N(d/10+1)) {
			return
		}
		call, cancel := context.WithTimeout(ctx, d)
		err := do(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "queue upkeep will be tried again", "what", what, "err", err)
		}
	}
}

// pause waits for d and tells whether ctx lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// reapSQL ends the attempts whose lease has lapsed. Each counts: an item that
// kills its workers is parked after as many as its stage allows.
const reapSQL = `
WITH dead AS MATERIALIZED (
	SELECT w.id, w.claim_token, w.worker AS dead_worker, w.attempt >= coalesce((@max_attempts::jsonb ->> w.stage)::int, s.max_attempts) AS parks,
		least(s.backoff_first * 2 ^ least(w.attempt - 1, 20), s.backoff_most) AS backoff
	FROM work_items w JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
	WHERE w.status = 'Started' AND w.lease_expires_at < now()
	ORDER BY w.lease_expires_at
	LIMIT 100
	FOR UPDATE OF w SKIP LOCKED
), moved AS (
	UPDATE work_items w SET
		status             = CASE WHEN parks THEN 'Suspended' ELSE 'Pending' END,
		claim_token        = w.claim_token + 1,
		run_at             = now() + CASE WHEN parks THEN '0' ELSE backoff END,
		lease_expires_at   = NULL,
		node               = NULL,
		pid                = NULL,
		worker             = NULL,
		retry              = NOT parks,
		needs_admin_review = parks,
		error_code         = 'lease-expired',
		note               = 'The worker ' || dead_worker || ' was not heard of any more while it worked on this stage.'
			|| CASE WHEN parks THEN ' Will not retry: failed ' || w.attempt || ' times. Interim processing data persists.' ELSE '' END,
		updated_at         = now()
	FROM dead
	WHERE w.id = dead.id
	RETURNING w.id, dead.claim_token, w.stage, w.retry, w.note
), ended AS (
	UPDATE work_item_attempts a SET ended_at = now(), outcome = 'lease expired', error_code = 'lease-expired', error = moved.note
	FROM moved
	WHERE a.work_item_id = moved.id AND a.claim_token = moved.claim_token
)
SELECT id, stage FROM moved`

// Reap ends the claims whose lease has lapsed, up to 100 at a time, and returns
// how many. Any number of processes may reap at once.
func (e *Engine) Reap(ctx context.Context) (int, error) {
	override, err := json.Marshal(e.options.MaxAttempts)
	if err != nil {
		return 0, fmt.Errorf("encode the attempts allowed: %w", err)
	}
	type reaped struct {
		ID    int64
		Stage string
	}
	rows, _ := e.db.Query(ctx, reapSQL, pgx.NamedArgs{"max_attempts": string(override)})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[reaped])
	if err != nil {
		return 0, fmt.Errorf("end lapsed leases: %w", err)
	}
	for _, r := range list {
		e.log.WarnContext(ctx, "lease lapsed", "item", r.ID, "stage", r.Stage)
		e.wake.local(r.Stage)
	}
	return len(list), nil
}

// channel is where processes tell each other of stages that have new work.
const channel = "farol_work"

// listen hears of work that other processes made. It keeps one connection of
// its own and reads it always; when it breaks, it is opened anew, and the poll
// finds meanwhile what was not heard.
func (e *Engine) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.listenOnce(ctx); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "not listening for work, will connect again", "err", err)
		}
		pause(ctx, time.Second)
	}
}

func (e *Engine) listenOnce(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, e.db.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on how a listener ends
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	e.wake.ring() // for what came before we listened
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait for work: %w", err)
		}
		if from, _, _ := strings.Cut(n.Payload, "\n"); from != e.worker { // its own it has heard already
			e.wake.ring()
		}
	}
}

// announceEvery bounds how often a process tells others of new work.
const announceEvery = 10 * time.Millisecond

// announce tells other processes, outside of any item's transaction and at most
// once in announceEvery, which stages have new work.
func (e *Engine) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake.toTell:
		}
		stages := e.wake.takeUntold()
		payload := e.worker + "\n" + strings.Join(stages, "\n")
		if _, err := e.db.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, payload); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "others were not told of work, they will find it", "stages", stages, "err", err)
		}
		if !pause(ctx, announceEvery) {
			return
		}
	}
}

// wake is how waiting pools learn of work. A signal says "look again", not what
// there is.
type wake struct {
	toTell chan struct{}

	mu      sync.Mutex
	untold  map[string]bool
	waiting map[chan struct{}]bool
}

func newWake() *wake {
	return &wake{toTell: make(chan struct{}, 1), untold: map[string]bool{}, waiting: map[chan struct{}]bool{}}
}

// local says that this process made work at a stage.
func (w *wake) local(stage string) {
	w.mu.Lock()
	w.untold[stage] = true
	w.mu.Unlock()
	select {
	case w.toTell <- struct{}{}:
	default:
	}
	w.ring()
}

func (w *wake) takeUntold() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stages []string
	for s := range w.untold {
		stages = append(stages, s)
	}
	clear(w.untold)
	return stages
}

func (w *wake) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Wakes returns a channel that gets a value when there may be new work, and at
// least about once in every poll. Call stop when done with it.
func (e *Engine) Wakes(ctx context.Context) (look <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	e.wake.mu.Lock()
	e.wake.waiting[c] = true
	e.wake.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	polling.Go(func() {
		for pause(ctx, e.options.Poll/2+rand.N(e.options.Poll)) {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	})
	return c, func() {
		e.wake.mu.Lock()
		delete(e.wake.waiting, c)
		e.wake.mu.Unlock()
		cancel()
		polling.Wait()
	}
}
