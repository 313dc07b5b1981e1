package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// parked makes n failed items of an institution, and returns their IDs.
func (s *site) parked(in record.Institution, n int) []int64 {
	s.t.Helper()
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', 'parked-' || n || '.tar', 'in', 'e' || n, n, now() FROM generate_series(1, $2::int) n`, in.ID, n)
	s.exec(`UPDATE work_items SET stage = 'Store', status = 'Failed', retry = false, needs_admin_review = true, claim_token = 3, entered_token = 2, error_code = 'timeout'
		WHERE name LIKE 'parked-%' AND institution_id = $1`, in.ID)
	return ask[[]int64](s, `SELECT array_agg(id ORDER BY id) FROM work_items WHERE name LIKE 'parked-%' AND institution_id = $1`, in.ID)
}

// shownPlan is what the API shows of a plan.
type shownPlan struct {
	ID         int64            `json:"id"`
	State      string           `json:"state"`
	Items      int64            `json:"items"`
	Condition  string           `json:"condition"`
	Counts     map[string]int64 `json:"counts"`
	Carry      *string          `json:"carry"`
	ApprovedBy *string          `json:"approved_by"`
	BegunBy    *string          `json:"begun_by"`
	Sample     []any            `json:"sample"`
}

func (c *caller) makes(body string) (p shownPlan) {
	c.s.t.Helper()
	c.reads(c.wants(http.StatusCreated, "POST", "/api/v1/plans", body), &p)
	return p
}

// until waits for a state of a plan that no server works on.
func (c *caller) until(id int64, state string) (p shownPlan) {
	c.s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		c.reads(c.wants(http.StatusOK, "GET", fmt.Sprint("/api/v1/plans/", id), nil), &p)
		if p.State == state && p.Carry == nil {
			return p
		}
	}
	c.s.t.Fatalf("plan %d is %+v, want %s", id, p, state)
	return p
}

// A plan is made, looked at, applied by a server and undone, in the name of the person.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.parked(s.test, 3)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	p := o.makes(`{"action": "cancel", "reason": "Trials.", "filter": {"status": ["Failed"], "institution": "test.edu", "error_code": "timeout"}}`)
	if p.Items != 3 || p.State != "ready" || len(p.Sample) != 3 {
		t.Fatalf("plan = %+v", p)
	}
	at := fmt.Sprint("/api/v1/plans/", p.ID)
	tag := o.wants(200, "GET", at, nil).header.Get("ETag")
	if a := o.do("POST", at+"/apply", "{}", "If-Match", tag); a.status != 400 || !strings.Contains(a.body, "Idempotency-Key") {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	o.wants(http.StatusAccepted, "POST", at+"/apply", "{}", "If-Match", tag, "Idempotency-Key", "k1")
	if p = o.until(p.ID, "applied"); p.Counts["done"] != 3 || p.BegunBy == nil || *p.BegunBy != "operator@archive.org" {
		t.Errorf("applied plan = %+v", p)
	}
	if got := ask[string](s, `SELECT string_agg(DISTINCT status || ' ' || note, ',') FROM work_items WHERE id = ANY ($1)`, ids); got != "Cancelled Trials." {
		t.Errorf("items are %s", got)
	}
	if got := ask[string](s, `SELECT string_agg(DISTINCT actor, ',') FROM work_item_audit WHERE work_item_id = ANY ($1)`, ids); got != "operator@archive.org" {
		t.Errorf("the audit names %s", got)
	}
	if a := o.do("DELETE", at, nil); a.status != 409 || !strings.Contains(a.body, "it is applied") {
		t.Errorf("deleted although it is applied: %d %s", a.status, a.body)
	}
	if a := o.do("POST", at+"/undo", nil, "If-Match", tag); a.status != 412 {
		t.Errorf("undo by an old tag: %d %s", a.status, a.body)
	}
	o.wants(http.StatusAccepted, "POST", at+"/undo", nil)
	if p = o.until(p.ID, "undone"); p.Counts["undone"] != 3 {
		t.Errorf("undone plan = %+v", p)
	}
	if got := ask[string](s, `SELECT string_agg(DISTINCT status, ',') FROM work_items WHERE id = ANY ($1)`, ids); got != "Failed" {
		t.Errorf("items are %s again", got)
	}
	var items struct{ Items []struct{ State string } }
	o.reads(o.wants(200, "GET", at+"/items?state=undone&limit=2", nil), &items)
	if len(items.Items) != 2 {
		t.Errorf("items of the plan: %+v", items)
	}
	o.wants(http.StatusNoContent, "DELETE", at, nil)
	o.wants(http.StatusNotFound, "GET", at, nil)
	o.wants(http.StatusNotFound, "GET", at+"/items", nil)
	if got := ask[string](s, `SELECT string_agg(operation || ' ' || outcome, ', ' ORDER BY id) FROM actions WHERE operation LIKE 'plans.%'`); got !=
		"plans.make done, plans.apply done, plans.delete refused, plans.undo done, plans.delete done" {
		t.Errorf("actions: %s", got)
	}
}

// A large plan takes a second person, and a proof of the one who applies it.
func TestLargePlanTakesTwoPeople(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parked(s.test, 4) // the site allows three
	o, second := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("second@archive.org", registry.RoleOperator, "")
	p := o.makes(`{"action": "requeue", "filter": {"review": true}}`)
	at := fmt.Sprint("/api/v1/plans/", p.ID)
	apply := func(c *caller, key string) answer { return c.do("POST", at+"/apply", "{}", "Idempotency-Key", key) }
	if a := apply(o, "a"); a.status != 409 || !strings.Contains(a.body, "another person") {
		t.Errorf("alone: %d %s", a.status, a.body)
	}
	if a := o.do("POST", at+"/approve", nil); a.status != 409 || !strings.Contains(a.body, "their own") {
		t.Errorf("the own plan: %d %s", a.status, a.body)
	}
	if a := o.program("plans.apply", "plans.read"); apply(a, "b").status != 403 {
		t.Error("a token applies a large plan")
	}
	tag := o.wants(200, "GET", at, nil).header.Get("ETag")
	s.exec(`UPDATE plans SET created_by = 'farol_admin (' || created_by || ')'`) // the same person, as a command names people
	if a := o.do("POST", at+"/approve", nil); a.status != 409 || !strings.Contains(a.body, "their own") {
		t.Errorf("the own plan, made under another name: %d %s", a.status, a.body)
	}
	second.wants(200, "POST", at+"/approve", nil, "If-Match", tag)
	if a := second.do("POST", at+"/approve", nil); a.status != 409 {
		t.Errorf("approved twice: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes' WHERE user_id = $1`, o.person.ID)
	if a := apply(o, "c"); a.code() != "fresh-proof-needed" {
		t.Errorf("without a fresh proof: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE sessions SET strong_at = now()`)
	if a := apply(o, "d"); a.status != http.StatusAccepted {
		t.Errorf("approved: %d %s", a.status, a.body)
	}
	if p = o.until(p.ID, "applied"); p.ApprovedBy == nil || *p.ApprovedBy != "second@archive.org" || p.Counts["done"] != 4 {
		t.Errorf("plan = %+v", p)
	}
	if _, err := s.db.Exec(t.Context(), `UPDATE plans SET approved_by = created_by`); err == nil {
		t.Error("the database lets one person be two")
	}
	if _, err := s.db.Exec(t.Context(), `UPDATE plans SET approved_by_user = created_by_user`); err == nil {
		t.Error("the database lets one user be two")
	}
}

// A plan that a server left behind when it died is taken up by another.
func TestPlanOfADeadServerGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.parked(s.test, 3)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	p := o.makes(`{"action": "cancel", "filter": {"status": ["Failed"]}}`)
	s.exec(`SELECT plan_apply($1, 1)`, p.ID) // the first item, and then it died
	s.exec(`UPDATE plans SET carry = 'apply', carry_for = 'operator@archive.org' WHERE id = $1`, p.ID)
	if p = o.until(p.ID, "applied"); p.Counts["done"] != 3 {
		t.Errorf("plan = %+v", p)
	}
	if got := ask[string](s, `SELECT string_agg(actor, ',' ORDER BY work_item_id) FROM work_item_audit WHERE work_item_id = ANY ($1) AND actor LIKE '%@%'`, ids); got !=
		"operator@archive.org,operator@archive.org" {
		t.Errorf("the audit names %s for the items that were left", got)
	}
}

// What a filter says is quoted, and what it finds is what the list of items finds.
func TestPlanFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parked(s.test, 3)
	s.parked(s.other, 2)
	s.exec(`UPDATE work_items SET error_code = 'it''s', storage_option = 'Wasabi-VA' WHERE id = 1`)
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) VALUES ($1, 'Ingest', 'Receive', $2, 'in', 'e', 9, now())`,
		s.test.ID, `a'; DROP TABLE plans; --%s%L.tar`)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	for filter, want := range map[string]int64{
		`{"name": "a'; DROP TABLE plans; --%s%L.tar"}`: 1, `{"error_code": "it's"}`: 1, `{"institution": "other.edu"}`: 2, `{"size_min": 3}`: 2, `{"size_max": 1}`: 2,
		`{"name_prefix": "parked-"}`: 5, `{"ids": [1, 2]}`: 2, `{"status": ["Failed", "Suspended"]}`: 5, `{"stage": ["Store"], "action": ["Ingest"]}`: 5, `{"name_prefix": "a'"}`: 1,
		`{"review": true, "institution": "test.edu"}`: 3, `{"created_after": "2020-01-01T00:00:00Z"}`: 6, `{"updated_before": "2020-01-01T00:00:00Z"}`: 0,
		`{"status": ["Pending"]}`: 1, `{"worker": "w"}`: 0, `{"object": "test.edu/parked-2"}`: 1, `{"storage_option": "Wasabi-VA"}`: 1,
	} {
		a := o.do("POST", "/api/v1/plans", `{"action": "cancel", "filter": `+filter+`}`)
		var p shownPlan
		o.reads(a, &p)
		if want == 0 && a.status != 404 || want > 0 && p.Items != want {
			t.Errorf("%s: %d %s, want %d items", filter, a.status, a.body, want)
		}
	}
	for body, why := range map[string]string{
		`{"action": "cancel", "filter": {}}`:                                         "filter is empty",
		`{"action": "cancel"}`:                                                       "filter",
		`{"action": "delete", "filter": {"ids": [1]}}`:                               "action",
		`{"action": "cancel", "filter": {"where": "true"}}`:                          "where",
		`{"action": "cancel", "filter": {"status": ["Gone"]}}`:                       "status",
		`{"action": "set priority", "filter": {"ids": [1]}}`:                         "priority",
		`{"action": "cancel", "priority": 3, "filter": {"ids": [1]}}`:                "priority",
		`{"action": "cancel", "stage": "Store", "filter": {"ids": [1]}}`:             "stage",
		`{"action": "set priority", "priority": 101, "filter": {"ids": [1]}}`:        "priority",
		`{"action": "cancel", "reason": "a\u0000b", "filter": {"ids": [1]}}`:         "NUL",
		`{"action": "cancel", "filter": {"updated_after": "yesterday", "ids": [1]}}`: "updated_after",
		`{"action": "cancel", "filter": {"name": "a\u0000b"}}`:                       "NUL",
	} {
		if a := o.do("POST", "/api/v1/plans", body); a.status != 400 && a.status != 409 || !strings.Contains(a.body, why) {
			t.Errorf("%s: %d %s, want a problem about %s", body, a.status, a.body, why)
		}
	}
	for query, why := range map[string]string{"?state=odd": "state", "?after=x": "after", "?limit=0": "limit", "?status=ready": "status"} {
		if a := o.do("GET", "/api/v1/plans"+query, nil); a.status != 400 || !strings.Contains(a.body, why) {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	var page struct {
		Items []shownPlan
		Next  *string
	}
	o.reads(o.wants(200, "GET", "/api/v1/plans?state=ready&limit=5", nil), &page)
	if len(page.Items) != 5 || page.Next == nil || page.Items[0].ID < page.Items[4].ID {
		t.Fatalf("plans: %+v", page)
	}
	first := page.Items[4].ID
	o.reads(o.wants(200, "GET", *page.Next, nil), &page)
	if len(page.Items) == 0 || page.Items[0].ID >= first {
		t.Errorf("the next page begins with %+v after plan %d", page.Items, first)
	}
}
