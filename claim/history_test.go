package claim_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// history is the calls of the workers of a test and the answers, with the times of both.
type history struct {
	begun time.Time

	mu      sync.Mutex
	claims  []historyClaim
	settles []historySettle
	carried int
}

type historyClaim struct {
	item, token int64
	asked, told time.Duration
	worker      string
	stage       registry.Stage
	attempt     int
}

type historySettle struct {
	item, token int64
	asked       time.Duration
	as          string // what the ledger calls it
	to          registry.Stage
	err         error
}

func (h *history) now() time.Duration { return time.Since(h.begun) }

func (h *history) claim(e *claim.Engine, f claim.Filter, n int) ([]*claim.Hold, error) {
	asked := h.now()
	items, err := e.Claim(context.Background(), f, n)
	told := h.now()
	holds := make([]*claim.Hold, len(items))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, item := range items {
		h.claims = append(h.claims, historyClaim{item.ID, item.Token, asked, told, e.Worker(), item.Stage, item.Attempt})
		holds[i] = e.Hold(context.Background(), item)
	}
	return holds, err
}

func (h *history) settle(hold *claim.Hold, as string, done claim.Done, result error) error {
	s := historySettle{item: hold.Item.ID, token: hold.Item.Token, asked: h.now(), as: as, to: done.Next}
	s.err = hold.Settle(context.Background(), done, result)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settles = append(h.settles, s)
	return s.err
}

// carry ends a claim whose stage is done, and begins the next with the same worker if it may.
func (h *history) carry(e *claim.Engine, hold *claim.Hold, done claim.Done) (*claim.Hold, error) {
	s := historySettle{item: hold.Item.ID, token: hold.Item.Token, asked: h.now(), as: "done", to: done.Next}
	next, err := hold.Carry(context.Background(), done)
	told := h.now()
	s.err = err
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settles = append(h.settles, s)
	if next == nil {
		return nil, err
	}
	h.claims = append(h.claims, historyClaim{next.ID, next.Token, s.asked, told, e.Worker(), next.Stage, next.Attempt})
	h.carried++
	return e.Hold(context.Background(), *next), err
}

// Sixty-four workers of eight processes claim, work, die, and come back late,
// while leases lapse under them and people interfere. The answers are then
// compared with what the rules allow and with what the ledger says.
func TestHistoryOfClaimsIsInOrder(t *testing.T) {
	t.Parallel()
	const items, processes, workers = 1500, 8, 64
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '1 millisecond', backoff_most = '5 milliseconds', cap = NULL`)
	q.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Storage Validation', n || '.tar', 'receiving', repeat('e', 32), n % 2 * 100000000, now()
		FROM institutions i, generate_series(1, $1) n`, items)
	engines := make([]*claim.Engine, processes)
	for i := range engines {
		engines[i] = q.engine(func(o *claim.Options) { o.Log = slog.New(slog.DiscardHandler) })
	}
	h := &history{begun: time.Now()}
	var over atomic.Bool
	var working, meddling sync.WaitGroup
	for w := range workers {
		working.Go(func() { (&historyWorker{t, h, engines[w%processes], &over, nil}).work() })
	}
	meddle := func(what func() error) {
		meddling.Go(func() {
			for !over.Load() {
				if err := what(); err != nil {
					t.Error(err)
				}
				<-time.After(5 * time.Millisecond)
			}
		})
	}
	sql := func(statement string, args ...any) error {
		_, err := q.db.Exec(context.Background(), statement, args...)
		return err
	}
	meddle(func() error { // live work loses its lease as well
		if err := sql(`UPDATE work_items SET lease_expires_at = now() - interval '1 second'
			WHERE id IN (SELECT id FROM work_items WHERE status = 'Started' AND stage_started_at < now() - interval '20 milliseconds'
				ORDER BY id FOR UPDATE SKIP LOCKED)`); err != nil {
			return err
		}
		_, err := engines[0].Reap(context.Background())
		return err
	})
	meddle(func() error {
		if err := engines[rand.N(processes)].Beat(context.Background()); !errors.Is(err, claim.ErrLocked) {
			return err
		}
		return nil // by another of those who interfere
	})
	meddle(func() error { // it may have ended since the statement began, and is then refused
		return unlessRefused(sql(`SELECT requeue(id) FROM work_items WHERE id = (SELECT min(id) + $1 FROM work_items) AND status IN ('Started', 'Failed')`, rand.N(items)))
	})
	meddle(func() error { // what waits for its next attempt is tried now, unless someone has it by then
		return unlessRefused(sql(`SELECT requeue(id) FROM work_items WHERE id = (SELECT max(id) FROM work_items WHERE status = 'Pending' AND run_at > now())`))
	})
	meddle(func() error {
		return sql(`UPDATE work_items SET status = 'Failed' WHERE id = (SELECT min(id) + $1 FROM work_items) AND status = 'Started'`, rand.N(items))
	})
	working.Go(func() { // until all are at their end; the last people are gone before the last workers
		for q.open() > 0 && time.Since(h.begun) < testenv.Patience {
			if err := sql(`SELECT requeue(id) FROM work_items WHERE status = 'Failed'`); err != nil {
				t.Error(err)
			}
			<-time.After(20 * time.Millisecond)
		}
		over.Store(true)
	})
	working.Wait()
	meddling.Wait()
	h.audit(q)
	t.Logf("%d claims, %d of them carried on, and %d ends of claims of %d items in %v", len(h.claims), h.carried, len(h.settles), items, h.now().Round(time.Millisecond))
	if h.carried == 0 {
		t.Error("no item was carried on to its next stage")
	}
}

func (q *queue) open() (n int) {
	if err := q.db.QueryRow(context.Background(), `SELECT count(*) FROM work_items WHERE status <> 'Success'`).Scan(&n); err != nil {
		q.t.Error(err)
	}
	return n
}

// historyWorker takes what it can get and is not to be relied on.
type historyWorker struct {
	t       *testing.T
	history *history
	engine  *claim.Engine
	over    *atomic.Bool
	zombies []*claim.Hold // which it has let lapse, and will come back to
}

func (w *historyWorker) work() {
	stages := []registry.Stage{"Cleanup", "Record", "Storage Validation"}
	f := claim.Filter{}
	for _, s := range stages {
		f.Stages = append(f.Stages, claim.Want{Stage: s, Most: 3})
	}
	for !w.over.Load() {
		holds, err := w.history.claim(w.engine, f, 1+rand.N(3))
		if err != nil {
			w.t.Errorf("Claim: %v", err)
		}
		idle := len(holds) == 0
		for len(holds) > 0 {
			hold := holds[0]
			holds = holds[1:]
			switch rand.N(10) {
			case 0, 1:
				w.zombies = append(w.zombies, hold)
				continue
			case 2:
				<-time.After(time.Duration(rand.N(30)) * time.Millisecond)
			}
			if next := w.end(hold, stages); next != nil {
				holds = append(holds, next)
			}
		}
		for len(w.zombies) > 0 && rand.N(3) == 0 {
			if next := w.end(w.zombies[0], stages); next != nil {
				w.zombies = append(w.zombies, next)
			}
			w.zombies = w.zombies[1:]
		}
		if idle {
			<-time.After(2 * time.Millisecond)
		}
	}
}

// end ends a claim in one way or another, and returns the next of an item that is carried on.
func (w *historyWorker) end(hold *claim.Hold, stages []registry.Stage) (next *claim.Hold) {
	as, done, result := "done", claim.Done{}, error(nil)
	switch rand.N(8) {
	case 0:
		as, result = "transient", errors.New("trouble")
	case 1:
		as, result = "released", claim.Release("stopping")
	case 2:
		as, result = "snoozed", claim.Snooze(0, "not yet")
	default:
		if at := slices.Index(stages, hold.Item.Stage); at > 0 {
			done.Next = stages[at-1]
		}
	}
	var err error
	if done.Next != "" && rand.N(2) == 0 {
		next, err = w.history.carry(w.engine, hold, done)
	} else {
		err = w.history.settle(hold, as, done, result)
	}
	if err != nil && !errors.Is(err, claim.ErrLost) {
		w.t.Errorf("Settle: %v", err)
	}
	return next
}

// ledgerRow is an attempt as the database has it.
type ledgerRow struct {
	Item, Token int64
	Worker      string
	Stage       registry.Stage
	Attempt     int
	Outcome     *string
	InOrder     bool // it began after the one before had ended
}

// audit compares what happened with what may happen.
func (h *history) audit(q *queue) {
	q.t.Helper()
	rows, _ := q.db.Query(context.Background(), `
		SELECT work_item_id AS item, claim_token AS token, worker, stage, attempt, outcome,
			coalesce(claimed_at >= lag(ended_at) OVER w, lag(claim_token) OVER w IS NULL) AS in_order
		FROM work_item_attempts WINDOW w AS (PARTITION BY work_item_id ORDER BY claim_token) ORDER BY 1, 2`)
	ledger := must.Get(pgx.CollectRows(rows, pgx.RowToStructByName[ledgerRow]))(q.t)
	slices.SortFunc(h.claims, func(a, b historyClaim) int {
		return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.token, b.token))
	})
	if len(ledger) != len(h.claims) {
		q.t.Fatalf("the ledger has %d claims, workers had %d", len(ledger), len(h.claims))
	}
	settled := h.accepted(q)
	for i, c := range h.claims {
		l := ledger[i]
		if l.Item != c.item || l.Token != c.token || l.Worker != c.worker || l.Stage != c.stage || l.Attempt != c.attempt {
			q.t.Errorf("the ledger has %+v, a worker was told %+v", l, c)
		}
		if i > 0 && h.claims[i-1].item == c.item {
			if h.claims[i-1].token >= c.token {
				q.t.Errorf("item %d was claimed with token %d after %d", c.item, c.token, h.claims[i-1].token)
			}
			if c.told < h.claims[i-1].asked {
				q.t.Errorf("item %d: token %d was given out before %d was asked for", c.item, c.token, h.claims[i-1].token)
			}
		}
		s, ok := settled[[2]int64{c.item, c.token}]
		switch {
		case l.Outcome == nil:
			q.t.Errorf("item %d, token %d has not ended", c.item, c.token)
		case *l.Outcome == "lease expired" || *l.Outcome == "cancelled":
			if ok {
				q.t.Errorf("item %d, token %d ended as %s, and its worker was told that %s was accepted", c.item, c.token, *l.Outcome, s.as)
			}
		case !ok || s.as != *l.Outcome:
			q.t.Errorf("item %d, token %d ended as %s, its worker had %+v accepted", c.item, c.token, *l.Outcome, s)
		}
		if !l.InOrder {
			q.t.Errorf("item %d, token %d was claimed before the claim before it had ended", c.item, c.token)
		}
	}
	h.latest(q, settled)
	h.sums(q, settled)
}

// accepted are the ends that workers know to have landed, by claim.
func (h *history) accepted(q *queue) map[[2]int64]historySettle {
	accepted := map[[2]int64]historySettle{}
	for _, s := range h.settles {
		if s.err != nil {
			continue
		}
		if _, twice := accepted[[2]int64{s.item, s.token}]; twice {
			q.t.Errorf("item %d, token %d was ended twice", s.item, s.token)
		}
		accepted[[2]int64{s.item, s.token}] = s
	}
	return accepted
}

// latest checks that no end was accepted that was asked for after someone else
// had been given the item.
func (h *history) latest(q *queue, settled map[[2]int64]historySettle) {
	byItem := map[int64][]historyClaim{}
	for _, c := range h.claims {
		byItem[c.item] = append(byItem[c.item], c)
	}
	for _, c := range h.claims {
		for _, before := range byItem[c.item] {
			if before.token >= c.token {
				continue
			}
			if s, ok := settled[[2]int64{before.item, before.token}]; ok && s.asked > c.told {
				q.t.Errorf("item %d: the end of token %d was accepted after token %d had been given out", c.item, before.token, c.token)
			}
		}
	}
}

// sums checks that nothing moved without a record of it, and that nothing is lost.
func (h *history) sums(q *queue, settled map[[2]int64]historySettle) {
	if n := value[int](q, `SELECT count(*) FROM work_items WHERE status <> 'Success'`); n > 0 {
		q.t.Errorf("%d items have not come to their end", n)
	}
	if n := value[int](q, `
		SELECT count(*) FROM work_items w WHERE claim_token <>
			(SELECT count(*) + count(*) FILTER (WHERE outcome <> 'cancelled') FROM work_item_attempts WHERE work_item_id = w.id)
			+ (SELECT count(*) FROM work_item_audit WHERE work_item_id = w.id AND before->'claim_token' <> after->'claim_token')`); n > 0 {
		q.t.Errorf("the tokens of %d items have moved otherwise than by claims, their ends, and changes by hand", n)
	}
	if n := value[int](q, `
		SELECT count(*) FROM work_item_audit WHERE before->'claim_token' = after->'claim_token'
			AND (before->>'status' <> 'Pending' OR before - '{run_at, updated_at}'::text[] <> after - '{run_at, updated_at}'::text[])`); n > 0 {
		q.t.Errorf("%d changes by hand left the token and did more than to have a waiting item tried now", n)
	}
	want := value[int](q, `SELECT (SELECT count(*) FROM work_items)
		+ (SELECT count(*) FROM work_item_audit WHERE after->>'status' = 'Pending' AND before->>'status' <> 'Pending')`)
	for _, s := range settled {
		if s.as == "done" && s.to != "" {
			want++
		}
	}
	if n := value[int](q, `SELECT count(*) FROM topic_messages`); n != want {
		q.t.Errorf("the topic log has %d messages, want %d", n, want)
	}
}

// unlessRefused is the error of a change by hand that was neither made nor refused.
func unlessRefused(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == "23514" {
		return nil
	}
	return err
}
