package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// table is what a query returns, a line of text for each row.
func (a *archive) table(query string) []string {
	a.t.Helper()
	rows, _ := a.db.Query(context.Background(), `SELECT concat_ws(' ', VARIADIC ARRAY(SELECT coalesce(e.value, '-') FROM json_each_text(row_to_json(q)) e))
		FROM (`+query+`) q`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.t.Fatalf("%s: %v", query, err)
	}
	return list
}

func (a *archive) shows(query string, want ...string) {
	a.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), a.table(query)); diff != "" {
		a.t.Errorf("%s (-want +got):\n%s", query, diff)
	}
}

// attempt writes a claim of an item at a stage into the ledger, with its end.
func (a *archive) attempt(item, token int64, stage, outcome, file string) {
	a.t.Helper()
	a.exec(`INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, ended_at, outcome, error, current_file)
		VALUES ($1, $2, $3, 1, 'n', 1, 'w', now(), $4::text, $4 || '!', $5)`, item, token, stage, outcome, file)
}

func TestQueueDepth(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const count = `SELECT action, stage, size_band, paused, due, delayed, waiting, running, in_flight, bytes FROM queue_depth ORDER BY 1, 2, 3`
	a.shows(count)
	a.standing("waiting") // and the running one that it waits for
	for _, state := range []string{"Success", "Failed", "Suspended", "Cancelled", "delayed"} {
		a.standingAs(state+".tar", state)
	}
	a.upload(etag1, time.Now(), "a.tar", "b.tar", "c.tar")
	a.exec(`UPDATE work_items SET size = 70 << 20 WHERE name = 'c.tar'`)
	a.exec(`UPDATE work_items SET run_at = now() - interval '1 hour' WHERE name = 'b.tar'`)
	a.exec(`SELECT pause_stage('Receive')`)
	a.shows(count,
		"Ingest Receive 0 true 2 0 0 0 2 20",
		"Ingest Receive 1 true 1 0 0 0 1 73400320",
		"Ingest Store 0 false 0 1 1 1 1 30",
	)
	a.shows(`SELECT stage, size_band, oldest_due >= '1 hour' AS hour FROM queue_depth ORDER BY 1, 2`, "Receive 0 true", "Receive 1 false", "Store 0 -")
	a.shows(`SELECT coalesce(sum(in_flight), 0) AS n FROM queue_depth WHERE NOT paused`, "1")
}

func TestRunningAndWorkers(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.standing("Started")
	a.standingAs("failed.tar", "Failed")
	a.exec(`UPDATE work_item_attempts SET current_file = 'data/a.txt' WHERE ended_at IS NULL`)
	a.shows(`SELECT item, action, stage, worker, node, pid, attempt, since <= now() AS since, lease_left BETWEEN '0' AND '1 minute' AS lease_left,
		last_heartbeat <= now() AS last_heartbeat, current_file, institution, name, size FROM running`,
		"1 Ingest Store w n 1 1 true true true data/a.txt test.edu bag.tar 10")

	for _, w := range []string{"w", "drained", "silent", "ended"} {
		a.worker(w, `[{"name": "small", "slots": 8}, {"name": "large", "slots": 2}]`)
	}
	a.exec(`UPDATE worker_processes SET heartbeat_at = now() - interval '31 seconds' WHERE worker = 'silent';
		UPDATE worker_processes SET ended_at = now(), ending = 'oom' WHERE worker = 'ended'`)
	if w, err := a.Drain(context.Background(), "drained"); err != nil || !w.Draining || w.Worker != "drained" {
		t.Errorf("Drain = %+v, %v", w, err)
	}
	a.shows(`SELECT worker, node, pid, slots, running, heartbeat_ago < '10 seconds' AS heard, draining, started <= now() AS started FROM workers ORDER BY worker`,
		"drained node-of-drained 12 10 0 true true true", "w node-of-w 12 10 1 true false true")
	if _, err := a.Drain(context.Background(), "ended"); err == nil || !strings.HasSuffix(err.Error(), "Live workers: drained, w") {
		t.Errorf("Drain of one that has ended = %v, want those that live", err)
	}
	list, err := a.Workers(context.Background())
	if err != nil || len(list) != 2 || list[1].Running != 1 || *list[1].Slots != 10 || list[1].HeartbeatAgo > 10 || !strings.Contains(string(list[0].Pools), "small") {
		t.Errorf("Workers = %+v, %v", list, err)
	}
}

// Only what killed workers since the item came to its stage counts against it.
func TestNeedsReview(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	for i, outcome := range []string{"oom", "done", "killed", "transient", "oom", "panic", "released", "lease expired"} {
		a.attempt(id, int64(i+1), map[bool]string{true: "Receive", false: "Validate"}[i < 2], outcome, fmt.Sprintf("data/%d.txt", i))
	}
	a.exec(`UPDATE work_items SET claim_token = 9, entered_token = 2, stage = 'Validate', status = 'Suspended', retry = false,
		needs_admin_review = true, note = 'Gave up.', error_code = 'lease-expired'`)
	const look = `SELECT item, action, stage, status, institution, name, size, note, error_code, last_outcome, last_error, last_file, workers_lost FROM needs_review`
	a.shows(look, "1 Ingest Validate Suspended test.edu bag.tar 10 Gave up. lease-expired lease expired lease expired! data/7.txt 4")
	a.exec(`UPDATE work_items SET needs_admin_review = false`)
	a.shows(look)
	a.upload(etag1, time.Now(), "other.tar")
	a.exec(`UPDATE work_items SET status = 'Suspended', note = 'Wait.' WHERE name = 'other.tar'`)
	a.shows(look, "2 Ingest Receive Suspended test.edu other.tar 10 Wait. by-hand - - - 0")
}

// Failed is what no attempt runs of and none will be made, and nothing else: not
// what may be tried again, not what succeeded in the end, nor what was given up.
func TestFailedIsExact(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const look = `SELECT item, stage, status, institution, name, size, note, error_code, attempts, last_outcome, last_error, last_file FROM failed`
	for _, state := range states() {
		a.standing(state)
		switch state {
		case "Failed", "Suspended":
			a.attempt(1, 9, "Store", "oom", "data/a.txt")
			a.shows(look, "1 Store "+state+" test.edu bag.tar 10 Storage denies access. storage-denied 2 oom oom! data/a.txt")
			a.exec(`UPDATE work_items SET needs_admin_review = false`) // reviewed, and still failed
			a.shows(`SELECT item FROM failed`, "1")
			a.exec(`SELECT requeue(1)`)
		case "Success":
			a.attempt(1, 9, "Receive", "oom", "")
		}
		a.shows(look)
		a.scene(`TRUNCATE work_items, work_item_attempts, retired_copies, uploads_in_work RESTART IDENTITY`)
	}
}

// Items that succeeded at once, after retries, and not at all are counted
// separately, in each stage and as a whole, whether or not it is in the archive.
func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	history := func(name, stage, status string, attempts ...string) {
		id := a.upload(etag1, time.Now(), name)[0]
		for i, at := range attempts {
			where, outcome, _ := strings.Cut(at, " ")
			a.attempt(id, int64(i+1), where, outcome, "")
		}
		a.exec(`UPDATE work_items SET claim_token = 99, stage = $2, status = $3, retry = $4 WHERE id = $1`, id, stage, status, status == "Pending")
	}
	history("at-once.tar", "Cleanup", "Success", "Receive done", "Store released", "Store snoozed", "Store done", "Cleanup done")
	history("mended.tar", "Cleanup", "Success", "Receive done", "Store transient", "Store oom", "Store done", "Cleanup done")
	history("by-hand.tar", "Cleanup", "Success", "Receive fatal", "Receive done", "Store done", "Cleanup done")
	history("failed.tar", "Store", "Failed", "Receive done", "Store done", "Store transient", "Store fatal")
	history("parked.tar", "Receive", "Suspended", "Receive lease expired")
	history("unseen.tar", "Receive", "Cancelled")
	history("cancelled.tar", "Store", "Cancelled", "Receive done", "Store cancelled")
	history("live.tar", "Store", "Pending", "Receive transient", "Receive done", "Store transient")
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, status, retry)
		SELECT id, 'Delete', 'Requested', 'd', 'b', 'e', 1, now(), 'o', 'Failed', false FROM institutions`)
	want := []string{ // action, stage, at once, after retries, failed completely, cancelled
		"Delete Requested 0 0 1 0",
		"Delete all 0 0 1 0",
		"Ingest Cleanup 3 0 0 0",
		"Ingest Receive 4 2 1 1",
		"Ingest Store 2 1 1 1",
		"Ingest all 1 2 2 2",
		"all all 1 2 3 2",
	}
	const look = `SELECT * FROM outcomes ORDER BY action COLLATE "C", stage COLLATE "C"`
	a.shows(look, want...)
	a.exec(toArchive)
	if n := value[int](a, `SELECT count(*) FROM work_items_archive`); n != 5 {
		t.Fatalf("%d items in the archive, want 5", n)
	}
	a.shows(look, want...)
}

// However many items have ended, the views do not read them.
func TestViewsReadOnlyWhatIsLive(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.scene(`INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier)
		SELECT 1, 'Ingest', 'Cleanup', 'Success', false, n || '.tar', 'b', 'e', 1, now(), 'test.edu/' || n FROM generate_series(1, 30000) n;
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, ended_at, outcome)
		SELECT id, 1, 'Cleanup', 1, 'n', 1, 'w', now(), 'done' FROM work_items`)
	a.upload(etag1, time.Now(), "live.tar")
	a.upload(etag1, time.Now(), "failed.tar")
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE name = 'failed.tar'`)
	a.worker("w", `[]`)
	a.exec(`VACUUM ANALYZE work_items; `)
	a.exec(`VACUUM ANALYZE work_item_attempts`)
	for _, view := range []string{"queue_depth", "running", "needs_review", "failed", "workers"} {
		plan := value[string](a, `EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM `+view)
		var nodes []struct{ Plan node }
		must.Do(t, json.Unmarshal([]byte(plan), &nodes))
		if read := nodes[0].Plan.read(); read > 100 {
			t.Errorf("%s reads %v rows of items and attempts\n%s", view, read, plan)
		}
	}
}

// node is a step of a plan.
type node struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []node
}

// read is how many rows of items and attempts the step and those below it read.
func (n node) read() (rows float64) {
	if strings.HasPrefix(n.Relation, "work_item") {
		rows = (n.Rows + n.Removed) * n.Loops
	}
	for _, below := range n.Plans {
		rows += below.read()
	}
	return rows
}

// Thousands that go before an item are not counted one by one.
func TestWhyNotCountsNoFurtherThanItHelps(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT 1, 'Ingest', 'Receive', n || '.tar', 'b', 'e', 1, now() FROM generate_series(1, 10002) n`)
	for id, want := range map[int64]string{
		1: "", 2: "1 item goes before it.", 10001: "10000 items go before it.", 10002: "more than 10000 items go before it.",
	} {
		got := strings.Join(a.table(fmt.Sprintf(`SELECT detail FROM why_not(%d) WHERE reason = 'behind others'`, id)), " ")
		if got != want {
			t.Errorf("item %d: %q, want %q", id, got, want)
		}
	}
}
