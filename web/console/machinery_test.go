package console_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api"
)

// hostileText is a text of others that would change a page, or turn its lines around.
const hostileText = `<script>alert(1)</script> "gone" ` + "\u202e"

// formOf is the first form for an operation that has a field with a value.
func (a answer) formOf(t *testing.T, operation, field, value string) url.Values {
	t.Helper()
	for rest := a.text; ; {
		i := strings.Index(rest, `action="/do/`+operation+`"`)
		if i < 0 {
			t.Fatalf("%s has no form for %s with %s %q", a.path, operation, field, value)
		}
		form := answer{a.status, a.path, rest[i:], a.header}.form(t, operation)
		if form.Get(field) == value {
			return form
		}
		rest = rest[i+1:]
	}
}

// done sends a form, and fails the test unless it was carried out.
func (b *browser) done(operation string, form url.Values) answer {
	b.t.Helper()
	a := b.send("/do/"+operation, form)
	if a.status != http.StatusOK || strings.Contains(a.text, `action="/do/`+operation+`" class="stack">`) {
		b.t.Fatalf("%s: %d %s", operation, a.status, wordsIn(a.text))
	}
	a.shows(b.t, "Done: ")
	return a
}

// refused sends a form, and fails the test unless it was refused with a reason, and what was
// typed is there again.
func (b *browser) refused(operation string, form url.Values, status int, reason string, typed ...string) answer {
	b.t.Helper()
	a := b.send("/do/"+operation, form)
	if a.status != status {
		b.t.Errorf("%s: %d, want %d: %s", operation, a.status, status, wordsIn(a.text))
	}
	a.shows(b.t, reason)
	for _, text := range typed {
		if !strings.Contains(html.UnescapeString(a.text), text) {
			b.t.Errorf("%s: %q was lost: %s", operation, text, a.text)
		}
	}
	return a
}

// The hostileText text as people read it: as it is, and where the registry cleans texts before.
const (
	made    = `<script>alert(1)</script> "gone" \u202e`
	plainly = `<script>alert(1)</script> "gone"`
)

// escaped fails the test if a page has the hostileText text as it is, or lacks it.
func (a answer) escaped(t *testing.T, as string) {
	t.Helper()
	if strings.Contains(a.text, "<script>alert") || strings.Contains(a.text, "\u202e") {
		t.Errorf("%s shows a hostileText text as it is: %s", a.path, a.text)
	}
	a.shows(t, as)
}

// queued has items of two institutions due and parked.
func (s *site) queued() {
	s.t.Helper()
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT CASE WHEN n < 5 THEN $1::bigint ELSE $2 END, 'Ingest', 'Receive', 'due-' || n || '.tar', 'in', 'e' || n, CASE WHEN n % 2 = 0 THEN 3::bigint << 30 ELSE 2048 END, now()
		FROM generate_series(1, 6) n`, s.test.ID, s.other.ID)
	s.exec(`UPDATE work_items SET run_at = now() - interval '3 hours' WHERE name = 'due-1.tar'`)
	s.parked(4)
}

// parked are items of test.edu that failed at Store.
func (s *site) parked(n int) {
	s.t.Helper()
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', 'parked-' || n || '.tar', 'in', 'e' || n, n, now() FROM generate_series(1, $2::int) n`, s.test.ID, n)
	s.exec(`UPDATE work_items SET stage = 'Store', status = 'Failed', retry = false, needs_admin_review = true, claim_token = 3, entered_token = 2, error_code = 'timeout'
		WHERE name LIKE 'parked-%'`)
}

// worker registers a worker process.
func (s *site) worker(name string) {
	s.t.Helper()
	s.exec(`INSERT INTO worker_processes (worker, node, host, pid, pid_started, heartbeat, pools)
		VALUES ($1, 'node-1', 'host', 7, 1, interval '1 minute', '[{"name": "small", "slots": 4, "stages": ["Receive", "Store"], "max_size": 1073741824}]')`, name)
}

// The page of the queue shows staff all items, and members those of their institution; staff
// pauses stages on it.
func TestQueuePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(a *api.API) {
		a.Next = func(context.Context, []string, int) ([]int64, error) { return []int64{2}, nil }
	})
	s.queued()
	o, member := s.in(registry.RoleOperator, ""), s.in(registry.RoleInstitutionalUser, "test.edu")
	own := member.sees("/queue", "4 due, the first for 3 hours", "4 parked: failed or suspended", "Receive 2 live 2 live 4 live", "The numbers are those of your institution")
	own.lacks(t, "other.edu", "Pause all", "Who is next")
	all := o.sees("/queue", "6 due, the first for 3 hours", "4 parked", "Receive 3 live 3 live 6 live", "✕ overdue allowed: 1 hour", "test.edu 4 0 0 0 4", "other.edu 2 0 0 0 0", "2 due-2.tar test.edu Receive 3.0 GiB 0")
	all.lacks(t, "The numbers are those of your institution")

	pause := all.formOf(t, "stages.pause", "stage", "Receive")
	pause.Set("reason", hostileText)
	member.refused("stages.pause", pause, http.StatusForbidden, "Nothing was changed", `<script>alert(1)</script> "gone"`)
	paused := func() bool { return ask[bool](s, `SELECT paused FROM stage_settings WHERE stage = 'Receive'`) }
	if paused() {
		t.Error("a member paused a stage")
	}
	after := o.done("stages.pause", pause)
	after.escaped(t, plainly)
	after.shows(t, "Done: pause a stage: what runs continues, and new items wait: Receive.", "‖ paused")
	if by := ask[string](s, `SELECT paused_by FROM stage_settings WHERE stage = 'Receive'`); !paused() || by != o.person.Email {
		t.Errorf("paused: %t, by %s", paused(), by)
	}
	member.sees("/queue", "‖ paused").lacks(t, "alert(1)")
	o.done("stages.resume", after.form(t, "stages.resume")) // undo
	if paused() {
		t.Error("the pause was not undone")
	}
	all2 := all.form(t, "stages.pause_all")
	all2.Set("reason", "The network is down.")
	o.done("stages.pause_all", all2).shows(t, "Checks of stored copies are paused: The network is down.", "Resume all")
	o.done("stages.resume_all", o.open("/queue").form(t, "stages.resume_all"))
	if n := ask[int](s, `SELECT count(*) FROM stage_pauses WHERE paused`); n != 0 {
		t.Errorf("%d stages are paused", n)
	}
}

// The settings of a stage are changed by a form that has them as they were seen.
func TestStagePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.in(registry.RoleOperator, "")
	if a := s.in(registry.RoleInstitutionalAdmin, "test.edu").open("/stages"); a.status != http.StatusForbidden {
		t.Errorf("a member sees the settings of stages: %d", a.status)
	}
	o.sees("/stages", "Ingest Format Identification", "Restore Object Requested", "Overdue after", "1h00m")
	page := o.sees("/stages/Ingest/Store", "Stage Store", "0 wait, 0 run")
	set := page.form(t, "stages.set")
	set.Set("cap", "7")
	set.Set("timeout_seconds", "90")
	o.done("stages.set", set)
	if n := ask[int](s, `SELECT cap FROM stage_settings WHERE stage = 'Store'`); n != 7 {
		t.Errorf("the cap is %d", n)
	}
	set.Set("cap", "9")
	o.refused("stages.set", set, http.StatusPreconditionFailed, "changed", `value="9"`)
	if a := o.open("/stages/Ingest/Nowhere"); a.status != http.StatusNotFound {
		t.Errorf("a stage that is not there: %d", a.status)
	}
	add := o.open("/stages").form(t, "stages.add")
	add.Set("name", "Appraise")
	add.Set("after", "Receive")
	o.done("stages.add", add)
	o.refused("stages.add", add, http.StatusConflict, "Appraise", "Appraise")
	o.done("stages.remove", o.sees("/stages/Ingest/Appraise", "programs over HTTP").form(t, "stages.remove"))
	if n := ask[int](s, `SELECT count(*) FROM stage_settings WHERE stage = 'Appraise'`); n != 0 {
		t.Error("the stage is there still")
	}
}

// Workers are shown with what they take and how they ended, and are drained.
func TestWorkersPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.in(registry.RoleOperator, "")
	o.sees("/workers", "No worker runs.", "No worker has ended in the last seven days.")
	s.worker("node-1-7")
	s.worker("node-1-8")
	s.worker("gone")
	s.exec(`UPDATE worker_processes SET ended_at = now(), ending = 'oom' WHERE worker = 'gone'`)
	page := o.sees("/workers", "small (up to 1.0 GiB) 2 0 % 0 of 8 taken, 8 free", "small: 4 slots, up to 1.0 GiB, Receive, Store", "gone node-1, process 7 ✕ oom")
	form := page.formOf(t, "workers.drain", "worker", "node-1-8")
	o.done("workers.drain", form).shows(t, "‖ draining")
	if names := ask[string](s, `SELECT string_agg(worker, ',') FROM worker_processes WHERE draining`); names != "node-1-8" {
		t.Errorf("%s drain", names)
	}
	form.Set("worker", "gone")
	o.refused("workers.drain", form, http.StatusNotFound, "Nothing was changed")
	if a := s.in(registry.RoleAuditor, "test.edu").open("/workers"); a.status != http.StatusForbidden || strings.Contains(a.text, "node-1") {
		t.Errorf("an auditor of an institution sees hosts: %d", a.status)
	}
}

// Services are held and released, and jobs paused and run.
func TestServicesAndSchedulesPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO known_services (service, of_process) VALUES ('s3:Wasabi OR', false), ('disk', true)`)
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 hour'`)
	s.exec(`UPDATE schedules SET next_run_at = now() - interval '10 minutes' WHERE job = 'topic-log'`)
	s.exec(`UPDATE schedules SET error = $1, ended_at = now(), began_at = now(), runs = 3, failures = 1 WHERE job = 'janitor'`, hostileText)
	o := s.in(registry.RoleOperator, "")
	page := o.sees("/services", "All services answer.", "s3:Wasabi OR ✓ ok")
	hold := page.form(t, "services.hold")
	if hold.Get("service") != "s3:Wasabi OR" {
		t.Errorf("the service of a process can be held: %v", hold)
	}
	hold.Set("reason", hostileText)
	after := o.done("services.hold", hold)
	after.escaped(t, plainly)
	after.shows(t, "1 service is not in order.")
	if by := ask[string](s, `SELECT held_by FROM known_services WHERE service = 's3:Wasabi OR'`); by != o.person.Email {
		t.Errorf("held by %s", by)
	}
	o.done("services.release", after.form(t, "services.release")).shows(t, "All services answer.")
	hold.Set("service", "s3:Nowhere")
	o.refused("services.hold", hold, http.StatusConflict, "There is no service 's3:Nowhere'", `value="<script>`)

	jobs := o.sees("/schedules", "janitor ✕ failed", "topic-log ✕ late by 10m", "1 of 3", "spot-restore • never ran")
	jobs.escaped(t, made)
	run := jobs.formOf(t, "schedules.run", "job", "spot-restore")
	pause := jobs.formOf(t, "schedules.set", "job", "spot-restore")
	undo := o.done("schedules.set", pause)
	undo.shows(t, "spot-restore ‖ paused")
	o.refused("schedules.run", run, http.StatusConflict, "Spot-restore is paused")
	o.done("schedules.set", undo.form(t, "schedules.set"))
	o.done("schedules.run", run)
	if !ask[bool](s, `SELECT next_run_at <= now() AND NOT paused FROM schedules WHERE job = 'spot-restore'`) {
		t.Error("the job is not due")
	}
}

// The mirror shows both sides, or why they are not known.
func TestMirrorPage(t *testing.T) {
	t.Parallel()
	with := func(runs *bool) func(*api.API) {
		return func(a *api.API) {
			a.Mirror = func(context.Context) (record.MirrorView, error) {
				return record.MirrorView{Known: true, NSQD: "nsqd:4151", Running: runs, Admin: "https://nsqadmin.example.org/x", Behind: 2, Oldest: 90, Topics: []record.MirrorTopic{{Topic: "ingest06_storage", Due: 5, Depth: 2, Drift: 3, PausedInNSQ: true}}}, nil
			}
		}
	}
	o := newSite(t, with(new(bool))).in(registry.RoleOperator, "")
	o.sees("/mirror", "nsqd is off by 3 messages. No mirror runs", "ingest06_storage 5 2 0 0 0 0 ≠ 3 ‖ paused in NSQ only", "2 messages, the first for 1 min", "nsqd:4151")
	if a := o.sees("/mirror", "Mirror ‖ stopped", "Published last never", "Open nsqadmin"); !strings.Contains(a.text, `href="https://nsqadmin.example.org/x"`) {
		t.Error(a.text)
	}
	o.sees("/", "No mirror to NSQ runs.")
	newSite(t, with(nil)).in(registry.RoleOperator, "").sees("/", "nsqd shows another queue: it is off by 3 messages.")
	newSite(t).in(registry.RoleOperator, "").sees("/mirror", "Not known now: This server does not know where nsqd is: its administrator sets FAROL_NSQD_HTTP_ADDR")
}
