package registry_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
)

// put makes an item of a bag, which the queue has brought to a stage and a status.
func (a *archive) put(bag, etag, stage, status string) int64 {
	a.t.Helper()
	id := value[int64](a, `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		VALUES ($1, 'Ingest', 'Receive', $2, 'receiving', $3, 1000, now()) RETURNING id`, a.in.ID, bag+".tar", etag)
	a.bring(id, stage, status)
	return id
}

// bring moves an item as the queue does, and leaves traces in all its columns.
func (a *archive) bring(id int64, stage, status string) {
	a.t.Helper()
	if stage == "Receive" && status == "Pending" {
		return
	}
	live := status == "Pending" || status == "Started"
	a.exec(`
		UPDATE work_items SET stage = $2, status = $3::text, retry = $4, needs_admin_review = $3::text IN ('Failed', 'Suspended'),
			claim_token = claim_token + 2, entered_token = claim_token + 1, attempt = 2, run_at = now() + id * interval '1.000001 second',
			waits_for = NULL, note = 'Note of ' || id, outcome = 'Outcome of ' || id, error_code = 'code-' || id,
			lease_expires_at = CASE WHEN $3::text = 'Started' THEN now() + interval '1 hour' END,
			node = CASE WHEN $3::text = 'Started' THEN 'n' END, pid = CASE WHEN $3::text = 'Started' THEN 1 END, worker = CASE WHEN $3::text = 'Started' THEN 'w' END
		WHERE id = $1`, id, stage, status, live)
}

// putFailed makes items 1 to n, each of a bag of its own, that failed at Validate.
func (a *archive) putFailed(n int) {
	a.t.Helper()
	a.exec(`
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'receiving', 'e', n, now() FROM generate_series(1, $2::int) n`, a.in.ID, n)
	a.exec(`
		UPDATE work_items SET stage = 'Validate', status = 'Failed', retry = false, needs_admin_review = true, claim_token = 3, entered_token = 2,
			attempt = 1, note = 'Note of ' || id, outcome = 'Outcome of ' || id, error_code = 'invalid-bag'`)
}

func (a *archive) plan(q plans.Request) record.Plan {
	a.t.Helper()
	return must.Get(plans.In(a.Registry).Make(context.Background(), q))(a.t)
}

// requeueAll plans to requeue all items that have failed.
func (a *archive) requeueAll() record.Plan {
	a.t.Helper()
	return a.plan(plans.Request{Action: "requeue", Where: "status = 'Failed'"})
}

// Who looks at a plan sees how many items it is about, how large they are, which
// are refused and why; and nothing has happened to them.
func TestPlanShowsWhatItWouldDoAndChangesNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	failed, started := a.put("failed", "e", "Validate", "Failed"), a.put("started", "e", "Store", "Started")
	done, over := a.put("done", "e", "Cleanup", "Success"), a.put("over", "e", "Store", "Cancelled")
	queued := a.put("queued", "e", "Receive", "Pending")
	a.put("other", "e", "Validate", "Suspended")
	items := `SELECT string_agg(w::text, E'\n' ORDER BY id) FROM work_items w`
	before := value[string](a, items)

	p := a.plan(plans.Request{Action: "requeue", Where: "status <> 'Suspended'", Stage: "Receive"})
	if p.Items != 5 || p.Refused != 3 || p.Bytes != 2000 || p.InWork != 1 || p.State != "ready" || p.Counts["planned"] != 2 || p.Counts["refused"] != 3 {
		t.Errorf("plan = %+v", p)
	}
	var stood strings.Builder
	for i, line := range []string{"2 Validate Failed 0", "2 Store Started 0", "2 Cleanup Success 0", "2 Store Cancelled 0", "0 Receive Pending 0"} {
		fmt.Fprintf(&stood, "\n%d %s", []int64{failed, started, done, over, queued}[i], line)
	}
	sum := sha256.Sum256([]byte(stood.String()[1:]))
	if p.SetHash != hex.EncodeToString(sum[:]) {
		t.Errorf("hash = %s, want that of%s", p.SetHash, stood.String())
	}
	causes, err := plans.In(a.Registry).Causes(context.Background(), p.ID)
	if diff := cmp.Diff([]record.PlanCause{
		{State: "refused", Cause: "item N has ended (Cancelled): it cannot be changed", Items: 1, Example: over},
		{State: "refused", Cause: "item N has ended (Success): it cannot be changed", Items: 1, Example: done},
		{State: "refused", Cause: "item N is queued at Receive already", Items: 1, Example: queued},
	}, causes); err != nil || diff != "" {
		t.Errorf("causes: %v (-want +got)\n%s", err, diff)
	}
	list, err := plans.In(a.Registry).Items(context.Background(), p.ID, "refused", done, 1)
	if diff := cmp.Diff([]record.PlanItem{
		{
			ID: over, Name: "over.tar", Stage: "Store", Status: "Cancelled", Size: 1000, State: "refused",
			Detail: fmt.Sprintf("item %d has ended (Cancelled): it cannot be changed", over),
		},
	}, list); err != nil || diff != "" {
		t.Errorf("items that are refused, after the first: %v (-want +got)\n%s", err, diff)
	}
	if list, err := plans.In(a.Registry).Items(context.Background(), p.ID, "planned", 0, 9); err != nil || len(list) != 2 || list[1].ID != started {
		t.Errorf("items that are planned: %+v, %v", list, err)
	}
	if after := value[string](a, items); after != before {
		t.Errorf("items before:\n%s\nafter:\n%s", before, after)
	}
}

// The fields of a request narrow each other, whatever the condition is made of.
func TestConditionStandsBesideTheOtherFields(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	want := a.put("want", "e", "Validate", "Failed")
	a.put("other stage", "e", "Store", "Failed")
	a.put("other status", "e", "Validate", "Suspended")
	wrong := a.put("other code", "e", "Validate", "Failed")
	a.in = a.institution("other.edu")
	a.put("other's", "e", "Validate", "Failed")
	a.exec(`UPDATE work_items SET error_code = CASE WHEN id <> $1 THEN 'it''s so' ELSE '' END`, wrong)
	for _, where := range []string{"", "id < 0 OR true", "true -- and no more", "note LIKE '%--%' IS NOT NULL"} {
		p := a.plan(plans.Request{Action: "cancel", Where: where, Filter: record.PlanFilter{
			Status: []registry.Status{"Failed"}, Stage: []registry.Stage{"Validate"}, Institution: "test.edu", ErrorCode: "it's so",
		}})
		if got := value[string](a, `SELECT string_agg(work_item_id::text, ' ') FROM plan_items WHERE plan_id = $1`, p.ID); got != fmt.Sprint(want) {
			t.Errorf("%q finds items %s, want %d", where, got, want)
		}
	}
	if p := a.plan(plans.Request{Action: "cancel", Filter: record.PlanFilter{NoErrorCode: true, Institution: "test.edu"}}); p.Items != 1 || a.inPlan(p, wrong) != "planned" {
		t.Errorf("plan = %+v, want the item without a code", p)
	}
	if p := a.plan(plans.Request{Action: "cancel", Where: "id > 0 -- all"}); p.Items != 5 || p.Condition != "id > 0 -- all" {
		t.Errorf("plan = %+v, want all five, by the condition as it was typed", p)
	}
	_, err := plans.In(a.Registry).Make(context.Background(), plans.Request{Action: "cancel", Where: "id < 0"})
	if !errors.Is(err, registry.ErrNotFound) || value[int](a, `SELECT count(*) FROM plans`) != 6 {
		t.Errorf("MakePlan of nothing = %v, want ErrNotFound and no plan", err)
	}
}

// An item that moves while the plan is made is left out: the condition may not be
// true for it any more.
func TestItemThatMovesInBetweenIsNotInThePlan(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(2)
	items := value[int](a, `
		SELECT (plan_store(jsonb_populate_record(NULL::plans, '{"action": "cancel", "condition": "true"}'), ARRAY[1, 2]::bigint[], ARRAY[3, 2]::bigint[])).items`)
	if got := value[string](a, `SELECT string_agg(work_item_id::text, ' ') FROM plan_items`); items != 1 || got != "1" {
		t.Errorf("%d items are in the plan, %s; want item 1", items, got)
	}
}

// A condition can be anything that a query may ask, and nothing else.
func TestConditionIsRefused(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.put("bag", "e", "Validate", "Failed")
	for where, why := range map[string]string{
		"stats = 'Failed'":             `column "stats" does not exist`,
		"status = 'Failed":             "unterminated quoted string",
		"id":                           "must be type boolean",
		"count(*) > 0":                 "aggregate functions are not allowed",
		"true; DELETE FROM work_items": `syntax error at or near ";"`,
		"true THEN true END; DROP TABLE plans; SELECT CASE WHEN true": "it has a second statement in it",
		"true THEN true WHEN true":                                    "syntax error",
		"false) OR (true":                                             "syntax error",
		"true /*":                                                     "unterminated /* comment",
		"$1":                                                          "there is no parameter $1",
		"1 / (id - 1) > 0":                                            "division by zero",
		"nextval('work_items_id_seq') > 0":                            "read-only transaction",
		"EXISTS (SELECT FROM requeue(id))":                            "read-only transaction",
		"(cancel(id)).id > 0":                                         "read-only transaction",
		"set_config('transaction_read_only', 'off', true) = 'off' AND nextval('work_items_id_seq') > 0": "read-write mode",
	} {
		for _, filter := range []record.PlanFilter{{}, {Status: []registry.Status{"Failed"}}} {
			_, err := plans.In(a.Registry).Make(context.Background(), plans.Request{Action: "cancel", Where: where, Filter: filter})
			if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s with status %v: %v, want a refusal with %q", where, filter.Status, err, why)
			}
		}
	}
	if item := a.item(id); item.Status != "Failed" || value[int](a, `SELECT count(*) FROM plans`) != 0 {
		t.Errorf("there is a plan, or the item has changed: %+v", item)
	}
}

// A condition reads what its author may read, and a plan is applied by those who
// might change the items by hand.
func TestPlansLendNobodyRights(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(2)
	p := a.requeueAll()
	reader := strings.ReplaceAll(value[string](a, `SELECT current_database()`), "t_", "reader_")
	a.exec(`CREATE ROLE ` + reader)
	t.Cleanup(func() { a.exec(`DROP OWNED BY ` + reader); a.exec(`DROP ROLE ` + reader) })
	a.exec(`GRANT SELECT ON work_items, plans, plan_items TO ` + reader)
	as := func(sql string) error {
		c := must.Get(pgx.ConnectConfig(t.Context(), a.db.Config().ConnConfig))(t)
		defer c.Close(context.Background())
		must.Get(c.Exec(t.Context(), `SET SESSION AUTHORIZATION `+reader))(t)
		_, err := c.Exec(t.Context(), sql)
		return err
	}
	if err := as(`SELECT plan_make('cancel', 'EXISTS (SELECT FROM checksums)')`); err == nil || !strings.Contains(err.Error(), "permission denied for view checksums") {
		t.Errorf("a condition on what the user may not read: %v", err)
	}
	change := []string{`SELECT plan_make('cancel', 'true')`, `SELECT plan_apply(1)`, `SELECT plan_undo(1)`, `SELECT plan_begin(1)`}
	for _, given := range []string{`SELECT`, `GRANT EXECUTE ON FUNCTION plan_store, plan_begin, plan_apply, plan_undo, requeue_refusal, requeue_stage TO ` + reader} {
		a.exec(given)
		for _, sql := range change {
			var pg *pgconn.PgError
			if err := as(sql); !errors.As(err, &pg) || pg.Code != "42501" {
				t.Errorf("%s by a reader: %v, want it denied", sql, err)
			}
		}
	}
	if item := a.item(1); item.Status != "Failed" {
		t.Errorf("item = %+v", item)
	}
	a.exec(`GRANT UPDATE (stage, status) ON work_items TO ` + reader)
	if err := as(`SELECT plan_apply(1)`); err != nil || a.item(1).Status != "Pending" {
		t.Errorf("who may requeue by hand cannot apply plan %d: %v", p.ID, err)
	}
	if err := as(`SELECT plan_make('cancel', 'true')`); err != nil {
		t.Errorf("who may cancel by hand cannot make a plan: %v", err)
	}
	if by := value[string](a, `SELECT created_by FROM plans ORDER BY id DESC LIMIT 1`); by != reader {
		t.Errorf("the plan was made by %s, want %s", by, reader)
	}
	if by := value[string](a, `SELECT session_user_is FROM work_item_audit WHERE work_item_id = 1`); by != reader {
		t.Errorf("the audit names %s, want %s", by, reader)
	}
}

// What a preview refuses is what the rules refuse, in the same words.
func TestPreviewKnowsTheRules(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	stages := []string{"Receive", "Validate", "Store", "Cleanup"}
	statuses := []string{"Pending", "Started", "Failed", "Suspended", "Cancelled", "Success"}
	changes := map[string]string{
		"requeue": `SELECT concat_ws(' ', stage, status, attempt, run_at) FROM requeue($1, $2)`,
		"cancel":  `SELECT concat_ws(' ', stage, status, attempt, run_at) FROM cancel($1, $2)`,
	}
	refused := map[string]int{}
	check := func(rt *rapid.T) {
		a.scene(`TRUNCATE work_items, uploads_in_work, plans, plan_items RESTART IDENTITY CASCADE`)
		n := int64(rapid.IntRange(1, 5).Draw(rt, "items"))
		for range n {
			a.put(rapid.SampledFrom([]string{"bag", "bag.b1.of2"}).Draw(rt, "bag"), rapid.SampledFrom([]string{"e1", "e2"}).Draw(rt, "etag"), "Store", "Failed")
		}
		for id := int64(1); id <= n; id++ {
			status, stage := rapid.SampledFrom(statuses).Draw(rt, "status"), rapid.SampledFrom(stages).Draw(rt, "stage")
			if status == "Success" {
				stage = "Cleanup"
			}
			twice := value[bool](a, `SELECT EXISTS (SELECT FROM work_items w JOIN work_items o USING (name, etag) WHERE w.id = $1 AND o.retry)`, id)
			if !twice || status != "Pending" && status != "Started" { // else it cannot come to be
				a.bring(id, stage, status)
			}
		}
		action := rapid.SampledFrom([]string{"requeue", "cancel"}).Draw(rt, "action")
		q := plans.Request{Action: action, Where: "true"}
		if action == "requeue" {
			q.Stage = registry.Stage(rapid.SampledFrom(append(stages, "")).Draw(rt, "to"))
		}
		p := a.plan(q)
		list := must.Get(plans.In(a.Registry).Items(context.Background(), p.ID, "", 0, 100))(rt)
		for _, i := range list {
			var to *registry.Stage
			if q.Stage != "" {
				to = &q.Stage
			}
			got, moved := a.tried(changes[action], i.ID, to)
			switch {
			case got == "" && moved && i.State == "planned":
			case got == "" && !moved && i.State == "refused" && strings.HasSuffix(i.Detail, " already"):
			case got != "" && i.State == "refused" && sameRefusal(i.Detail, got):
				for _, why := range []string{"has ended", "has only come to", "newer version", "same upload"} {
					if strings.Contains(i.Detail, why) {
						refused[why]++
					}
				}
			default:
				rt.Errorf("%s of %+v: the preview says %s %q, the rules say %q (moved: %v)", action, a.item(i.ID), i.State, i.Detail, got, moved)
			}
		}
	}
	for rounds := 0; len(refused) < 4; rounds++ { // one of a hundred checks may miss a rule
		if rounds == 10 {
			t.Fatalf("not every rule was met: %v", refused)
		}
		rapid.Check(t, check)
	}
}

// tried makes a change that is taken back, and reports why it was refused or else
// whether it changed the item: a requeue of one that is due at the stage with all its
// attempts changes nothing.
func (a *archive) tried(sql string, args ...any) (refusal string, moved bool) {
	a.t.Helper()
	takenBack := errors.New("taken back")
	err := pgx.BeginFunc(context.Background(), a.db, func(tx pgx.Tx) error {
		var was, is string
		if err := tx.QueryRow(context.Background(), `SELECT concat_ws(' ', stage, status, attempt, run_at) FROM work_items WHERE id = $1`, args[0]).Scan(&was); err != nil {
			return err
		}
		if err := tx.QueryRow(context.Background(), sql, args...).Scan(&is); err != nil {
			return err
		}
		moved = is != was
		return takenBack
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Message, false
	} else if !errors.Is(err, takenBack) {
		a.t.Fatal(err)
	}
	return "", moved
}

// sameRefusal leaves aside which of several newer versions is named, and that
// for an upload twice in the queue the rules have but an index.
func sameRefusal(preview, rules string) bool {
	const newer, twice = "is a newer version of the same bag", "is the same upload, and is in the queue"
	return preview == rules ||
		strings.HasSuffix(preview, newer) && strings.HasSuffix(rules, newer) ||
		strings.HasSuffix(preview, twice) && strings.Contains(rules, "is in work already")
}
