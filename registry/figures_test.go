package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

func (a *archive) figures() registry.Figures {
	a.t.Helper()
	return must.Get(a.Figures(context.Background()))(a.t)
}

// Metrics and the views say the same of the same queue.
func TestFiguresAreThoseOfTheViews(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	empty := a.figures()
	if len(empty.Bands) != 14*4 || len(empty.Stages) != 15 { // with fixity checks
		t.Errorf("%d bands and %d stages of a queue in which nothing is, want all there are", len(empty.Bands), len(empty.Stages))
	}
	a.standing("waiting") // and the running one that it waits for
	for _, state := range []string{"Success", "Failed", "Suspended", "Cancelled", "delayed"} {
		a.standingAs(state+".tar", state)
	}
	a.upload(etag1, time.Now(), "a.tar", "b.tar", "c.tar")
	a.exec(`UPDATE work_items SET size = 70 << 20 WHERE name = 'c.tar'`)
	a.exec(`UPDATE work_items SET run_at = now() - interval '1 hour' WHERE name = 'b.tar'`)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, status, retry)
		SELECT id, action, 'Requested', 'd', 'b', 'e', 1, now(), action || status, status, status = 'Pending' FROM institutions,
		(VALUES ('Restore Object', 'Failed'), ('Restore Object', 'Pending'), ('Restore File', 'Pending')) v (action, status)`)
	a.exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Store'`)

	f := a.figures()
	var cells, failed []string
	for _, c := range f.Bands {
		if c.Due+c.Delayed+c.Waiting+c.Running > 0 {
			cells = append(cells, fmt.Sprintf("%s %s %d %d %d %d %d %v", c.Action, c.Stage, c.SizeBand, c.Due, c.Delayed, c.Waiting, c.Running, c.OldestDue >= 3600))
		}
	}
	for _, s := range f.Stages {
		if s.Failed > 0 {
			failed = append(failed, fmt.Sprintf("%s %s %d", s.Action, s.Stage, s.Failed))
		}
		if s.Paused != (s.Stage == "Store") {
			t.Errorf("%s: paused is %v", s.Stage, s.Paused)
		}
	}
	a.shows(`SELECT q.action, q.stage, size_band, due, delayed, waiting, running, coalesce(oldest_due >= '1 hour', false) AS hour FROM queue_depth q
		JOIN stage_settings s ON s.action = q.action AND s.stage = q.stage ORDER BY q.action, s.ordinal, size_band`, cells...)
	a.shows(`SELECT action, stage, count(*) AS n FROM failed GROUP BY action, stage ORDER BY action, stage`, failed...)
	if len(cells) != 5 || len(failed) != 2 {
		t.Errorf("cells %q, failed %q", cells, failed)
	}
}

// However many items have ended or wait, a statement reads a bounded number of rows.
func TestFiguresReadOnlyWhatTheyMust(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`SET session_replication_role = replica;
		INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier)
		SELECT 1, 'Ingest', CASE n % 20 WHEN 0 THEN 'Store' ELSE 'Cleanup' END, CASE n % 20 WHEN 0 THEN 'Pending' ELSE 'Success' END, n % 20 = 0,
			n || '.tar', 'b', 'e', 1, now(), 'test.edu/' || n FROM generate_series(1, 60000) n;
		SET session_replication_role = DEFAULT`)
	a.upload(etag1, time.Now(), "live.tar", "failed.tar")
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE name = 'failed.tar'`)
	for _, known := range []bool{false, true} { // to the planner
		if known {
			a.exec(`VACUUM ANALYZE work_items`)
		}
		for i, most := range []float64{1001 + 10, 10} { // 1000 of 3000 that wait, and what failed
			var plan string
			must.Do(t, a.Look(context.Background(), func(tx pgx.Tx) error {
				sql := strings.ReplaceAll(registry.FiguresSQL()[i], "$1", "1000")
				return tx.QueryRow(context.Background(), `EXPLAIN (ANALYZE, FORMAT JSON) `+sql).Scan(&plan)
			}))
			var nodes []struct{ Plan node }
			must.Do(t, json.Unmarshal([]byte(plan), &nodes))
			if read := nodes[0].Plan.read(); read > most {
				t.Errorf("statement %d reads %v rows of items, want %v at most\n%s", i, read, most, plan)
			}
		}
	}
}

// Every session that holds back vacuum is reported, with the time since when.
func TestOldSnapshotsAreFound(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	server.Exec(`ALTER SYSTEM SET max_prepared_transactions = 5`)
	server.End(syscall.SIGINT)
	server.Start()
	db := must.Get(dial.Connect(context.Background(), server.URL, "test"))(t)
	t.Cleanup(db.Close)
	a := &archive{registry.New(db), t, db, record.Institution{}}
	a.in = a.institution("test.edu")

	tx := must.Get(db.Begin(context.Background()))(t)
	must.Get(tx.Exec(context.Background(), `SELECT pg_current_xact_id()`))(t)
	if held := a.oldest("transaction"); held.Seconds <= 0 || held.Seconds > 60 || held.Transactions < 1 || !strings.HasSuffix(held.Name, " test idle in transaction") {
		t.Errorf("an open transaction: %+v", held)
	}
	must.Get(tx.Exec(context.Background(), `PREPARE TRANSACTION 'forgotten'`))(t)
	if err := tx.Rollback(context.Background()); err != nil { // of nothing: the transaction is the server's now
		t.Fatal(err)
	}
	if held := a.oldest("transaction"); held.Transactions > 0 {
		t.Errorf("after it has ended: %+v", held)
	}
	if held := a.oldest("prepared"); held.Seconds <= 0 || held.Seconds > 60 || held.Name != "prepared transaction forgotten" {
		t.Errorf("a prepared transaction: %+v", held)
	}
	a.exec(`ROLLBACK PREPARED 'forgotten'`)

	// What follows has no time of its own, and goes by that of hand-offs.
	standby := server.Standby()
	standby.Exec(`ALTER SYSTEM SET hot_standby_feedback = on`)
	standby.Exec(`SELECT pg_reload_conf()`)
	pin := must.Get(pgx.Connect(context.Background(), standby.URL))(t)
	t.Cleanup(func() { pin.Close(context.Background()) })
	pinned := func(kind, name string) {
		t.Helper()
		must.Get(pin.Exec(context.Background(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM work_items`))(t)
		testenv.Eventually(t, "the standby to tell of its snapshot", func() bool { return a.oldest(kind).Name == name })
		if held := a.oldest(kind); held.Seconds > 60 {
			t.Errorf("nothing was handed on since: %+v", held)
		}
		a.upload(etag1, time.Now(), kind+".tar")
		a.exec(`UPDATE topic_messages SET created_at = now() - interval '1 hour' WHERE xid = (SELECT max(xid) FROM topic_messages)`)
		if held := a.oldest(kind); held.Seconds < 3600 || held.Seconds > 3660 || held.Transactions < 1 {
			t.Errorf("a hand-off an hour ago: %+v", held)
		}
		must.Get(pin.Exec(context.Background(), `ROLLBACK`))(t)
		testenv.Eventually(t, "the standby to let go", func() bool { return a.oldest(kind).Seconds == 0 })
	}
	pinned("standby", "standby walreceiver 127.0.0.1")
	a.exec(`SELECT pg_create_physical_replication_slot('lagging', true)`)
	standby.Exec(`ALTER SYSTEM SET primary_slot_name = 'lagging'`)
	standby.Exec(`SELECT pg_reload_conf()`)
	pinned("slot", "replication slot lagging")
}

func (a *archive) oldest(kind string) record.SnapshotView {
	a.t.Helper()
	list, err := a.Oldest(context.Background())
	i := slices.IndexFunc(list, func(s record.SnapshotView) bool { return s.Kind == kind })
	if err != nil || i < 0 {
		a.t.Fatalf("Oldest = %+v, %v", list, err)
	}
	return list[i]
}

// Autoscalers count what can be claimed: not what is paused, what is above the cap of a stage, or what needs a
// held service. Of that, one is left, by whose worker the end is noticed.
func TestScalingSignalCountsWhatCanBeClaimed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, run_at, storage_option)
		SELECT id, v.action, v.stage, n || v.action || v.stage || v.size, 'b', 'e', v.size, now(), n || v.action || v.stage || v.size, v.due, v.option FROM institutions, generate_series(1, 3) n,
		(VALUES ('Ingest', 'Receive', 1::bigint, now(), NULL), ('Ingest', 'Store', 1, now(), 'Standard'), ('Ingest', 'Store', 5::bigint << 30, now(), 'Glacier-VA'),
			('Ingest', 'Store', 2, now() + interval '1 hour', 'Standard'), ('Restore Object', 'Requested', 1, now(), NULL)) v (action, stage, size, due, option)`)
	signal := func(when, args string, want int) {
		t.Helper()
		a.shows(`SELECT scaling_signal(`+args+`) AS "`+when+`"`, fmt.Sprint(want))
	}
	signal("all that is due", "", 12)
	signal("of some stages", "'{Store, Cleanup}'", 6)
	signal("of some stages and sizes", "'{Store}', 1 << 30, 6::bigint << 30", 3)
	signal("of requests", "'{Restore Object}'", 3)
	signal("of none", "'{Record}'", 0)
	a.exec(`UPDATE work_items SET status = 'Started', claim_token = 1, attempt = 1, worker = 'w', node = 'n', pid = 1, stage_started_at = now(), lease_expires_at = now() + interval '1 minute'
		WHERE name LIKE '1%' AND stage = 'Receive'`)
	signal("what runs counts, too", "'{Receive}'", 3)
	a.exec(`UPDATE stage_settings SET cap = 2 WHERE stage = 'Receive'`)
	signal("no more than the cap", "'{Receive}'", 2)
	a.exec(`SELECT pause_stage('Receive')`)
	signal("of a paused stage, what runs", "'{Receive}'", 1)
	a.exec(`INSERT INTO known_services (service, scopes) VALUES ('s3:Glacier-VA', '[{"steps": ["Store"], "storage_options": ["Glacier-VA"]}]'), ('redis', '[{"steps": ["Store"]}]')`)
	signal("services that answer", "'{Store}'", 6)
	a.exec(`SELECT hold_service('s3:Glacier-VA')`)
	signal("without what needs a held service", "'{Store}'", 3)
	signal("one worker stays", "'{Store}', 1 << 30, 6::bigint << 30", 1)
	signal("others are not counted", "'{Store, Restore Object}'", 6)
	a.exec(`SELECT hold_service('redis')`)
	signal("one for all stages that are held", "'{Store}'", 1)
	a.exec(`SELECT release_service('redis'), release_service('s3:Glacier-VA')`)
	signal("released", "'{Store}'", 6)
}
