package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/clock"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/rounds"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/span"
)

// deadWorker is what the workers of a host know of one that died there.
type deadWorker struct {
	process.Death

	worker string
	files  map[int64]string // that were in progress, by item
}

// round is one round of reaping: how long ago a lease may have lapsed, which workers
// have died, how often stages may be tried, and when the reaper sent its last heartbeat.
type round struct {
	since    time.Duration
	dead     []deadWorker
	attempts map[string]int
	worker   string
	sent     time.Time
}

// reaped is an item that was taken from a worker that is gone.
type reaped struct {
	place cursor.Place

	id   int64
	code string
	note string
	end  End
}

// reapPage is how many attempts one statement ends. A page that the database
// refuses is processed item by item, so that one bad row holds up no other.
const reapPage = 100

// reapStore takes items from workers that are gone.
type reapStore interface {
	// reapDue lists the other workers of this host that have not ended as far as is known, and
	// says whether there is anything to reap of others: leases that lapsed not longer ago than
	// since, or processes that are silent.
	reapDue(ctx context.Context, self worker, since time.Duration) (others []worker, due bool, err error)
	// reap takes up to most items from workers that are gone, and is busy if another
	// process does it.
	reap(ctx context.Context, most int, r round) (list []reaped, busy bool, err error)
}

// reaper ends the claims of workers that are gone.
type reaper struct {
	*settler

	store  reapStore
	clock  *clock.Clock
	rounds rounds.Rounds
}

// reap is [Engine.Reap].
func (r *reaper) reap(ctx context.Context) (int, error) {
	begun := time.Now()
	rested, ok := r.clock.MayReap(begun)
	if !ok {
		return 0, nil
	}
	since := r.rounds.Since(begun, rested)
	others, due, err := r.store.reapDue(ctx, r.self, since)
	if err != nil {
		return 0, err
	}
	dead := r.deadOf(ctx, others)
	if len(dead) == 0 && !due {
		r.rounds.Ended(begun, since, true)
		return 0, nil
	}
	n, complete, err := r.reapSince(ctx, since, dead)
	r.rounds.Ended(begun, since, complete)
	if err != nil {
		return n, err
	}
	for _, w := range dead {
		if complete && (n > 0 || len(w.files) == 0) { // else its items may be locked, and the next round needs it
			process.Discard(w.worker)
		}
	}
	return n, nil
}

// reapSince reaps page by page, and reports whether it came to the end.
func (r *reaper) reapSince(ctx context.Context, since time.Duration, dead []deadWorker) (n int, complete bool, err error) {
	for {
		list, busy, err := r.store.reap(ctx, reapPage, round{since, dead, r.options.MaxAttempts, r.self.worker, r.clock.LastSent()})
		if err != nil {
			return n, false, err
		}
		put := make([]cursor.Place, 0, len(list))
		for _, taken := range list {
			log := r.log.With("item", taken.id, "stage", taken.end.Stage, "code", taken.code, "note", taken.note)
			switch {
			case taken.end.GaveUp():
				taken.end.LogGivenUp(ctx, log)
			case taken.code == codeClaimLost:
				log.WarnContext(ctx, "claim lost; another worker will continue")
			default:
				log.WarnContext(ctx, "worker's heartbeats stopped; its attempt was ended", "attempts", taken.end.Attempt)
			}
			r.options.Observer.Ended(taken.end)
			put = append(put, taken.place)
			put = append(put, r.settings.Load().BehindAll(taken.place.Partition.Stage)...) // its cap has space for any
		}
		r.wake.Put(put)
		n += len(list)
		if busy || len(list) < reapPage {
			return n, !busy, nil
		}
	}
}

// deadOf finds out which workers of this host have died, and of what. On a host that
// reports nothing of its processes, leases have to lapse.
func (r *reaper) deadOf(ctx context.Context, others []worker) (dead []deadWorker) {
	for _, w := range others {
		if d, ok := r.kernel.CauseOf(w.worker, w.Start); ok {
			if w.draining && d.Cause == process.Killed {
				d.Cause = process.Stopped
			}
			r.log.WarnContext(ctx, "worker died", "worker", w.worker, "pid", w.PID, "cause", d.Cause, "message", d.Message)
			dead = append(dead, deadWorker{Death: d, worker: w.worker, files: process.FilesOf(w.worker)})
		}
	}
	return dead
}

// reapDue lists workers whose rows have not ended. After those of dead workers nothing is
// left to reap, so their rows are ended in the transaction that reaps.
func (p *postgres) reapDue(ctx context.Context, self worker, since time.Duration) (others []worker, due bool, err error) {
	var host *string
	if self.Host != "" {
		host = &self.Host
	}
	rows, _ := p.upkeep.Query(ctx, reapDueSQL, host, self.worker, since)
	var w worker
	_, err = pgx.ForEachRow(rows, []any{&due, &w.worker, &w.PID, &w.Ticks, &w.Group, &w.OOMKills, &w.draining}, func() error {
		if w.worker != "" {
			others = append(others, w)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("ask whether there is anything to reap: %w", err)
	}
	return others, due, nil
}

// reap ends no lease if the clock was set forward since the last heartbeat of the reaper:
// then the leases of live workers have lapsed, which renew them within a heartbeat.
func (p *postgres) reap(ctx context.Context, most int, r round) (list []reaped, busy bool, err error) {
	err = p.upkeep.Transact(ctx, func(tx pgx.Tx) error {
		list = nil
		var ours bool
		var ago *time.Duration
		err := tx.QueryRow(ctx, `
			SELECT pg_try_advisory_xact_lock(hashtextextended('farol reaper', 0)), (SELECT now() - heartbeat_at FROM worker_processes WHERE worker = $1)`,
			r.worker).Scan(&ours, &ago)
		if err != nil || !ours {
			busy = !ours
			return err
		}
		n := newDeaths(r.dead, r.attempts)
		if list, err = reapDead(ctx, tx, most, n); err != nil {
			return err
		}
		if ago != nil && !r.sent.IsZero() && *ago > time.Since(r.sent)+clock.Slack {
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
func reapDead(ctx context.Context, tx pgx.Tx, most int, n deaths) ([]reaped, error) {
	if len(n.workers) == 0 {
		return nil, nil
	}
	if _, err := tx.Exec(ctx, workersDiedSQL, n.workers, n.causes); err != nil {
		return nil, err
	}
	list, err := reapFound(ctx, tx, heldByDeadSQL, most, n.workers, n)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, workersUnreapedSQL, n.workers)
	return list, err
}

// reapSingly is reap where the database refused a page: attempts that can be ended are, and
// the rest is reported.
func (p *postgres) reapSingly(ctx context.Context, most int, r round) ([]reaped, bool, error) {
	const all = 1000
	n := newDeaths(r.dead, r.attempts)
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
func reapFound(ctx context.Context, db querier, find string, most int, arg any, n deaths) ([]reaped, error) {
	ids, err := itemsToReap(ctx, db, find, most, arg)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return reapIn(ctx, db, ids, n)
}

// deaths are the parameters of a round of reaping, column by column.
type deaths struct {
	workers, causes, messages []string
	items                     []int64
	files                     []string
	attempts                  []int32 // allowed, where a process overrides the settings
	stages                    []string
}

func newDeaths(dead []deadWorker, attempts map[string]int) (n deaths) {
	for _, o := range dead {
		n.workers, n.causes, n.messages = append(n.workers, o.worker), append(n.causes, o.Cause), append(n.messages, o.Message)
		for item, file := range o.files {
			n.items, n.files = append(n.items, item), append(n.files, file)
		}
	}
	for stage, most := range attempts {
		n.stages, n.attempts = append(n.stages, stage), append(n.attempts, int32(most)) //nolint:gosec // a few
	}
	return n
}

func reapIn(ctx context.Context, db querier, ids []int64, n deaths) ([]reaped, error) {
	rows, _ := db.Query(ctx, reapSQL, ids, n.attempts, n.stages, n.items, n.files, n.workers, n.messages)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reaped, err error) {
		var action registry.Action
		r.end.Of = &span.Attempt{}
		err = row.Scan(&r.id, &action, &r.place.Partition.Stage, &r.place.Partition.Band, &r.place.Position.Priority, &r.place.Position.VirtualStart, &r.note, &r.code, &r.end.Status, &r.end.Attempt,
			&r.end.Of.Token, &r.end.Of.Created, &r.end.Of.Began, &r.end.Of.Institution, &r.end.Of.Size, &r.end.Of.Worker)
		r.end.Of.Item = r.id
		r.end.Stage = stages.StepOf(action, r.place.Partition.Stage)
		if r.end.Outcome = strings.ReplaceAll(r.code, "-", " "); r.code == codeClaimLost {
			r.end.Outcome = "lease expired" // as in the ledger
		}
		return r, err
	})
}
