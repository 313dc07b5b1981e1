package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// watched is a queue with two engines and their metrics.
type watched struct {
	t       testing.TB
	db      *pgxpool.Pool
	figures *Queue
	metrics *Work
	engines []*claim.Engine
	bags    int
}

func newWatched(t testing.TB) *watched {
	t.Helper()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	w := &watched{t: t, db: db, metrics: NewWork()}
	for range 2 {
		o := claim.DefaultOptions()
		o.Observer, o.Log = w.metrics, slog.New(slog.DiscardHandler)
		e := must.Get(claim.New(t.Context(), db, o))(t)
		t.Cleanup(e.Close)
		w.engines = append(w.engines, e)
	}
	w.figures = must.Get(NewQueue(t.Context(), "test", settings.Database{URL: storage.Secret(url)}, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(w.figures.Close)
	w.figures.fresh, w.figures.most = 0, testenv.Patience
	w.metrics.Registry.MustRegister(w.figures, NewLeases(w.engines[0]))
	w.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	return w
}

func (w *watched) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *watched) put(stage string) {
	w.t.Helper()
	w.bags++
	w.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', $1, $2, 'receiving', 'e', 1, now() FROM institutions`, stage, fmt.Sprintf("%d.tar", w.bags))
}

// claim takes what an engine gets of a stage.
func (w *watched) claim(engine int, stage string, most int) (holds []*claim.Hold) {
	w.t.Helper()
	items := must.Get(w.engines[engine].Claim(w.t.Context(), claim.Filter{Stages: []claim.Want{{Stage: registry.Stage(stage), Most: most}}}, most))(w.t)
	for _, item := range items {
		holds = append(holds, w.engines[engine].Hold(w.t.Context(), item))
	}
	return holds
}

func (w *watched) settle(h *claim.Hold, next string, result error) {
	w.t.Helper()
	if err := h.Settle(w.t.Context(), claim.Done{Next: registry.Stage(next)}, result); err != nil && !errors.Is(err, claim.ErrLost) {
		w.t.Fatal(err)
	}
}

// scraped is what Prometheus gets: each sample by its name and labels.
func (w *watched) scraped() map[string]float64 {
	w.t.Helper()
	return gathered(w.t, w.metrics.Registry)
}

func gathered(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families := must.Get(from.Gather())(t)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				all[name] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				all[name] = m.GetCounter().GetValue()
			default:
				all[name] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}

// sum adds up the samples of a metric.
func sum(all map[string]float64, metric string) (n float64) {
	for name, v := range all {
		if name == metric || strings.HasPrefix(name, metric+" ") {
			n += v
		}
	}
	return n
}

// table reads rows of a name and a number, as scraped has them.
func (w *watched) table(metric, sql string) map[string]float64 {
	w.t.Helper()
	rows, _ := w.db.Query(w.t.Context(), sql)
	all := map[string]float64{}
	var name string
	var n float64
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { all[metric+" "+name] = n; return nil }); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// only keeps the samples of a metric that are not 0.
func only(all map[string]float64, metric string) map[string]float64 {
	kept := map[string]float64{}
	for name, v := range all {
		if strings.HasPrefix(name, metric+" ") && v != 0 {
			kept[name] = v
		}
	}
	return kept
}

// Whatever becomes of items, the number of failed ones is that of the view at
// each moment; and what the engines counted is what the ledger says.
func TestFailedItemsAreCountedAtAllTimes(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.exec(`UPDATE stage_settings SET max_attempts = 2`)
	stages := []string{"Receive", "Validate", "Cleanup"}
	results := []error{
		nil, nil, nil, errors.New("transient"), claim.Fatal("bad", "a bad bag"), claim.Suspend("ask", "a person decides"),
		claim.Release("stopped"), claim.Snooze(time.Hour, "later"), claim.SendBack("Receive", "gone"), claim.Cancel("gone", "not wanted"),
	}
	byHand := []string{
		`UPDATE work_items SET status = 'Failed' WHERE id = (SELECT min(id) FROM work_items WHERE retry)`,
		`UPDATE work_items SET status = 'Suspended' WHERE id = (SELECT max(id) FROM work_items WHERE retry)`,
		`UPDATE work_items SET status = 'Cancelled' WHERE id = (SELECT min(id) FROM work_items WHERE status IN ('Failed', 'Suspended'))`,
		`SELECT requeue(id) FROM work_items WHERE status IN ('Failed', 'Suspended') LIMIT 1`,
		`SELECT cancel(min(id)) FROM work_items WHERE retry HAVING count(*) > 0`,
		`SELECT release(min(id)) FROM work_items WHERE status = 'Started' HAVING count(*) > 0`,
		`UPDATE work_items SET needs_admin_review = false WHERE needs_admin_review`,
	}
	step := map[string]func(*rapid.T){
		"put": func(r *rapid.T) { w.put(rapid.SampledFrom(stages).Draw(r, "stage")) },
		"work": func(r *rapid.T) {
			w.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending' AND waits_for IS NULL`)
			stage := rapid.IntRange(0, 2).Draw(r, "stage")
			for _, h := range w.claim(rapid.IntRange(0, 1).Draw(r, "engine"), stages[stage], 2) {
				w.settle(h, append(stages, "")[stage+1], rapid.SampledFrom(results).Draw(r, "result"))
			}
		},
		"crash": func(r *rapid.T) {
			for _, h := range w.claim(0, rapid.SampledFrom(stages).Draw(r, "stage"), 2) {
				h.Abandon()
			}
			w.exec(`UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE status = 'Started'`)
			must.Get(w.engines[1].Reap(context.Background()))(r)
		},
		"late": func(r *rapid.T) {
			for _, h := range w.claim(0, "Receive", 1) {
				w.exec(`SELECT requeue($1)`, h.Item.ID)
				w.settle(h, "Validate", nil)
			}
		},
		"hand": func(r *rapid.T) { w.exec(rapid.SampledFrom(byHand).Draw(r, "change")) },
		"archive": func(r *rapid.T) {
			must.Get(w.engines[0].Archive(context.Background(), 0))(r)
		},
	}
	names := []string{"archive", "crash", "hand", "late", "put", "put", "work", "work"}
	steps := 0
	rapid.Check(t, func(r *rapid.T) {
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			step[rapid.SampledFrom(names).Draw(r, "step")](r)
			steps++
			want := w.table("", `SELECT 'failed', count(*) FROM failed UNION ALL
				SELECT 'ended badly', count(*) FROM all_work_items WHERE status IN ('Failed', 'Suspended')`)
			all := w.scraped()
			if all["farol_database_up"] != 1 {
				r.Fatal("the database gave no figures")
			}
			if got := sum(all, "farol_failed_items"); got != want[" failed"] || got != want[" ended badly"] {
				r.Fatalf("farol_failed_items is %v; the view and the items have %v", got, want)
			}
		}
	})
	all := w.scraped()
	want := w.table("farol_attempts_total", `SELECT outcome || ' ' || stage, count(*) FROM attempts a
		WHERE outcome IS NOT NULL AND (outcome <> 'cancelled' OR error_code = 'gone') AND error_code <> 'by-hand'
		AND NOT (outcome = 'released' AND error <> 'stopped') GROUP BY 1`)
	if diff := cmp.Diff(want, only(all, "farol_attempts_total")); diff != "" {
		t.Errorf("attempts by outcome, in the ledger (-) and as counted (+):\n%s", diff)
	}
	for _, metric := range []string{"farol_failed_completely_total", "farol_succeeded_after_retries_total", "farol_leases_lost_total"} {
		if sum(all, metric) == 0 {
			t.Errorf("%d steps, and %s is 0", steps, metric)
		}
	}
	if held := sum(all, "farol_leases_held"); held != 0 {
		t.Errorf("%v leases are held, all were settled", held)
	}
}

// What failed completely and what came well after retries are two counts, in the
// metrics as in the view.
func TestRetriesAndFailuresAreTwoCounts(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	run := func(results ...error) {
		t.Helper()
		w.put("Receive")
		for _, result := range results {
			w.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
			for _, h := range w.claim(0, "Receive", 1) {
				if held := sum(w.scraped(), "farol_leases_held"); held != 1 {
					t.Errorf("%v leases are held, want 1", held)
				}
				w.settle(h, "Validate", result)
			}
		}
	}
	transient := errors.New("transient")
	run(nil)
	run(claim.Release("stopped"), claim.Snooze(time.Hour, "later"), nil)
	run(transient, nil)
	run(transient, claim.Release("stopped"), transient, nil)
	run(transient, transient, transient)
	run(claim.Fatal("bad", "a bad bag"))
	w.put("Receive")
	w.claim(1, "Receive", 1)[0].Abandon()
	w.exec(`UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE status = 'Started'`)
	if n, err := w.engines[0].Reap(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	w.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
	w.settle(w.claim(1, "Receive", 1)[0], "Validate", nil)

	all := w.scraped()
	for metric, column := range map[string]string{
		"farol_succeeded_after_retries_total": "succeeded_after_retries", "farol_failed_completely_total": "failed_completely",
	} {
		want := w.table(metric, `SELECT stage, `+column+` FROM outcomes WHERE action = 'Ingest' AND stage <> 'all' AND `+column+` > 0`)
		if diff := cmp.Diff(want, only(all, metric)); diff != "" || len(want) != 1 {
			t.Errorf("%s, in the view (-) and as counted (+):\n%s", metric, diff)
		}
	}
	if all["farol_claim_seconds"] != 16 || all["farol_settle_seconds"] != 15 || all["farol_claimed_items_total"] != 16 {
		t.Errorf("%v claims of %v items, %v settled", all["farol_claim_seconds"], all["farol_claimed_items_total"], all["farol_settle_seconds"])
	}
}

// However many scrape, the database is asked once in a while, by one connection,
// and for no longer than it may take.
func TestScrapesDoNotHammerTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.put("Store")
	w.figures.fresh = time.Hour
	var scrapes sync.WaitGroup
	for range 50 {
		scrapes.Go(func() {
			if got := gathered(t, w.metrics.Registry)["farol_queue_items Ingest 0 Store due"]; got != 1 {
				t.Errorf("%v items are due at Store, want 1", got)
			}
		})
		scrapes.Go(func() { // as the canary does
			if _, err := w.figures.Registry.Oldest(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	scrapes.Wait()
	first := w.figures.at
	w.put("Store")
	if got := w.scraped()["farol_queue_items Ingest 0 Store due"]; got != 1 || w.figures.at != first {
		t.Errorf("%v items: the database was asked again", got)
	}
	conns := w.table("", `SELECT 'of ours', count(*) FROM pg_stat_activity WHERE application_name = 'farol-test-metrics' AND datname = current_database()`)
	if conns[" of ours"] != 1 {
		t.Errorf("%v connections, want 1", conns[" of ours"])
	}

	w.figures.fresh, w.figures.most = 0, 100*time.Millisecond
	tx := must.Get(w.db.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), `LOCK TABLE work_items`))(t)
	all := w.scraped()
	if up, ok := all["farol_database_up"]; !ok || up != 0 || len(only(all, "farol_queue_items")) > 0 || all["farol_database_look_seconds"] > 2 {
		t.Errorf("of a database that does not answer: %v, %v seconds, %v", up, all["farol_database_look_seconds"], only(all, "farol_queue_items"))
	}
	must.Do(t, tx.Rollback(t.Context()))
	w.figures.most = testenv.Patience
	if all := w.scraped(); all["farol_database_up"] != 1 || all["farol_queue_items Ingest 0 Store due"] != 2 {
		t.Errorf("when it answers again: %v, %v items", all["farol_database_up"], all["farol_queue_items Ingest 0 Store due"])
	}
}

// An old snapshot is reported once, again after a while, and when it is gone.
func TestCanaryWarnsOfOldSnapshots(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	c := canary{log: slog.New(slog.NewTextHandler(&said, nil)), warned: map[string]time.Time{}}
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		list  []record.SnapshotView
		want  []string
	}{
		{0, []record.SnapshotView{{Kind: "transaction", Seconds: 60}, {Kind: "slot"}}, nil},
		{
			time.Second,
			[]record.SnapshotView{{Kind: "transaction", Seconds: 61, Name: "process 7", Transactions: 9}, {Kind: "slot"}},
			[]string{`level=WARN`, `kind=transaction`, `held_by="process 7"`, `age=1m1s`, `transactions=9`},
		},
		{time.Minute, []record.SnapshotView{{Kind: "transaction", Seconds: 121}, {Kind: "slot"}}, nil},
		{time.Minute, []record.SnapshotView{{Kind: "transaction", Seconds: 181}, {Kind: "slot", Seconds: 70, Name: "lagging"}}, []string{`held_by=lagging`}},
		{9 * time.Minute, []record.SnapshotView{{Kind: "transaction", Seconds: 800}, {Kind: "slot", Seconds: 610}}, []string{`age=13m20s`}},
		{time.Second, []record.SnapshotView{{Kind: "transaction"}, {Kind: "slot", Seconds: 611}}, []string{`level=INFO`, `kind=transaction`}},
		{time.Second, []record.SnapshotView{{Kind: "transaction"}, {Kind: "slot", Seconds: 612}}, nil},
	} {
		said.Reset()
		now = now.Add(step.after)
		c.observe(t.Context(), step.list, now)
		missing := slices.ContainsFunc(step.want, func(part string) bool { return !strings.Contains(said.String(), part) })
		if missing || strings.Count(said.String(), "\n") != min(1, len(step.want)) {
			t.Errorf("step %d: said %q, want %q", i, said.String(), step.want)
		}
	}
}
