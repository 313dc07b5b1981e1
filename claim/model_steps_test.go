package claim_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

var modelSteps = flag.Int("model.steps", testenv.Soak(100_000), "how many steps of the model are compared with PostgreSQL")

// modelLanes is how many models run at once, each on a database of its own.
const modelLanes = 4

// Whatever workers and people do, in whatever order, and however late: claims
// take exactly what is first in line, only the latest claim of an item can write,
// and the rows, the ledger and the topic log are what the model says.
func TestQueueDoesWhatItsModelSays(t *testing.T) {
	t.Parallel()
	var steps atomic.Int64
	t.Run("lanes", func(t *testing.T) {
		for lane := range modelLanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				bench := newModelBench(t, &steps)
				for steps.Load() < int64(*modelSteps) && !t.Failed() {
					rapid.Check(t, bench.check)
				}
			})
		}
	})
	testenv.Soaked(t, int(steps.Load()), "random steps compared with the model of the queue")
}

// modelBench is a database and two processes at work on it.
type modelBench struct {
	*queue

	engines [2]*claim.Engine
	steps   *atomic.Int64
	runs    int
}

func newModelBench(t *testing.T, steps *atomic.Int64) *modelBench {
	t.Helper()
	q := &queue{t, newQueue(t).db}
	q.exec(`DELETE FROM institutions`)
	for _, name := range []string{"a.edu", "b.edu"} {
		q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ($1, $1, 'in.' || $1, 'out.' || $1)`, name)
	}
	q.exec(`DELETE FROM size_bands WHERE band > 1`)
	q.exec(`UPDATE stage_settings SET backoff_first = '1 hour', backoff_most = '2 hours', lease = '1 day'`)
	b := &modelBench{queue: q, steps: steps}
	quiet := func(o *claim.Options) { o.Log = slog.New(slog.DiscardHandler) }
	b.engines[0] = q.engine(quiet)
	b.engines[1] = q.engine(quiet, func(o *claim.Options) { o.MaxAttempts = map[string]int{"Validate": 2} })
	return b
}

// empty makes the database what it was at first. Deleting is the quicker way to
// it, as long as what is dead does not pile up.
func (b *modelBench) empty() {
	if b.runs++; b.runs%50 == 1 {
		testenv.Scene(b.t, b.db, `TRUNCATE work_items, work_item_attempts, work_item_audit, topic_messages, uploads_in_work, institution_virtual_times,
			worker_processes, work_items_archive, work_item_attempts_archive, retired_copies`)
	} else {
		testenv.Scene(b.t, b.db, emptySQL)
	}
	b.exec(`UPDATE size_bands SET virtual_time = 0 WHERE virtual_time > 0`)
	b.exec(`UPDATE stage_settings SET paused = false, cap = CASE stage WHEN 'Record' THEN 2 END WHERE paused OR cap <> 2`)
}

const emptySQL = `
WITH a AS (DELETE FROM work_items), b AS (DELETE FROM work_item_attempts), c AS (DELETE FROM work_item_audit),
	d AS (DELETE FROM topic_messages), e AS (DELETE FROM uploads_in_work), f AS (DELETE FROM institution_virtual_times),
	g AS (DELETE FROM worker_processes), h AS (DELETE FROM work_items_archive), i AS (DELETE FROM work_item_attempts_archive)
SELECT`

// modelRun is one sequence of steps.
type modelRun struct {
	*modelBench
	*model

	t    *rapid.T
	held [2]map[int64]*modelClaim // by item: what an engine renews
}

func (b *modelBench) check(t *rapid.T) {
	if b.steps.Load() >= int64(*modelSteps) {
		return
	}
	b.empty()
	r := &modelRun{modelBench: b, model: newModel(), t: t, held: [2]map[int64]*modelClaim{{}, {}}}
	for _, e := range b.engines {
		e.Reset()
		e.DropAll()
	}
	names, steps := r.repertoire()
	t.Repeat(map[string]func(*rapid.T){
		"step": func(t *rapid.T) {
			steps[rapid.SampledFrom(names).Draw(t, "step")](t)
			b.steps.Add(1)
		},
		"": func(*rapid.T) { r.compare("rows", rowsSQL, r.rows()) },
	})
	r.compare("ledger", ledgerSQL, r.ledger())
}

// repertoire lists the steps by name, and the names as often as each is to be
// done.
func (r *modelRun) repertoire() (names []string, steps map[string]func(*rapid.T)) {
	steps = map[string]func(*rapid.T){}
	for _, s := range []struct {
		often int
		name  string
		do    func(*rapid.T)
	}{
		{5, "arrives", r.arrives},
		{14, "claims", r.claims},
		{10, "settles", r.settles},
		{8, "carries", r.carries},
		{3, "time passes", r.timePasses},
		{2, "lapses", r.lapses},
		{2, "reaps", r.reaps},
		{2, "beats", r.beats},
		{4, "types", r.types},
		{2, "requeues", r.requeues},
		{1, "cancels", r.cancels},
		{2, "ranks", r.ranks},
		{1, "resizes", r.resizes},
		{1, "pauses", r.pauses},
		{1, "caps", r.caps},
		{1, "serves", r.serves},
		{1, "archives", r.archives},
	} {
		names = append(names, slices.Repeat([]string{s.name}, s.often)...)
		steps[s.name] = s.do
	}
	return names, steps
}

const rowsSQL = `
SELECT coalesce(string_agg(concat(id, ' ', stage, '|', status, '|', claim_token, ' ', entered_token, ' ', attempt, ' ', priority, ' ',
	size_band, ' ', virtual_start, ' ', retry::text, ' ', needs_admin_review::text, ' ',
	CASE WHEN waits_for IS NOT NULL THEN concat('behind ', waits_for, ' ')
		WHEN run_at > now() THEN concat('in ', round(extract(epoch FROM run_at - updated_at) / 3600), ' ') END,
	CASE WHEN status = 'Started' THEN concat(CASE WHEN lease_expires_at < now() THEN 'lapsed of ' ELSE 'held by ' END,
		array_position($1, worker) - 1, ' ') END,
	error_code, '|', E'\n'), '' ORDER BY id), '') FROM work_items`

const ledgerSQL = `
SELECT concat(
	(SELECT string_agg(concat(work_item_id, ' ', claim_token, ' ', stage, ' ', attempt, ' by ', array_position($1, worker) - 1, ': ',
		outcome, ' ', CASE WHEN outcome IS NOT NULL THEN regexp_replace(error_code, '^(lease-lost|clock-set)$', 'lease-expired') END, E'\n'), ''
		ORDER BY work_item_id, claim_token) FROM attempts),
	(SELECT string_agg(concat(topic, ' ', body, E'\n'), '' ORDER BY topic COLLATE "C", body COLLATE "C") FROM topic_messages),
	(SELECT string_agg(concat('live ', work_item_id, E'\n'), '' ORDER BY work_item_id) FROM uploads_in_work),
	(SELECT string_agg(concat('archived ', id, E'\n'), '' ORDER BY id) FROM work_items_archive),
	(SELECT count(*) FROM work_item_audit), ' changes')`

// compare fails the test if the database and the model differ.
func (r *modelRun) compare(what, sql, want string) {
	workers := []string{r.engines[0].Worker(), r.engines[1].Worker()}
	var got string
	if err := r.db.QueryRow(context.Background(), sql, workers).Scan(&got); err != nil {
		r.t.Fatalf("read the %s: %v", what, err)
	}
	if got != want {
		r.t.Fatalf("%s (-model +database):\n%s", what, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// do runs a statement that the database may refuse, and reports whether it did.
func (r *modelRun) do(t *rapid.T, sql string, args ...any) (ok bool) {
	_, err := r.db.Exec(context.Background(), sql, args...)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23514" || pg.Code == "23505") {
		return false
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return true
}

func (r *modelRun) must(t *rapid.T, sql string, args ...any) {
	if !r.do(t, sql, args...) {
		t.Fatalf("%s was refused", sql)
	}
}

// pick draws one of the items that a condition holds for; nil if there is none.
func (r *modelRun) pick(t *rapid.T, cond func(*modelItem) bool) *modelItem {
	var list []*modelItem
	for _, i := range r.items {
		if cond(i) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(t, "item")]
}

func anyItem(*modelItem) bool { return true }

func (r *modelRun) arrives(t *rapid.T) {
	if len(r.live("a.edu/x"))+len(r.live("a.edu/y"))+len(r.live("b.edu/x"))+len(r.live("b.edu/y")) > 8 {
		return
	}
	i := modelItem{
		institution: rapid.SampledFrom([]string{"a.edu", "b.edu"}).Draw(t, "institution"),
		name:        rapid.SampledFrom([]string{"x.tar", "y.tar", "y.b01.of02.tar"}).Draw(t, "name"),
		etag:        rapid.SampledFrom([]byte("efg")).Draw(t, "etag"),
		stage:       rapid.SampledFrom([]registry.Stage{"Receive", "Receive", "Validate", "Store", "Record", "Cleanup"}).Draw(t, "stage"),
		size:        modelSmall,
	}
	if rapid.IntRange(0, 2).Draw(t, "size") == 0 {
		i.size, i.band = modelLarge, 1
	}
	err := r.db.QueryRow(context.Background(), `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', $2, $3, receiving_bucket, repeat($4, 32), $5, now() FROM institutions WHERE identifier = $1 RETURNING id`,
		i.institution, i.stage, i.name, string(i.etag), i.size).Scan(&i.id)
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.Code == "23505"
	if err != nil && !refused {
		t.Fatal(err)
	}
	if added := r.insert(i); (added == nil) != refused {
		t.Fatalf("insert: %v, the model says refused = %v", err, added == nil)
	} else if added != nil {
		r.messages = append(r.messages, fmt.Sprintf("%s %d", topicOf(i.stage), i.id))
	}
}

func (r *modelRun) timePasses(t *rapid.T) {
	r.clock++
	all := rapid.Bool().Draw(t, "all")
	i := r.pick(t, func(i *modelItem) bool { return i.delay > 0 })
	if i == nil {
		return
	}
	for _, o := range r.items {
		if o.delay > 0 && (all || o == i) {
			r.due(o)
		}
	}
	testenv.Scene(r.queue.t, r.db, `UPDATE work_items SET run_at = now() WHERE run_at > now() AND waits_for IS NULL AND ($1 OR id = $2)`, all, i.id)
}

func (r *modelRun) lapses(t *rapid.T) {
	if i := r.pick(t, func(i *modelItem) bool { return i.status == "Started" }); i != nil {
		i.lapsed = true
		if c := r.latest(i); c.held {
			c.hold.Stand()
		}
		testenv.Scene(r.queue.t, r.db, `UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE id = $1`, i.id)
	}
}

func (r *modelRun) reaps(t *rapid.T) {
	engine := rapid.IntRange(0, 1).Draw(t, "engine")
	n, err := r.engines[engine].Reap(context.Background())
	if want := r.reap(engine); err != nil || n != want {
		t.Fatalf("reaped %d, %v; want %d", n, err, want)
	}
}

// beats renews the leases of one process, and takes from it what it has lost.
func (r *modelRun) beats(t *rapid.T) {
	engine := rapid.IntRange(0, 1).Draw(t, "engine")
	if err := r.engines[engine].Beat(context.Background()); err != nil {
		t.Fatalf("heartbeat: %v", err)
	}
	for id, c := range r.held[engine] {
		ours := c.item.token == c.of.Token
		if lost := errors.Is(context.Cause(c.hold.Context()), claim.ErrLost); lost == ours {
			t.Fatalf("item %d is lost: %v, want %v", id, lost, !ours)
		}
		if ours {
			c.item.lapsed = false
		} else {
			delete(r.held[engine], id)
		}
	}
}

func (r *modelRun) types(t *rapid.T) {
	i := r.pick(t, anyItem)
	if i == nil {
		return
	}
	stage, status := i.stage, i.status
	if rapid.Bool().Draw(t, "type a stage") {
		stage = rapid.SampledFrom(modelStages()).Draw(t, "stage")
	}
	if rapid.Bool().Draw(t, "type a status") {
		status = rapid.SampledFrom([]string{"Pending", "Pending", "Failed", "Suspended", "Cancelled", "Started", "Success"}).Draw(t, "status")
	}
	ok := r.do(t, `UPDATE work_items SET stage = $2, status = $3 WHERE id = $1`, i.id, stage, status)
	if want := r.byHand(i, stage, status); ok != want {
		t.Fatalf("typing %s, %s was allowed: %v, want %v", stage, status, ok, want)
	}
}

func (r *modelRun) requeues(t *rapid.T) {
	if i := r.pick(t, anyItem); i != nil {
		stage := rapid.SampledFrom(append(modelStages(), i.stage, i.stage)).Draw(t, "stage")
		ok := r.do(t, `SELECT requeue($1, $2)`, i.id, stage)
		if i.status == "Pending" && stage == i.stage {
			r.hurries(i)
		}
		if want := r.byHand(i, stage, "Pending"); ok != want {
			t.Fatalf("requeue to %s was allowed: %v, want %v", stage, ok, want)
		}
	}
}

// hurries has a queued item tried now, with all its attempts ahead.
func (r *modelRun) hurries(i *modelItem) {
	if i.delay == 0 && i.attempt == 0 {
		return
	}
	r.changes++
	if i.attempt > 0 {
		i.attempt = 0
		i.token++
	}
	if i.delay > 0 { // it goes behind what is due already
		r.clock++
		r.due(i)
	}
}

func (r *modelRun) cancels(t *rapid.T) {
	if i := r.pick(t, anyItem); i != nil {
		ok := r.do(t, `SELECT cancel($1)`, i.id)
		if want := r.byHand(i, i.stage, "Cancelled"); ok != want {
			t.Fatalf("cancel was allowed: %v, want %v", ok, want)
		}
	}
}

func (r *modelRun) ranks(t *rapid.T) {
	if i := r.pick(t, func(i *modelItem) bool { return i.retry }); i != nil {
		if priority := rapid.Int16Range(-1, 1).Draw(t, "priority"); priority != i.priority {
			i.priority, i.virtualStart = priority, r.served[i.band]
			r.changes++
		}
		i.unseen = [2]bool{true, true}
		r.must(t, `UPDATE work_items SET priority = $2 WHERE id = $1`, i.id, i.priority)
	}
}

func (r *modelRun) resizes(t *rapid.T) {
	i := r.pick(t, func(i *modelItem) bool { return i.retry })
	if i == nil {
		return
	}
	r.must(t, `UPDATE work_items SET size = $2 WHERE id = $1`, i.id, modelSmall+modelLarge-i.size)
	i.size, i.band, i.unseen = modelSmall+modelLarge-i.size, 1-i.band, [2]bool{true, true}
	r.changes++
	r.takeTurn(i)
}

func (r *modelRun) pauses(t *rapid.T) {
	stage := rapid.SampledFrom(modelStages()).Draw(t, "stage")
	r.paused[stage] = !r.paused[stage]
	r.must(t, `UPDATE stage_settings SET paused = $2 WHERE action = 'Ingest' AND stage = $1`, stage, r.paused[stage])
}

func (r *modelRun) caps(t *rapid.T) {
	r.cap = rapid.IntRange(1, 3).Draw(t, "cap")
	r.must(t, `UPDATE stage_settings SET cap = $1 WHERE action = 'Ingest' AND stage = 'Record'`, r.cap)
}

// serves records in the database how far the virtual times have come, as processes do.
func (r *modelRun) serves(t *rapid.T) {
	for band, start := range r.taken {
		r.served[band] = max(r.served[band], start)
		r.must(t, `UPDATE size_bands SET virtual_time = greatest(virtual_time, $2) WHERE band = $1`, band, start)
	}
}

func (r *modelRun) archives(t *rapid.T) {
	i := r.pick(t, func(i *modelItem) bool { return !i.retry })
	if i == nil {
		return
	}
	r.must(t, `UPDATE work_items SET updated_at = now() - interval '2 days' WHERE id = $1`, i.id)
	want := 0
	if i.status == "Success" || i.status == "Cancelled" {
		want = 1
		r.archived = append(r.archived, i)
		r.items = slices.DeleteFunc(r.items, func(o *modelItem) bool { return o == i })
		slices.SortFunc(r.archived, func(a, b *modelItem) int { return int(a.id - b.id) })
	}
	if n, err := r.engines[0].Archive(context.Background(), 24*time.Hour); err != nil || n != want {
		t.Fatalf("archived %d, %v; want %d", n, err, want)
	}
}
