package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/remote"
	"github.com/farol-preservation/farol/registry"
)

// ending is one way in which the claim of an item ends.
type ending struct {
	q    *queue
	e    *claim.Engine
	r    *remote.Queue
	item remote.Leased
}

func (c *ending) settle(done claim.Done, result error) {
	c.q.t.Helper()
	end := claim.Ending{Item: c.item.Item, Done: done, Result: result, File: "data/current"}
	if err := c.e.Settle(c.q.t.Context(), []claim.Ending{end})[0]; err != nil {
		c.q.t.Fatal(err)
	}
}

func (c *ending) remotely(result error) {
	c.q.t.Helper()
	if _, _, err := c.r.Settle(c.q.t.Context(), c.item.ID, c.item.Token, claim.Done{Note: "Clean."}, result); err != nil {
		c.q.t.Fatal(err)
	}
}

func (c *ending) reap() {
	c.q.t.Helper()
	c.q.exec(`UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE id = $1`, c.item.ID)
	if n := c.q.reap(c.e); n != 1 {
		c.q.t.Fatalf("%d claims were ended, want 1", n)
	}
}

// waysToEnd are all ways in which the queue ends a claim.
func waysToEnd() map[string]func(c *ending) {
	broken := errors.New("connection reset")
	last := func(c *ending) { c.item.MaxAttempts = 1 }
	return map[string]func(c *ending){
		"done":                 func(c *ending) { c.settle(claim.Done{Next: "Reingest Check", Note: "Clean."}, nil) },
		"done, learnt more":    func(c *ending) { c.settle(claim.Done{Next: "Reingest Check", MemoryNeed: 9, Remark: "odd"}, nil) },
		"done, with an option": func(c *ending) { c.settle(claim.Done{Next: "Reingest Check", StorageOption: "Standard"}, nil) },
		atTheEnd:               func(c *ending) { c.settle(claim.Done{Outcome: "ingested"}, nil) },
		"transient":            func(c *ending) { c.settle(claim.Done{}, broken) },
		"transient, the last":  func(c *ending) { last(c); c.settle(claim.Done{}, broken) },
		"fatal":                func(c *ending) { c.settle(claim.Done{}, claim.Fatal("bad-bag", "no manifest")) },
		"suspended":            func(c *ending) { c.settle(claim.Done{}, claim.Suspend("ask", "a person decides")) },
		"cancelled":            func(c *ending) { c.settle(claim.Done{}, claim.Cancel("gone", "not wanted")) },
		"snoozed":              func(c *ending) { c.settle(claim.Done{}, claim.Snooze(time.Hour, "later")) },
		"sent back":            func(c *ending) { c.settle(claim.Done{}, claim.SendBack("Validate", "results are gone")) },
		"needs memory":         func(c *ending) { c.settle(claim.Done{}, claim.NeedMemory(1<<30)) },
		"released":             func(c *ending) { c.settle(claim.Done{}, claim.Release("stopping")) },
		"done, remotely":       func(c *ending) { c.remotely(nil) },
		"transient, remotely":  func(c *ending) { c.remotely(claim.Transient("busy", broken)) },
		"fatal, remotely":      func(c *ending) { c.remotely(claim.Fatal("bad-bag", "no manifest")) },
		"released, remotely":   func(c *ending) { c.e.Release(c.q.t.Context(), []claim.Item{c.item.Item}, "stopping") },
		"reaped, silent":       func(c *ending) { c.reap() },
		"reaped, killed":       func(c *ending) { c.q.exec(killedSQL); c.reap() },
		"reaped, the last":     func(c *ending) { c.q.exec(`UPDATE stage_settings SET max_attempts = 1`); c.reap() },
	}
}

// atTheEnd is the way that needs the last stage.
const atTheEnd = "done at the end"

const killedSQL = `
INSERT INTO worker_processes (worker, node, pid, host, pid_started, cgroup, oom_kills, pools, heartbeat, ended_at, ending)
VALUES ('anna', 'attic', 7, 'attic', 1, '', 0, '[]', '1 second', now(), 'killed')`

// twinSQL makes the move that ended the claim of one item on another, by the schema's own
// function.
const twinSQL = `
SELECT count(*) FROM move_items(ARRAY(
	SELECT ROW(twin.id, twin.claim_token, w.stage, w.status, w.attempt, w.run_at, w.note, w.error_code, w.outcome,
		(SELECT topic FROM topic_messages m WHERE m.work_item_id = w.id AND m.id > $3),
		a.outcome, a.error, a.current_file, a.service, NULL,
		w.intellectual_object_id, w.storage_option, w.memory_need,
		NULL, NULL, NULL, NULL)::work_item_move
	FROM work_items w
	JOIN work_item_attempts a ON a.work_item_id = w.id
	JOIN work_items twin ON twin.id = $2
	WHERE w.id = $1
), $4, false)`

// leftSQL is all that a transition leaves of an item, without what identifies it.
const leftSQL = `
SELECT jsonb_build_object(
	'item', to_jsonb(w) - '{id,name,virtual_start,bag_date,created_at,queued_at,date_processed,updated_at,stage_started_at}'::text[] || jsonb_build_object('updated', w.updated_at > w.stage_started_at),
	'attempt', to_jsonb(a) - '{work_item_id,claimed_at,heartbeat_at,ended_at}'::text[]
		|| jsonb_build_object('beat', a.heartbeat_at > a.claimed_at + interval '100 microseconds', 'ended', a.ended_at IS NOT NULL),
	'messages', (SELECT array_agg(topic ORDER BY id) FROM topic_messages WHERE work_item_id = w.id),
	'retries', (SELECT array_agg(topic) FROM topic_retries WHERE work_item_id = w.id))
FROM work_items w JOIN work_item_attempts a ON a.work_item_id = w.id
WHERE w.id = $1`

// claimTwo claims two items of a stage, as a remote worker if that may have them.
func claimTwo(t *testing.T, e *claim.Engine, r *remote.Queue, stage registry.Stage) (items []remote.Leased) {
	t.Helper()
	var err error
	if stage == "Virus Scan" {
		items, err = r.Claim(t.Context(), at(stage, 2), 2, anna())
	} else {
		var local []claim.Item
		local, err = e.Claim(t.Context(), at(stage, 2), 2)
		for _, i := range local {
			items = append(items, remote.Leased{Item: i})
		}
	}
	if err != nil || len(items) != 2 {
		t.Fatalf("Claim = %d items, %v; want two", len(items), err)
	}
	return items
}

// However a claim ends, the item, the ledger, the topic log and the mirror have what the
// schema's transition leaves of the same row.
func TestEveryEndingIsTheSameTransition(t *testing.T) {
	t.Parallel()
	rows := map[string]string{
		"plain": "priority = 3",
		"full":  "priority = 1, memory_need = 7, storage_option = 'Standard', outcome = 'before', error_code = 'before', note = 'before'",
	}
	for name, end := range waysToEnd() {
		for kind, columns := range rows {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				q, e, r := scanned(t)
				stage := registry.Stage("Virus Scan")
				if name == atTheEnd {
					stage = registry.Cleanup
				}
				q.put(stage, 10)
				q.put(stage, 10)
				q.exec(fmt.Sprintf(`DO $do$ BEGIN
					SET LOCAL session_replication_role = replica;
					UPDATE work_items SET object_identifier = 'test.edu/bag', %s;
				END $do$`, columns))
				items := claimTwo(t, e, r, stage)
				before := value[int64](q, `SELECT coalesce(max(id), 0) FROM topic_messages`)
				end(&ending{q, e, r, items[0]})
				one, twin := items[0].ID, items[1].ID
				if n := value[int](q, twinSQL, one, twin, before, !strings.HasPrefix(name, "reaped")); n != 1 {
					t.Fatalf("%d moves landed, want 1", n)
				}
				got, want := value[map[string]any](q, leftSQL, one), value[map[string]any](q, leftSQL, twin)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the transition (-) and this end (+) differ:\n%s", diff)
				}
			})
		}
	}
}
