package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// obituary is what the workers of a host know of one that died there.
type obituary struct {
	process

	death
	hands map[int64]string // files in hand by item
}

// round is one round of reaping: how long ago a lease may have lapsed, which workers
// have died, how often stages may be tried, and when the reaper last was heard of.
type round struct {
	since    time.Duration
	dead     []obituary
	attempts map[string]int
	worker   string
	sent     time.Time
}

// reaped is an item that was taken from a worker that is gone.
type reaped struct {
	place

	id   int64
	code string
	note string
	end  End
}

// reapPage is how many attempts one statement ends. A page that the database
// refuses is gone through item by item, so that one bad row holds up no other.
const reapPage = 100

// Reap ends the claims of workers that are gone, and returns how many. Those of
// dead workers of this host end at once and with the cause of death, others when
// their lease has lapsed. Any number of processes may call it: one at a time
// does the work.
func (e *Engine) Reap(ctx context.Context) (int, error) {
	dead, err := e.survey(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if e.reaps.resting(begun) {
		return 0, nil
	}
	since := e.reaps.since(begun)
	n, complete, err := e.reapSince(ctx, since, dead)
	e.reaps.ended(begun, since, complete)
	if err != nil {
		return n, err
	}
	for _, o := range dead {
		if complete && (n > 0 || len(o.hands) == 0) { // else its items may be locked, and the next round needs it
			discardRecord(o.worker)
		}
	}
	return n, nil
}

// reapSince reaps page by page, and tells whether it came to the end.
func (e *Engine) reapSince(ctx context.Context, since time.Duration, dead []obituary) (n int, complete bool, err error) {
	for {
		list, busy, err := e.store.reap(ctx, reapPage, round{since, dead, e.options.MaxAttempts, e.self.worker, e.watch.lastSent()})
		if err != nil {
			return n, false, err
		}
		put := make([]place, 0, len(list))
		for _, r := range list {
			log := e.log.With("item", r.id, "stage", r.end.Stage, "code", r.code, "note", r.note)
			if r.code == codeClaimLost {
				log.WarnContext(ctx, "claim lost; another worker will continue")
			} else {
				log.WarnContext(ctx, "worker gone")
			}
			if r.end.Status == "Suspended" {
				e.logGivenUp(ctx, r.id, r.end.Stage, r.end.Attempt, r.note)
			}
			e.options.Observer.Ended(r.end)
			put = append(put, r.place)
		}
		e.wake.put(put)
		n += len(list)
		if busy || len(list) < reapPage {
			return n, !busy, nil
		}
	}
}

// reaps are the rounds of this process, by its monotonic clock. Leases lapse in
// the order of time, so a round need only go back to where the one before began,
// and by the time of a statement for claims that committed late: the entries of
// leases long over are dead, but there for as long as vacuum is kept away. What
// somebody had locked just then is found by the rounds that go all the way, which
// are as many as cost little.
type reaps struct {
	mu    sync.Mutex
	n     int
	last  time.Time // when the last complete one began
	full  time.Time // when one last went all the way
	takes time.Duration
	rest  time.Time // nothing is reaped before
}

// restFor keeps the rounds of a time from reaping, and has the next go all the way.
func (r *reaps) restFor(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n, r.rest = 0, time.Now().Add(d)
}

const (
	allTheWay     = 100 * 365 * 24 * time.Hour
	fullRoundsOf  = 16 // one in so many goes all the way
	fullRoundCost = 20 // and takes at most a part of the time
)

func (r *reaps) resting(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.rest)
}

// since says how far back a round looks that begins now.
func (r *reaps) since(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if r.n == 1 || r.n%fullRoundsOf == 0 && now.Sub(r.full) >= fullRoundCost*r.takes {
		return allTheWay
	}
	if r.last.IsZero() {
		return now.Sub(r.full) + statementTime
	}
	return now.Sub(r.last) + statementTime
}

// ended notes how a round went that began at a time.
func (r *reaps) ended(begun time.Time, since time.Duration, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since == allTheWay {
		r.full, r.takes = begun, time.Since(begun)
	}
	if complete {
		r.last = begun
	}
}

// survey finds out which workers of this host have died, and of what, and notes
// it. A host that tells nothing of its processes leaves it to the leases.
func (e *Engine) survey(ctx context.Context) ([]obituary, error) {
	if e.self.host == "" {
		return nil, nil
	}
	neighbours, err := e.store.neighbours(ctx, e.self)
	if err != nil {
		return nil, err
	}
	var dead []obituary
	for _, p := range neighbours {
		if d, ok := e.kernel.causeOf(p); ok {
			e.log.WarnContext(ctx, "worker died", "worker", p.worker, "pid", p.pid, "cause", d.ending, "said", d.detail)
			dead = append(dead, obituary{process: p, death: d, hands: handsOf(p.worker)})
		}
	}
	return dead, nil
}

// neighbours lists the other workers of a host that have not ended as far as is
// known. After those of dead workers nothing is left to reap, so their rows are
// ended in the transaction that reaps.
func (p *postgres) neighbours(ctx context.Context, self process) ([]process, error) {
	rows, _ := p.upkeep.Query(ctx, neighboursSQL, self.host, self.worker)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o process, err error) {
		err = row.Scan(&o.worker, &o.node, &o.pid, &o.started, &o.cgroup, &o.oomKills)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the workers of this host: %w", err)
	}
	return list, nil
}

// reap ends no lease if the clock was set forward since the reaper was heard of last:
// so have the leases of the living lapsed, who renew them within a heartbeat.
func (p *postgres) reap(ctx context.Context, most int, r round) (list []reaped, busy bool, err error) {
	err = p.upkeep.transact(ctx, func(tx pgx.Tx) error {
		list = nil
		var ours bool
		var ago *time.Duration
		err := tx.QueryRow(ctx, `
			SELECT pg_try_advisory_xact_lock(hashtextextended('farol reaper', 0)), (SELECT now() - heard_at FROM worker_processes WHERE worker = $1)`,
			r.worker).Scan(&ours, &ago)
		if err != nil || !ours {
			busy = !ours
			return err
		}
		n := newNews(r.dead, r.attempts)
		if list, err = reapDead(ctx, tx, most, n); err != nil {
			return err
		}
		if ago != nil && !r.sent.IsZero() && *ago > time.Since(r.sent)+clockSlack {
			busy = true
			return nil
		}
		if _, err := tx.Exec(ctx, workersSilentSQL); err != nil {
			return err
		}
		lapsed, err := reapFound(ctx, tx, lapsedSQL, most-len(list), r.since, n)
		list = append(list, lapsed...)
		return err
	})
	switch {
	case err != nil && refused(err) && most > 1:
		return p.reapSingly(ctx, most, r)
	case err != nil:
		return nil, false, fmt.Errorf("end the claims of workers that are gone: %w", err)
	}
	return list, busy, nil
}

// reapDead ends the claims of workers that are known to be dead, and their rows.
func reapDead(ctx context.Context, tx pgx.Tx, most int, n news) ([]reaped, error) {
	if len(n.workers) == 0 {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, workersDiedSQL, n.workers, n.endings); err != nil {
		return nil, err
	}
	list, err := reapFound(ctx, tx, heldByDeadSQL, most, n.workers, n)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, workersUnreapedSQL, n.workers)
	return list, err
}

// reapSingly is reap where the database refused a page: what of it can be ended
// is, and the rest is told of.
func (p *postgres) reapSingly(ctx context.Context, most int, r round) ([]reaped, bool, error) {
	const all = 1000
	n := newNews(r.dead, r.attempts)
	ids, err := itemsToReap(ctx, p.upkeep, heldByDeadSQL, all, n.workers)
	if err == nil {
		var lapsed []int64
		lapsed, err = itemsToReap(ctx, p.upkeep, lapsedSQL, all, r.since)
		ids = append(ids, lapsed...)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list the claims of workers that are gone: %w", err)
	}
	var list []reaped
	var errs []error
	for _, id := range ids {
		one, err := reapIn(ctx, p.upkeep, []int64{id}, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("item %d: %w", id, err))
		}
		list = append(list, one...)
	}
	if len(list) == 0 {
		return nil, false, fmt.Errorf("end the claims of workers that are gone: %w", errors.Join(errs...))
	}
	return list, len(list) < most, nil
}

// itemsToReap lists items that one of the statements lapsed and held_by_dead finds.
func itemsToReap(ctx context.Context, db querier, find string, most int, arg any) ([]int64, error) {
	rows, _ := db.Query(ctx, find, max(most, 0), arg)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// reapFound ends the attempts at what a statement finds.
func reapFound(ctx context.Context, db querier, find string, most int, arg any, n news) ([]reaped, error) {
	ids, err := itemsToReap(ctx, db, find, most, arg)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return reapIn(ctx, db, ids, n)
}

// news is what a round of reaping brings along, column by column.
type news struct {
	workers, endings, words []string
	items                   []int64
	files                   []string
	attempts                []int32 // allowed, where a process overrides the settings
	stages                  []string
}

func newNews(dead []obituary, attempts map[string]int) (n news) {
	for _, o := range dead {
		n.workers, n.endings, n.words = append(n.workers, o.worker), append(n.endings, o.ending), append(n.words, o.detail)
		for item, file := range o.hands {
			n.items, n.files = append(n.items, item), append(n.files, file)
		}
	}
	for stage, most := range attempts {
		n.stages, n.attempts = append(n.stages, stage), append(n.attempts, int32(most)) //nolint:gosec // a few
	}
	return n
}

func reapIn(ctx context.Context, db querier, ids []int64, n news) ([]reaped, error) {
	rows, _ := db.Query(ctx, reapSQL, ids, n.attempts, n.stages, n.items, n.files, n.workers, n.words)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reaped, err error) {
		var action string
		err = row.Scan(&r.id, &action, &r.cell.stage, &r.cell.band, &r.at.priority, &r.at.turn, &r.note, &r.code, &r.end.Status, &r.end.Attempt)
		r.end.Stage = StepOf(action, r.cell.stage)
		if r.end.Outcome = strings.ReplaceAll(r.code, "-", " "); r.code == codeClaimLost {
			r.end.Outcome = "lease expired" // as in the ledger
		}
		return r, err
	})
}
