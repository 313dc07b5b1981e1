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

// reapSQL ends attempts whose worker is gone. Each counts, unless the next finds
// that it got the item further: an item that kills its workers is parked after as
// many as its stage allows. A worker whose heartbeats went on for twice their interval
// and never named the item does not know of it: the answer to its claim was lost, and
// the attempt does not count. It finds them by work_items_lease, from where the last
// round ended, so that it does not walk the dead entries of leases long over.
const reapSQL = `
WITH dead AS MATERIALIZED (
	SELECT w.id, w.claim_token, w.entered_token, w.worker AS of_worker, n.attempt,
		CASE WHEN unaware.is THEN 'unaware' ELSE coalesce(p.ending, 'silent') END AS ending,
		n.attempt >= m.most AND NOT unaware.is AS parks,
		CASE WHEN unaware.is THEN '0' ELSE backoff_of(s, n.attempt) END AS backoff
	FROM (SELECT DISTINCT stage FROM stage_settings) st
	CROSS JOIN LATERAL (
		SELECT * FROM work_items w
		WHERE w.status = 'Started' AND w.stage = st.stage AND /* which */
		ORDER BY w.lease_expires_at
		LIMIT $1
		FOR UPDATE SKIP LOCKED
	) w
	JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
	LEFT JOIN worker_processes p ON p.worker = w.worker
	CROSS JOIN LATERAL (
		SELECT coalesce(($3::int[])[array_position($4::text[], CASE w.action WHEN 'Ingest' THEN w.stage ELSE w.action END)], s.max_attempts) AS most
	) m
	CROSS JOIN LATERAL (
		SELECT EXISTS (
			SELECT FROM work_item_attempts a
			WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token
			  AND a.heard_at < a.claimed_at + interval '100 microseconds' AND p.heard_at > a.claimed_at + 2 * p.heartbeat) AS is
	) unaware
	CROSS JOIN LATERAL (
		SELECT CASE WHEN unaware.is THEN w.attempt - 1 WHEN w.attempt < m.most THEN w.attempt
			ELSE least(w.attempt, 1 + failed_attempts(w.id, w.entered_token, w.claim_token))::int END AS attempt
	) n
	LIMIT $1
), told AS MATERIALIZED (
	SELECT dead.*,
		coalesce(nullif(hand.file, ''), a.file_in_hand) AS file,
		CASE dead.ending
			WHEN 'oom'    THEN 'The worker ' || of_worker || ' ran out of memory and was killed while it worked on this stage.'
			WHEN 'killed' THEN 'The worker ' || of_worker || ' was killed while it worked on this stage.'
			WHEN 'panic'  THEN 'The worker ' || of_worker || ' crashed while it worked on this stage' || coalesce(': ' || said.words, '') || '.'
			WHEN 'unaware' THEN 'The worker ' || of_worker || ' did not receive the answer to its claim.'
			ELSE 'The worker ' || of_worker || ' was not heard of any more while it worked on this stage.'
		END AS what,
		least(dead.attempt, 1 + failed_attempts(dead.id, dead.entered_token, dead.claim_token, '{lease expired,killed,oom,panic}')) AS kills
	FROM dead
	JOIN work_item_attempts a ON a.work_item_id = dead.id AND a.claim_token = dead.claim_token
	LEFT JOIN unnest($5::bigint[], $6::text[]) AS hand (item, file) ON hand.item = dead.id
	LEFT JOIN unnest($7::text[], $8::text[]) AS said (worker, words) ON said.worker = dead.of_worker
), moved AS (
	UPDATE work_items w SET
		status             = CASE WHEN parks THEN 'Suspended' ELSE 'Pending' END,
		claim_token        = w.claim_token + 1,
		attempt            = told.attempt,
		run_at             = now() + CASE WHEN parks THEN '0' ELSE backoff END,
		lease_expires_at   = NULL,
		node               = NULL,
		pid                = NULL,
		worker             = NULL,
		retry              = NOT parks,
		needs_admin_review = parks,
		error_code         = CASE told.ending WHEN 'oom' THEN 'oom' WHEN 'killed' THEN 'killed' WHEN 'panic' THEN 'panic' WHEN 'unaware' THEN 'claim-lost' ELSE 'lease-expired' END,
		note               = told.what
			|| CASE WHEN told.file <> '' THEN ' The file in hand was ' || told.file || '.' ELSE '' END
			|| CASE WHEN NOT parks THEN '' ELSE ' Will not retry: failed ' || told.attempt || ' times, and '
				|| kills || CASE kills WHEN 1 THEN ' worker' ELSE ' workers' END || ' ended so. Interim processing data persists.' END,
		updated_at         = now()
	FROM told
	WHERE w.id = told.id
	RETURNING w.id, w.action, w.stage, w.size_band, w.priority, w.turn, w.note, w.error_code, w.status,
		told.attempt, told.claim_token AS held, told.ending, told.what, told.file
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), error = moved.what, error_code = moved.error_code, file_in_hand = moved.file,
		outcome = CASE moved.ending WHEN 'oom' THEN 'oom' WHEN 'killed' THEN 'killed' WHEN 'panic' THEN 'panic' ELSE 'lease expired' END
	FROM moved
	WHERE a.work_item_id = moved.id AND a.claim_token = moved.held
), retried AS (
	INSERT INTO topic_retries (topic, work_item_id)
	SELECT s.topic, moved.id FROM moved JOIN stage_settings s ON s.action = moved.action AND s.stage = moved.stage
	WHERE moved.status = 'Pending'
)
SELECT id, action, stage, size_band, priority, turn, note, error_code, status, attempt FROM moved`

// Which attempts a round ends: those whose lease lapsed not longer ago than a
// time, or those of workers that are known to be dead, however long their leases
// would last.
const (
	lapsedSQL = `w.lease_expires_at >= now() - $2::interval AND w.lease_expires_at < now()`
	ofDeadSQL = `w.worker = ANY ($2::text[])`
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
	rows, _ := p.upkeep.Query(ctx, `
		SELECT worker, node, pid, pid_started, cgroup, oom_kills
		FROM worker_processes WHERE host = $1 AND worker <> $2 AND ended_at IS NULL`, self.host, self.worker)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o process, err error) {
		err = row.Scan(&o.worker, &o.node, &o.pid, &o.started, &o.cgroup, &o.oomKills)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the workers of this host: %w", err)
	}
	return list, nil
}

// silentSQL ends the rows of processes that nothing was heard of for longer than
// any of their leases. One that is heard of again says so with its heartbeat.
const silentSQL = `
UPDATE worker_processes SET ended_at = now(), ending = 'silent'
WHERE ended_at IS NULL AND heard_at < now() - 6 * heartbeat`

// reap ends no lease if the clock was set forward since the reaper was heard of last:
// so have the leases of the living lapsed, who renew them within a heartbeat.
// unfinishedSQL leaves a dead worker to the next round of which an item is locked: the
// server may still be at its last heartbeat, and what it had in hand is known by its
// name.
const unfinishedSQL = `
UPDATE worker_processes p SET ended_at = NULL, ending = NULL
WHERE p.worker = ANY ($1) AND EXISTS (SELECT FROM work_items w WHERE w.status = 'Started' AND w.worker = p.worker)`

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
		if len(r.dead) > 0 {
			_, err := tx.Exec(ctx, `
				UPDATE worker_processes p SET ended_at = now(), ending = d.ending
				FROM unnest($1::text[], $2::text[]) AS d (worker, ending)
				WHERE p.worker = d.worker AND p.ended_at IS NULL`, n.workers, n.endings)
			if err != nil {
				return err
			}
			if list, err = reapIn(ctx, tx, ofDeadSQL, most, n.workers, n); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, unfinishedSQL, n.workers); err != nil {
				return err
			}
		}
		if ago != nil && !r.sent.IsZero() && *ago > time.Since(r.sent)+clockSlack {
			busy = true
			return nil
		}
		if _, err := tx.Exec(ctx, silentSQL); err != nil {
			return err
		}
		lapsed, err := reapIn(ctx, tx, lapsedSQL, most-len(list), r.since, n)
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

// reapSingly is reap where the database refused a page: what of it can be ended
// is, and the rest is told of.
func (p *postgres) reapSingly(ctx context.Context, most int, r round) ([]reaped, bool, error) {
	n := newNews(r.dead, r.attempts)
	rows, _ := p.upkeep.Query(ctx, `
		SELECT id FROM work_items w
		WHERE status = 'Started' AND (`+lapsedSQL+` OR worker = ANY ($1::text[]))
		ORDER BY lease_expires_at LIMIT 1000`, n.workers, r.since)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, false, fmt.Errorf("list the claims of workers that are gone: %w", err)
	}
	var list []reaped
	var errs []error
	for _, id := range ids {
		one, err := reapIn(ctx, p.upkeep, `w.id = $2::bigint`, 1, id, n)
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

func reapIn(ctx context.Context, db querier, which string, most int, arg any, n news) ([]reaped, error) {
	rows, _ := db.Query(ctx, strings.Replace(reapSQL, "/* which */", which, 1),
		max(most, 0), arg, n.attempts, n.stages, n.items, n.files, n.workers, n.words)
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
