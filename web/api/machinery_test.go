package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// load has different numbers of items of each institution waiting, running and parked.
func (s *site) load() {
	s.t.Helper()
	for n, in := range []record.Institution{s.test, s.other} {
		s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT $1, 'Ingest', 'Receive', 'queued' || n || '.tar', 'in', 'e' || n, 1000, now() FROM generate_series(1, $2) n`, in.ID, 5+10*n)
		s.exec(`UPDATE work_items SET status = 'Suspended' WHERE institution_id = $1 AND name = 'queued1.tar'`, in.ID)
		s.exec(`UPDATE work_items SET status = 'Cancelled' WHERE institution_id = $1 AND name = 'queued2.tar'`, in.ID)
		s.exec(`UPDATE work_items SET claim_token = claim_token + 1, status = 'Started', node = 'host', pid = 7, worker = 'w', lease_expires_at = now() + interval '1 minute',
			stage_started_at = now(), attempt = 1, run_at = now() WHERE institution_id = $1 AND name = 'queued3.tar'`, in.ID)
	}
}

// People see their institution's part of the queue, and staff all of it.
func TestQueueIsShownByScope(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.load()
	own := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	operator := s.in("operator@archive.org", registry.RoleOperator, "")
	for who, tc := range map[*caller]struct{ due, each, ended int64 }{own: {2, 1, 1}, operator: {14, 2, 2}} {
		var v struct {
			Age      *float64 `json:"age_seconds"`
			Database *struct {
				Tables   []any
				Services []any
			}
			Total struct{ Due, Running, Parked, Bytes int64 }
			Bands []struct {
				Stage string
				Due   int64
			}
		}
		a := who.wants(200, "GET", "/api/v1/queue", nil)
		who.reads(a, &v)
		if v.Total.Due != tc.due || v.Total.Running != tc.each || v.Total.Parked != tc.each || v.Total.Bytes != 1000*(tc.due+tc.each) || v.Age == nil {
			t.Errorf("%s: %s", who.person.Email, a.body)
		}
		if len(v.Bands) != 1 || v.Bands[0].Stage != "Receive" || v.Bands[0].Due != tc.due {
			t.Errorf("%s: bands %s", who.person.Email, a.body)
		}
		if (v.Database != nil) != (who == operator) || v.Database != nil && len(v.Database.Tables) == 0 {
			t.Errorf("%s: the database: %s", who.person.Email, a.body)
		}
		var m struct {
			Partitions []struct {
				Institution string `json:"institution_identifier"`
				Due         int64
			}
		}
		a = who.wants(200, "GET", "/api/v1/queue/matrix", nil)
		who.reads(a, &m)
		if len(m.Partitions) != int(tc.each) || strings.Contains(a.body, "other.edu") != (who == operator) {
			t.Errorf("%s: matrix %s", who.person.Email, a.body)
		}
		var h struct {
			Hours []struct {
				Status string
				Items  int64
			}
		}
		a = who.wants(200, "GET", "/api/v1/queue/history?hours=2", nil)
		who.reads(a, &h)
		if len(h.Hours) != 2 || h.Hours[0].Status != "Cancelled" || h.Hours[0].Items != tc.ended || h.Hours[1].Status != "Suspended" || h.Hours[1].Items != tc.each {
			t.Errorf("%s: history %s", who.person.Email, a.body)
		}
		var g struct {
			Items []struct {
				Stage   string
				Items   int64
				Example int64
			}
			Complete bool
		}
		a = who.wants(200, "GET", "/api/v1/items/groups", nil)
		who.reads(a, &g)
		if len(g.Items) != 1 || g.Items[0].Stage != "Receive" || g.Items[0].Items != tc.each || !g.Complete || who.do("GET", fmt.Sprint("/api/v1/items/", g.Items[0].Example), nil).status != 200 {
			t.Errorf("%s: groups %s", who.person.Email, a.body)
		}
		var l struct {
			Items []struct {
				Stage                    string
				Waiting, Running, Parked int64
			}
		}
		a = who.wants(200, "GET", "/api/v1/stages", nil)
		who.reads(a, &l)
		if len(l.Items) < 10 || l.Items[0].Stage != "Receive" || l.Items[0].Waiting != tc.due || l.Items[0].Running != tc.each || l.Items[0].Parked != tc.each {
			t.Errorf("%s: stages %s", who.person.Email, a.body)
		}
	}
	for _, query := range []string{"?hours=0", "?hours=169", "?hours=x", "?institution=other.edu"} {
		if a := own.do("GET", "/api/v1/queue/history"+query, nil); a.status != 400 {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
}

// Figures are read once for all who ask within seconds.
func TestQueueIsReadRarely(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.load()
	c := s.in("operator@archive.org", registry.RoleOperator, "")
	began := time.Now()
	before := c.wants(200, "GET", "/api/v1/queue/matrix", nil)
	s.exec(`UPDATE work_items SET status = 'Cancelled' WHERE name = 'queued5.tar'`)
	if after := c.wants(200, "GET", "/api/v1/queue/matrix", nil); partitionsOf(after.body) != partitionsOf(before.body) && time.Since(began) < 5*time.Second {
		t.Errorf("it was read again: %s\n%s", before.body, after.body)
	}
}

func partitionsOf(matrix string) string {
	_, partitions, _ := strings.Cut(matrix, `"partitions"`)
	return partitions
}

// A stage is changed as it was seen, or not at all.
func TestStagesAreSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o, u := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	const at = "/api/v1/stages/Ingest/Format%20Identification"
	tag := o.wants(200, "GET", at, nil).header.Get("ETag")
	a := o.wants(200, "PATCH", at, `{"cap": 3, "timeout_seconds": 3600, "max_attempts": 7}`, "If-Match", tag)
	for _, want := range []string{`"cap":3`, `"timeout_seconds":3600`, `"max_attempts":7`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is not in %s", want, a.body)
		}
	}
	if a.header.Get("ETag") == tag || tag == "" || a.header.Get("ETag") != o.wants(200, "GET", at, nil).header.Get("ETag") {
		t.Errorf("the tag is %s, and was %s", a.header.Get("ETag"), tag)
	}
	if a := o.do("PATCH", at, `{"cap": 9}`, "If-Match", tag); a.status != 412 || a.code() != "changed" {
		t.Errorf("with an old tag: %d %s", a.status, a.body)
	}
	o.wants(200, "PATCH", at, `{"cap": 0}`)
	if got := ask[string](s, `SELECT concat_ws(' ', cap, processing_timeout, max_attempts) FROM stage_settings WHERE stage = 'Format Identification'`); got != "01:00:00 7" {
		t.Errorf("the settings are %s", got)
	}
	for body, status := range map[string]int{`{}`: 400, `{"cap": -1}`: 400, `{"max_attempts": 0}`: 400, `{"timeout_seconds": 31536001}`: 400, `{"lease": 1}`: 400} {
		if a := o.do("PATCH", at, body); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	for _, nowhere := range []string{"Ingest/Nowhere", "Nothing/Store", "Delete/Store"} {
		if a := o.do("PATCH", "/api/v1/stages/"+nowhere, `{"cap": 1}`); a.status != 404 {
			t.Errorf("%s: %d %s", nowhere, a.status, a.body)
		}
		if a := o.do("GET", "/api/v1/stages/"+nowhere, nil); a.status != 404 {
			t.Errorf("%s: %d %s", nowhere, a.status, a.body)
		}
	}
	if a := u.do("PATCH", at, `{"cap": 1}`); a.status != 403 {
		t.Errorf("a depositor sets a stage: %d", a.status)
	}
	s.onRecord("stages.set done Ingest/Format Identification, stages.set done Ingest/Format Identification, stages.set refused Delete/Store, "+
		"stages.set refused Ingest/Nowhere, stages.set refused Nothing/Store", "operator@archive.org")
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'stages.set' AND actor = 'ann@test.edu' AND outcome = 'refused'`); n != 1 {
		t.Errorf("%d refusals of the depositor are on record", n)
	}
}

// onRecord compares what a person has done.
func (s *site) onRecord(want, actor string) {
	s.t.Helper()
	got := ask[string](s, `SELECT coalesce(string_agg(operation || ' ' || outcome || ' ' || subject_id, ', ' ORDER BY operation, outcome, subject_id), '')
		FROM actions WHERE actor = $1 AND operation !~ '^(me|session|link|users)\.'`, actor)
	if got != want {
		s.t.Errorf("on record: %s\nwant %s", got, want)
	}
}

// Who pauses is on record; depositors see that a stage is paused, and not why.
func TestStagesArePaused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o, u := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	paused := func() string {
		return ask[string](s, `SELECT coalesce(string_agg(action || '/' || stage || ' ' || paused_by || ' ' || coalesce(pause_reason, '-'), ', ' ORDER BY action, stage), '') FROM stage_pauses WHERE paused`)
	}
	a := o.wants(200, "POST", "/api/v1/stages/Restore%20File/Requested/pause", `{"reason": "the bucket moves"}`)
	if !strings.Contains(a.body, `"paused":true`) || paused() != "Restore File/Requested operator@archive.org the bucket moves" {
		t.Errorf("%s: %s", paused(), a.body)
	}
	for _, path := range []string{"/api/v1/stages", "/api/v1/stages/Restore%20File/Requested"} {
		if a := u.wants(200, "GET", path, nil); !strings.Contains(a.body, `"paused":true`) || strings.Contains(a.body, "bucket moves") || strings.Contains(a.body, "operator@") {
			t.Errorf("a depositor sees %s", a.body)
		}
		if a := o.wants(200, "GET", path, nil); !strings.Contains(a.body, "bucket moves") {
			t.Errorf("an operator sees %s", a.body)
		}
	}
	o.wants(200, "POST", "/api/v1/stages/Fixity%20Check/Fixity%20Check/pause", `{}`)
	o.wants(200, "POST", "/api/v1/stages/Restore%20File/Requested/resume", `{}`)
	if got := paused(); got != "Fixity Check/Fixity Check operator@archive.org -" {
		t.Error(got)
	}
	o.wants(200, "POST", "/api/v1/stages/pause", `{"reason": "upgrade"}`)
	if n := strings.Count(paused(), "operator@archive.org upgrade"); n != ask[int](s, `SELECT count(*) FROM stage_pauses`) {
		t.Errorf("%d are paused: %s", n, paused())
	}
	admin := s.in("admin@archive.org", registry.RoleAdmin, "")
	admin.wants(200, "POST", "/api/v1/stages/resume", `{}`)
	if n := strings.Count(paused(), "upgrade"); n != ask[int](s, `SELECT count(*) FROM stage_pauses`) {
		t.Errorf("another ended the pause of all; %d are paused", n)
	}
	o.wants(200, "POST", "/api/v1/stages/resume", `{}`)
	if got := paused(); got != "Fixity Check/Fixity Check operator@archive.org -" {
		t.Errorf("after all is resumed: %s; want what was paused by itself", got)
	}
	a = admin.wants(200, "POST", "/api/v1/stages/Fixity%20Check/Fixity%20Check/resume", `{}`)
	if !strings.Contains(a.body, `"paused":true`) || !strings.Contains(a.body, `"by":"operator@archive.org"`) {
		t.Errorf("to another who resumes: %s; want that it is still paused, by whom", a.body)
	}
	pause := ask[int64](s, `SELECT id FROM pauses WHERE lifted_at IS NULL`)
	admin.wants(200, "POST", "/api/v1/stages/resume", fmt.Sprintf(`{"pause": %d}`, pause))
	if got := paused(); got != "" {
		t.Error(got)
	}
	admin.wants(404, "POST", "/api/v1/stages/resume", fmt.Sprintf(`{"pause": %d}`, pause))
	if a := o.do("POST", "/api/v1/stages/Ingest/Nowhere/pause", `{}`); a.status != 404 && a.status != 409 || strings.Contains(a.body, "SQLSTATE") {
		t.Errorf("nowhere: %d %s", a.status, a.body)
	}
	if a := u.do("POST", "/api/v1/stages/pause", `{}`); a.status != 403 {
		t.Errorf("a depositor pauses everything: %d", a.status)
	}
	s.onRecord("stages.pause done Fixity Check/Fixity Check, stages.pause done Restore File/Requested, stages.pause refused Ingest/Nowhere, "+
		"stages.pause_all done all, stages.resume done Restore File/Requested, stages.resume_all done all", "operator@archive.org")
}

// A worker is drained for good; one that there is not is not found.
func TestWorkersAreDrained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO worker_processes (worker, node, host, pid, pid_started, heartbeat, pools) VALUES ('node-1-7', 'node-1', 'host', 7, 1, interval '1 minute', '[{"name": "all", "slots": 4}]')`)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	if a := o.wants(200, "GET", "/api/v1/workers", nil); !strings.Contains(a.body, `"worker":"node-1-7"`) || !strings.Contains(a.body, `"slots":4`) {
		t.Error(a.body)
	}
	s.exec(`INSERT INTO worker_processes (worker, node, host, pid, pid_started, heartbeat, ended_at, ending)
		SELECT 'gone-' || n, 'node-2', 'host', n, 1, interval '1 minute', now() - n * interval '1 minute', 'oom' FROM generate_series(1, 21) n`)
	var ended struct{ Items []record.EndedWorker }
	o.reads(o.wants(200, "GET", "/api/v1/workers/ended", nil), &ended)
	if n := len(ended.Items); n != 20 || ended.Items[0].Worker != "gone-1" || ended.Items[19].Worker != "gone-20" || ended.Items[0].Ending != "oom" {
		t.Errorf("%d workers have ended: %+v", n, ended.Items)
	}
	if a := o.wants(200, "POST", "/api/v1/workers/node-1-7/drain", nil); !strings.Contains(a.body, `"draining":true`) {
		t.Error(a.body)
	}
	if a := o.do("POST", "/api/v1/workers/nobody/drain", nil); a.status != 404 || strings.Contains(a.body, "node-1") {
		t.Errorf("nobody: %d %s", a.status, a.body)
	}
	if a := s.in("auditor@test.edu", registry.RoleAuditor, "test.edu").do("GET", "/api/v1/workers", nil); a.status != 403 {
		t.Errorf("an auditor of an institution sees hosts: %d", a.status)
	}
	s.onRecord("workers.drain done node-1-7, workers.drain refused nobody", "operator@archive.org")
}

// Jobs are paused, and have the next scheduler run them.
func TestSchedules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 minute'`)
	due := func() bool { return ask[bool](s, `SELECT next_run_at <= now() FROM schedules WHERE job = 'janitor'`) }
	if a := o.wants(200, "GET", "/api/v1/schedules", nil); !strings.Contains(a.body, `"job":"janitor"`) || due() {
		t.Error(a.body)
	}
	if a := o.wants(200, "PATCH", "/api/v1/schedules/janitor", `{"paused": true}`); !strings.Contains(a.body, `"paused":true`) {
		t.Error(a.body)
	}
	if a := o.do("POST", "/api/v1/schedules/janitor/run", nil); a.status != 409 || !strings.Contains(a.text("detail"), "janitor is paused; resume it first") || due() {
		t.Errorf("a paused job: %d %s", a.status, a.body)
	}
	o.wants(200, "PATCH", "/api/v1/schedules/janitor", `{"paused": false}`)
	o.wants(202, "POST", "/api/v1/schedules/janitor/run", nil)
	if !due() {
		t.Error("the job is not due")
	}
	s.exec(`UPDATE schedules SET held_until = now() + interval '1 minute', began_at = now(), next_run_at = now() + interval '1 minute' WHERE job = 'janitor'`)
	if a := o.do("POST", "/api/v1/schedules/janitor/run", nil); a.status != 409 || !strings.Contains(a.text("detail"), "in progress") || due() {
		t.Errorf("a job in progress: %d %s", a.status, a.body)
	}
	for _, body := range []string{`{}`, `{"every": 1}`, `{"paused": "yes"}`} {
		if a := o.do("PATCH", "/api/v1/schedules/janitor", body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, nothing := range []string{"nothing", "a%EF%BF%BDb", "a'b"} {
		if a := o.do("POST", "/api/v1/schedules/"+nothing+"/run", nil); a.status != 404 && a.status != 409 || strings.Contains(a.body, "SQLSTATE") {
			t.Errorf("%s: %d %s", nothing, a.status, a.body)
		}
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'schedules.run' AND outcome = 'refused' AND subject_id IN ('nothing', E'a\uFFFDb', 'a''b')`); n != 3 {
		t.Errorf("%d refusals are on record", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation LIKE 'schedules.%' AND outcome = 'done' AND actor = 'operator@archive.org' AND subject_id = 'janitor'`); n != 3 {
		t.Errorf("%d are on record", n)
	}
}

// Whether the server is up is for everyone, its version for those who have signed in.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nobody := s.browser()
	if a := nobody.wants(200, "GET", "/api/v1/health", nil); a.text("status") != "up" || strings.Contains(a.body, "test") {
		t.Error(a.body)
	}
	if a := nobody.do("GET", "/api/v1/version", nil); a.status != 401 {
		t.Errorf("the version: %d %s", a.status, a.body)
	}
	if a := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu").wants(200, "GET", "/api/v1/version", nil); a.text("version") != "test" {
		t.Error(a.body)
	}
}

// A server whose database does not answer is not up.
func TestHealthWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.web.Close()
	if a := s.browser().do("GET", "/api/v1/health", nil); a.status != 503 || a.code() != "try-later" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
