package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// policies say for each action at which stages a worker of it may take items.
// Whatever else there is of an item, its status has to be Pending.
func policies() map[string][]registry.Stage {
	return map[string][]registry.Stage{
		"Ingest": {
			"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup",
		},
		"Delete":          {"Requested"},
		"Restore File":    {"Requested"},
		"Restore Object":  {"Requested"},
		"Glacier Restore": {"Requested"},
	}
}

// putAs puts an item into the queue in a state as it stands there; 0 if there can
// be none.
func (q *queue) putAs(action, stage, status string) int64 {
	q.t.Helper()
	conn := must.Get(q.db.Acquire(context.Background()))(q.t)
	defer conn.Release()
	var id int64
	err := conn.QueryRow(context.Background(), `
		INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier,
			attempt, claim_token, lease_expires_at, node, pid, worker)
		SELECT id, $1::text, $2::text, $3::text, $3 IN ('Pending', 'Started'), $4, 'b', 'e', 1, now(), 'test.edu/o',
			1, 1, l.until, l.node, l.pid, l.node
		FROM institutions LEFT JOIN (SELECT now() + interval '1 hour' AS until, 'n' AS node, 1 AS pid) l ON $3 = 'Started'
		RETURNING id`, action, stage, status, fmt.Sprintf("bag-%d.tar", bags.Add(1))).Scan(&id)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23514" {
		return 0
	}
	if err != nil {
		q.t.Fatal(err)
	}
	return id
}

// Of all items in all states at all stages of all actions, a claim takes those
// that its action's policy allows, and only at the stage that it asked for.
func TestEachActionHasItsPolicy(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`) // which refuse what should not be; here the claim is to
	stages := append(policies()["Ingest"], "Requested", "Fetch", "Unpack", "Restoring", "Package", "Available in S3", "Resolve")
	statuses := []string{"Pending", "Started", "Success", "Failed", "Cancelled", "Suspended"}
	type place struct {
		action string
		stage  registry.Stage
	}
	pending := map[place]int64{}
	items, impossible := 0, 0
	for action := range policies() {
		for _, stage := range stages {
			for _, status := range statuses {
				switch id := q.putAs(action, string(stage), status); {
				case id == 0:
					impossible++
				case status == "Pending":
					pending[place{action, stage}] = id
					fallthrough
				default:
					items++
				}
			}
		}
	}
	if items+impossible != 5*16*6 || items < 150 {
		t.Errorf("%d items, %d that cannot be", items, impossible)
	}
	e := q.engine()
	for action, policy := range policies() {
		for _, stage := range stages {
			f := claim.Filter{Action: registry.Action(action), Stages: []claim.Want{{Stage: stage, Most: 100}}}
			got, err := e.Claim(context.Background(), f, 100)
			if err != nil {
				t.Fatalf("claim %s at %s: %v", action, stage, err)
			}
			want := pending[place{action, stage}]
			switch allowed := slices.Contains(policy, stage); {
			case !allowed && len(got) > 0:
				t.Errorf("%s at %s: %+v was claimed", action, stage, got)
			case allowed && (len(got) != 1 || got[0].ID != want || string(got[0].Action) != action || got[0].Stage != stage):
				t.Errorf("%s at %s: claimed %+v, want item %d", action, stage, got, want)
			}
		}
	}
	if n := value[int](q, `SELECT count(*) FROM work_items WHERE claim_token <> 1`); n != 9+4 {
		t.Errorf("%d items were changed, want the 13 that were claimed", n)
	}
}

// What keeps a Pending item from being claimed does so for every action.
func TestWhatIsNotDueIsNotClaimedOfAnyAction(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"a later time":     `UPDATE work_items SET run_at = now() + interval '1 minute'`,
		"behind another":   `UPDATE work_items SET run_at = 'infinity', waits_for = (SELECT max(id) FROM work_items w WHERE w.id <> work_items.id)`,
		"a paused stage":   `UPDATE stage_settings SET paused = true`,
		"no such settings": `DELETE FROM stage_settings`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.exec(`ALTER TABLE work_items DISABLE TRIGGER USER; ALTER TABLE stage_settings DISABLE TRIGGER USER`)
			for action, policy := range policies() {
				for _, stage := range policy {
					q.putAs(action, string(stage), "Pending")
				}
			}
			e := q.engine()
			q.exec(change)
			for action, policy := range policies() {
				for _, stage := range policy {
					got, err := e.Claim(context.Background(), claim.Filter{Action: registry.Action(action), Stages: []claim.Want{{Stage: stage, Most: 9}}}, 9)
					if err != nil || len(got) > 0 {
						t.Errorf("%s at %s: claimed %d, %v", action, stage, len(got), err)
					}
				}
			}
		})
	}
}
