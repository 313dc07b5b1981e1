package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// told is the report of requeueing many, a line of text for each of its lines.
func (a *archive) told(filter, stage string, yes bool) []string {
	a.t.Helper()
	lines := must.Get(a.RequeueWhere(context.Background(), filter, registry.Stage(stage), yes))(a.t)
	var told []string
	for _, l := range lines {
		text := l.What
		if l.Count != nil {
			text += fmt.Sprint(" ", *l.Count)
		}
		if l.Item != nil {
			text += fmt.Sprint(" #", *l.Item)
		}
		if l.Reason != nil {
			text += " " + *l.Reason
		}
		told = append(told, text)
	}
	return told
}

// everyItem reports whether any of the items has changed.
func (a *archive) everyItem() string {
	a.t.Helper()
	return value[string](a, `SELECT md5(jsonb_agg(to_jsonb(w) ORDER BY id)::text) FROM work_items w`)
}

// twelve makes items 1 to 12: by threes Suspended and Failed at Store, Pending at
// Validate, and Cancelled.
func (a *archive) twelve() {
	a.t.Helper()
	for i := range 12 {
		a.upload(etag1, time.Now(), fmt.Sprintf("bag-%02d.tar", i+1))
	}
	a.exec(`UPDATE work_items SET claim_token = 3, entered_token = 3, stage = 'Store' WHERE id <= 6;
		UPDATE work_items SET claim_token = 3, entered_token = 3, stage = 'Validate' WHERE id > 6;
		UPDATE work_items SET status = 'Suspended', note = 'Storage is slow.' WHERE id <= 3;
		UPDATE work_items SET status = 'Failed', note = 'Storage denies access.' WHERE id BETWEEN 4 AND 6;
		UPDATE work_items SET status = 'Cancelled' WHERE id > 9`)
}

// A dry run reports what would happen and changes nothing; the run itself does just
// that, and what is refused does not stop it.
func TestRequeueWhereTellsFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.twelve()
	before := a.everyItem()
	want := []string{
		"would requeue 9",
		"change 3 #1 Suspended at Store",
		"change 3 #4 Failed at Store",
		"change 3 #7 Pending at Validate: in the queue already, and due at once",
		"refused 3 #10 it has ended (Cancelled): it cannot be changed",
		"sample #1 bag-01.tar of test.edu, 10 bytes: Storage is slow.",
		"sample #2 bag-02.tar of test.edu, 10 bytes: Storage is slow.",
		"sample #3 bag-03.tar of test.edu, 10 bytes: Storage is slow.",
		"sample #4 bag-04.tar of test.edu, 10 bytes: Storage denies access.",
		"sample #5 bag-05.tar of test.edu, 10 bytes: Storage denies access.",
	}
	if diff := cmp.Diff(want, a.told(`true`, "", false)); diff != "" {
		t.Errorf("a dry run tells (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"would requeue 6", "change 3 #1 Suspended at Store", "change 3 #4 Failed at Store",
		"refused 3 #7 it cannot be requeued to Store: it has only come to Validate", "refused 3 #10 it has ended (Cancelled): it cannot be changed",
	}, a.told(`true`, "Store", false)[:5]); diff != "" {
		t.Errorf("a dry run to Store tells (-want +got):\n%s", diff)
	}
	if got := a.told(`id = 5`, "Receive", false); got[1] != "change 1 #5 Failed at Store, to Receive" {
		t.Errorf("a dry run to Receive tells %q", got)
	}
	if got := a.told(`id > 99`, "", false); len(got) != 1 || got[0] != "would requeue 0" {
		t.Errorf("a filter that nothing fits tells %q", got)
	}
	a.exec(`SELECT requeue_where('true', dry_run => NULL)`) // not said is not meant
	if after := a.everyItem(); after != before {
		t.Error("a dry run changed something")
	}

	want[0] = "requeued 9"
	if diff := cmp.Diff(want[:5], a.told(`true`, "", true)[:5]); diff != "" {
		t.Errorf("the run tells (-want +got):\n%s", diff)
	}
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE id <= 6 AND status = 'Pending' AND stage = 'Store' AND retry AND note = 'Requeued for Store by ' || session_user`); n != 6 {
		t.Errorf("%d items are requeued, want 6", n)
	}
	if got := value[string](a, `SELECT string_agg(work_item_id::text, ' ' ORDER BY id) FROM work_item_audit WHERE after->>'note' LIKE 'Requeued%'`); got != "1 2 3 4 5 6" {
		t.Errorf("requeued on record are %s, want 1 to 6 in this order", got)
	}
	a.fit(t, "requeue_where")
}

// The running items among them are taken from their workers, as by requeue().
func TestRequeueWhereTakesWhatRuns(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.standing("Started")
	if got := a.told(`status = 'Started'`, "", false)[1]; got != "change 1 #1 Started at Store: its worker loses it" {
		t.Errorf("a dry run tells %q", got)
	}
	a.told(`status = 'Started'`, "Validate", true)
	if item := a.item(id); item.Stage != "Validate" || item.Status != "Pending" || item.Worker != nil {
		t.Errorf("item = %+v", item)
	}
	a.fit(t, "requeue_where")
}

// A filter is as safe as a SELECT that is typed: it is one condition, and nothing
// that it calls leaves a trace.
func TestFilterIsACondition(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.twelve()
	a.exec(`CREATE FUNCTION spoil(id bigint) RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN UPDATE work_items w SET note = 'spoilt' WHERE w.id = spoil.id; RETURN true; END $$`)
	a.exec(`CREATE TABLE witness (x int); CREATE FUNCTION sneak() RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO witness VALUES (1); RETURN true; END $$`)
	before := a.everyItem()
	for filter, want := range map[string]string{
		`true); DELETE FROM work_items; --`:                                 "syntax error",
		`true THEN true END; DELETE FROM work_items; SELECT CASE WHEN true`: "it has a second statement in it",
		`true); SELECT (true`:                                               "syntax error",
		`true;`:                                                             "syntax error",
		`E'\'' <> 'x')) i; DELETE FROM work_items; SELECT 'y' FROM (SELECT 1 WHERE (true AND 'z' = 'z'`: "syntax error",
		`true) UNION SELECT 1, (2`:     "syntax error",
		`true --`:                      "",
		`true /* `:                     "unterminated /* comment",
		`stage = Store`:                `column "store" does not exist`,
		`stage = 'Store' AND`:          "syntax error",
		`colour = 'red'`:               `column "colour" does not exist`,
		`1`:                            "must be type boolean",
		``:                             "the condition is empty",
		"  \t":                         "the condition is empty",
		`note = 'a;b' OR "note" = ';'`: "",
		`note = 'it''s; so'`:           "",
		`id IN (SELECT work_item_id FROM attempts)`: "",
		`spoil(id)`:                        "cannot execute UPDATE in a read-only transaction",
		`sneak()`:                          "cannot set transaction read-write mode",
		`(cancel(id)).id > 0`:              "in a read-only transaction",
		`nextval('work_items_id_seq') > 0`: "cannot execute nextval() in a read-only transaction",
		`EXISTS (WITH d AS (DELETE FROM work_items RETURNING id) SELECT FROM d)`: "must be at the top level",
		`id = 1/0`: "division by zero",
	} {
		for _, yes := range []bool{false, true} {
			_, err := a.RequeueWhere(context.Background(), filter, "", yes && want != "")
			switch {
			case want == "" && err == nil:
			case want == "" || !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), want):
				t.Errorf("%s: %v, want %q", filter, err, want)
			case strings.TrimSpace(filter) != "" && !strings.Contains(err.Error(), strings.ReplaceAll(strings.ReplaceAll(filter, "'", "''"), `\`, `\\`)):
				t.Errorf("%s: %v, which does not name the filter", filter, err)
			}
		}
	}
	if after := a.everyItem(); after != before {
		t.Error("a filter changed something")
	}
	testenv.Refused(t, a.db, "the condition is empty", `SELECT requeue_where(NULL)`)
	if left := value[bool](a, `WITH many AS MATERIALIZED (SELECT count(*) AS lines FROM requeue_where('set_config(''farol.left'', ''behind'', false) = ''behind'''))
		SELECT current_setting('farol.left', true) = 'behind' FROM many WHERE lines > 0`); left {
		t.Error("a filter leaves a setting behind")
	}
	a.exec(`BEGIN; SELECT requeue_where('true'); UPDATE work_items SET note = 'written after' WHERE id = 1; COMMIT`)
}

// What someone else has changed since it was found is left to them.
func TestRequeueWherePassesOverWhatHasChanged(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.twelve()
	ctx := context.Background()
	tx := must.Get(a.db.Begin(ctx))(t)
	defer tx.Rollback(ctx) //nolint:errcheck // it was committed, or the test has failed
	must.Get(tx.Exec(ctx, `UPDATE work_items SET status = 'Pending', stage = 'Validate' WHERE id = 2`))(t)
	told := make(chan []record.RequeueLine, 1)
	go func() {
		lines, err := a.RequeueWhere(ctx, `status = 'Suspended'`, "", true)
		if err != nil {
			t.Error(err)
		}
		told <- lines
	}()
	testenv.Eventually(t, "requeueing to end, or to stand behind the other", func() bool {
		return len(told) == 1 || value[bool](a, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	must.Do(t, tx.Commit(ctx))
	lines := <-told
	if len(lines) < 3 || *lines[0].Count != 2 || lines[2].What != "refused" || *lines[2].Item != 2 || *lines[2].Reason != "it has changed since the check" {
		t.Errorf("requeueing tells %+v", lines)
	}
	if item := a.item(2); item.Stage != "Validate" {
		t.Errorf("item 2 is at %s, want Validate, where the other put it", item.Stage)
	}
}

// An UPDATE that lacks its WHERE would requeue, or cancel, all there are.
func TestUpdateOfVeryManyIsRefused(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var keys []string
	for i := range 1001 {
		keys = append(keys, fmt.Sprintf("bag-%d.tar", i))
	}
	a.upload(etag1, time.Now(), keys...)
	before := a.everyItem()
	for _, typed := range []string{
		`UPDATE work_items SET status = 'Cancelled'`, `UPDATE work_items SET note = 'x'`, `UPDATE work_items SET priority = 1`,
		`SELECT cancel(id) FROM work_items`,
	} {
		_, err := a.db.Exec(context.Background(), typed)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, "more than 1000 items") || !strings.HasPrefix(refused.Hint, "Is its WHERE missing?") {
			t.Errorf("%s: %v, want a refusal that asks for the WHERE", typed, err)
		}
	}
	if after := a.everyItem(); after != before {
		t.Error("some items have changed")
	}
	for _, typed := range []string{
		`UPDATE work_items SET status = 'Suspended' WHERE id <= 1000`,
		`BEGIN; SET LOCAL farol.most_by_hand = 2000; UPDATE work_items SET status = 'Suspended' WHERE true; COMMIT`,
		`SELECT requeue_where('true', dry_run => false)`,
		`BEGIN; SELECT requeue_where('true', dry_run => false); ROLLBACK`,
		`UPDATE work_items SET status = 'Cancelled' WHERE id <= 1000`,
		`UPDATE work_items SET note = '' WHERE id = 1`,
	} {
		a.exec(typed)
		a.fit(t, typed)
	}
	if got := value[string](a, `WITH many AS MATERIALIZED (SELECT count(*) AS lines FROM requeue_where('true', dry_run => false))
		SELECT current_setting('farol.most_by_hand', true) FROM many WHERE lines > 0`); got != "" {
		t.Errorf("after requeueing many, %s may be typed at once", got)
	}
}

// A table that is empty when a plan is made may have a hundred thousand rows when
// the statement ends: what is done item by item goes by indexes all the same. A few
// scans are the filter's.
func TestManyComeAndAreRequeuedByIndexes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	scanned := func(sql string) {
		t.Helper()
		a.exec(`VACUUM ANALYZE uploads_in_work, objects_in_work, institution_virtual_times, work_items_archive`) // the planner knows now that they are empty
		tx := must.Get(a.db.Begin(t.Context()))(t)
		defer tx.Rollback(t.Context())
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var tables string
		must.Do(t, tx.QueryRow(t.Context(), `SELECT coalesce(string_agg(relname || ' ' || seq_scan, ', '), '') FROM pg_stat_xact_user_tables
			WHERE seq_scan > 5 AND relname IN ('work_items', 'uploads_in_work', 'objects_in_work', 'institution_virtual_times', 'work_items_archive')`).Scan(&tables))
		if tables != "" {
			t.Errorf("%s reads whole tables, so many times: %s", sql, tables)
		}
		must.Do(t, tx.Commit(t.Context()))
	}
	scanned(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Receive', n || '.tar', 'receiving', repeat('e', 32), 1, now()
		FROM (SELECT min(id) AS id FROM institutions) i, generate_series(1, 30) n`)
	scanned(`UPDATE work_items SET status = 'Suspended'`)
	scanned(`SELECT requeue_where('needs_admin_review', dry_run => true)`)
	scanned(`SELECT requeue_where('needs_admin_review', dry_run => false)`)
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Pending'`); n != 30 {
		t.Errorf("%d items are Pending, want 30", n)
	}
}
