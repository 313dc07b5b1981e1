package main

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// plannedItems is enough for a plan to be killed in the middle of, again and
// again.
const plannedItems = 2000

// killsOfAPlan is how often one is killed at least while it is applied, or undone: each time a
// program starts again, which takes longer than all that it changes.
func killsOfAPlan() int { return max(2, testenv.Soak(10)) }

// Who applies a plan, or undoes it, may be killed at any moment and as often as
// one likes: another goes on, and each item is changed once.
func TestKilledPlanChangesEachItemOnce(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	for _, sql := range []string{
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) SELECT 'Test', n || '.edu', 'in-' || n, 'out-' || n FROM generate_series(1, 5) n`,
		fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT 1 + n %% 5, 'Ingest', 'Receive', n || '.tar', 'in', 'e', n, now() FROM generate_series(1, %d) n`, plannedItems),
		`UPDATE work_items SET stage = 'Store', status = 'Suspended', retry = false, needs_admin_review = true, claim_token = 7, entered_token = 5,
			attempt = 3, note = 'Note of ' || id, error_code = 'target-missing'`,
		`TRUNCATE topic_messages`,
		`ANALYZE`,
	} {
		must.Get(db.Exec(t.Context(), sql))(t)
	}
	binary, settings := testenv.Binary(t), map[string]string{"FAROL_DATABASE_URL": url}
	farol := func(args ...string) *process {
		return startProcess(t, binary, t.TempDir(), settings, args...)
	}
	if p := farol("plan", "requeue", "--status", "Suspended"); p.wait() != nil {
		t.Fatal(p.said())
	}
	stood := `SELECT md5(string_agg((to_jsonb(w) - '{claim_token,updated_at,virtual_start}'::text[])::text, ' ' ORDER BY id)) FROM work_items w`
	before := ask[string](t, db, stood)

	kills := 0
	for changes, verb := range []string{"apply", "undo"} {
		for done := 0; done < plannedItems; {
			p := farol("plan", verb, "1")
			least := min(done+plannedItems/(3*killsOfAPlan()), plannedItems)
			p.orEnds("more items than before", func() bool {
				done = noted(t, db, verb, changes)
				return done >= least
			})
			if p.running() {
				p.kill()
				kills++
			}
			done = noted(t, db, verb, changes)
		}
		if p := farol("plan", verb, "1"); p.wait() != nil {
			t.Fatal(p.said())
		}
		counts(t, db, map[string]int{
			`SELECT count(*) FROM work_item_audit`:                                                                                      plannedItems * (changes + 1),
			`SELECT min(n) FROM (SELECT count(*)::int AS n FROM work_item_audit GROUP BY work_item_id) c`:                               changes + 1,
			`SELECT count(*) FROM topic_messages`:                                                                                       plannedItems, // by the requeueing alone
			fmt.Sprintf(`SELECT count(*) FROM work_items WHERE claim_token = %d`, 8+changes):                                            plannedItems,
			fmt.Sprintf(`SELECT count(*) FROM plans WHERE state = '%s'`, map[string]string{"apply": "applied", "undo": "undone"}[verb]): 1,
		})
	}
	if after := ask[string](t, db, stood); after != before {
		t.Error("the items are not what they were")
	}
	t.Logf("killed %d times", kills)
	if want := 2 * killsOfAPlan(); kills < want {
		t.Errorf("it was killed %d times, want %d times or more", kills, want)
	}
}

// noted is how many items a plan has applied, or undone. At any moment the audit
// has as many changes, each item's once.
func noted(t *testing.T, db *pgxpool.Pool, verb string, earlier int) (n int) {
	t.Helper()
	state := map[string]string{"apply": "done", "undo": "undone"}[verb]
	var audited, most int
	must.Do(t, pgx.BeginTxFunc(t.Context(), db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM plan_items WHERE state = $1), count(*), coalesce(max(c.n), 0)
			FROM (SELECT count(*) AS n FROM work_item_audit GROUP BY work_item_id HAVING count(*) > $2) c`, state, earlier).Scan(&n, &audited, &most)
	}))
	if audited != n || most > earlier+1 {
		t.Fatalf("%d items are %s, and the audit has %d, one of them %d times", n, state, audited, most)
	}
	return n
}

// orEnds waits for what the process should bring about, or for its end.
func (p *process) orEnds(what string, cond func() bool) {
	p.t.Helper()
	testenv.Eventually(p.t, what, func() bool { return !p.running() || cond() })
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
