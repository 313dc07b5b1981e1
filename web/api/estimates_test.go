package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// served is a site at which thirty bags took nine minutes each, and others wait.
func served(t *testing.T) (*site, *caller, map[string]int64, map[string]int64) {
	t.Helper()
	s := newSite(t)
	testenv.Scene(t, s.db, `INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier, created_at, updated_at)
		SELECT 1, 'Ingest', 'Cleanup', 'Success', false, 'ended' || n || '.tar', 'b', 'e', n, now(), 'test.edu/ended' || n, now() - interval '2 hours', now() - interval '1 hour'
		FROM generate_series(1, 30) n;
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, ended_at, outcome)
		SELECT w.id, s.ordinal, s.stage, 1, 'n', 1, 'w', w.created_at + s.ordinal * interval '1 minute', w.created_at + (s.ordinal + 1) * interval '1 minute', 'done'
		FROM work_items w JOIN stage_settings s ON s.action = 'Ingest'`)
	s.stock()
	ids, others := s.ids(s.test), s.ids(s.other)
	ids["items"] = ask[int64](s, `SELECT min(id) FROM work_items WHERE retry AND institution_id = $1`, s.test.ID)
	return s, s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), ids, others
}

// What keeps an item from ending is said in place of a time.
func TestEndsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	_, own, ids, others := served(t)
	var found struct{ Items []record.ItemEstimate }
	own.reads(own.wants(200, "GET", fmt.Sprintf("/api/v1/items/estimates?id=%d&id=%d&id=%d", ids["items"], others["items"], 1), nil), &found)
	if len(found.Items) != 2 || found.Items[0].End != nil || found.Items[0].Unknown != "no live worker takes its stage" || found.Items[1].Unknown != "it has ended" {
		t.Errorf("%+v", found)
	}
}

// People read when their items end, one by one and together; of others' items they learn
// nothing, and not even that there are any.
func TestEndsAreEstimated(t *testing.T) {
	t.Parallel()
	s, own, ids, others := served(t)
	s.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat) VALUES ('w', 'n', 1, 'h', 1, '[{"name": "all", "slots": 1}]', '1 hour')`)
	staff := s.in("operator@archive.org", registry.RoleOperator, "")
	path := fmt.Sprintf("/api/v1/items/estimates?id=%d&id=%d&id=%d", ids["items"], others["items"], 1)
	var of, all struct{ Items []record.ItemEstimate }
	own.reads(own.wants(200, "GET", path, nil), &of)
	staff.reads(staff.wants(200, "GET", path, nil), &all)
	if len(of.Items) != 2 || len(all.Items) != 3 || of.Items[0].ID != ids["items"] || of.Items[0].End == nil {
		t.Fatalf("own %+v, all %+v", of, all)
	}
	// Nine minutes of work are before it, if any.
	if e := of.Items[0]; e.StageEnd == nil || time.Until(e.End.Likely) < 8*time.Minute || e.End.Low.After(e.End.Likely) || e.End.Likely.After(e.End.High) ||
		!e.StageEnd.Likely.Before(e.End.Likely) {
		t.Errorf("%+v %+v", e.End, e.StageEnd)
	}
	var shown record.ItemView
	own.reads(own.wants(200, "GET", fmt.Sprint("/api/v1/items/", ids["items"]), nil), &shown)
	if shown.End == nil || shown.End.Likely.Sub(of.Items[0].End.Likely).Abs() > time.Minute {
		t.Errorf("shown as %+v", shown.End)
	}
	theirs := own.wants(200, "GET", fmt.Sprint("/api/v1/items/estimates?id=", others["items"]), nil)
	absent := own.wants(200, "GET", "/api/v1/items/estimates?id=987654321", nil)
	if theirs.body != absent.body {
		t.Errorf("of others: %s, of nothing: %s", theirs.body, absent.body)
	}
	if a := own.do("GET", "/api/v1/items/estimates?id="+strings.Repeat("1&id=", 200)+"1", nil); a.status != 400 {
		t.Errorf("201 items: %d", a.status)
	}
	var queue struct {
		Bands []struct {
			Stage   string
			Empty   *struct{ Low, Likely, High float64 } `json:"empty_seconds"`
			Unknown string                               `json:"empty_unknown"`
		}
	}
	for _, c := range []*caller{own, staff} {
		a := c.wants(200, "GET", "/api/v1/queue", nil)
		c.reads(a, &queue)
		for _, b := range queue.Bands {
			if (b.Empty != nil) != (c == staff) || (b.Unknown == "") != (c == staff) || b.Empty != nil && b.Empty.Likely < 60 {
				t.Errorf("%s: %s", c.person.Email, a.body)
			}
		}
	}
}
