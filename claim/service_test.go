package claim_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// What fails around an item costs it nothing: neither an attempt nor its place in
// the queue, however often it happens. The ledger says which service it was.
func TestFaultsAroundAnItemSpendNoAttempt(t *testing.T) {
	t.Parallel()
	away := &fault.Error{Service: fault.Bucket("Wasabi-OR"), Kind: fault.Unavailable, Said: "connection refused", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		result        error
		service, code string
	}{
		"a bucket":             {fmt.Errorf("store a.txt: %w", away), "s3:Wasabi-OR", "storage-unavailable"},
		"one of many errors":   {errors.Join(errors.New("a.txt: odd"), fmt.Errorf("b.txt: %w", away)), "s3:Wasabi-OR", "storage-unavailable"},
		"in a transient one":   {claim.Transient("bad-copy", away), "s3:Wasabi-OR", "storage-unavailable"},
		"the disk":             {&fault.Error{Service: fault.Disk, Kind: fault.Full, Err: syscall.ENOSPC}, "disk", "disk-full"},
		"a cut connection":     {fmt.Errorf("record: %w", &pgconn.PgError{Code: "57P01", Message: "terminating connection"}), "database", "database-unavailable"},
		"a deadlock":           {fmt.Errorf("record: %w", &pgconn.PgError{Code: "40P01"}), "database", "database-overloaded"},
		"a rule it breaks":     {fmt.Errorf("record: %w", &pgconn.PgError{Code: "23514"}), "database", "database-refused"},
		"a way that is broken": {fmt.Errorf("record: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET}), "database", "database-unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Store", 1)
			e := q.engine()
			for range 5 { // more than there are attempts
				q.settle(q.claimOne(e, "Store"), claim.Done{}, tc.result)
				if wait := value[time.Duration](q, `SELECT run_at - now() FROM work_items WHERE id = $1`, id); wait > 20*time.Second {
					t.Errorf("it waits for %v", wait)
				}
				q.exec(`UPDATE work_items SET run_at = now()`)
			}
			if got := value[string](q, `SELECT status || ' ' || retry || ' ' || attempt || ' ' || needs_admin_review || ' ' || error_code FROM work_items`); got != "Pending true 0 false "+tc.code {
				t.Errorf("the item is %q", got)
			}
			if n := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held' AND service = $1 AND error_code = $2`, tc.service, tc.code); n != 5 {
				t.Errorf("%d of 5 attempts are held for %s", n, tc.service)
			}
			if n := value[int](q, `SELECT succeeded_after_retries FROM outcomes WHERE action = 'Ingest' AND stage = 'all'`); n != 0 {
				t.Errorf("%d items count as retried", n)
			}
		})
	}
}

// What is the item's own stays the item's, whatever else went wrong at the same time.
func TestVerdictsAreNoFaults(t *testing.T) {
	t.Parallel()
	away := &fault.Error{Service: fault.Redis, Kind: fault.Full, Err: errors.New("OOM")}
	for name, result := range map[string]error{
		"a verdict":       errors.Join(claim.Fatal("invalid-bag", "bad"), away),
		"a lost claim":    fmt.Errorf("%w: %w", claim.ErrLost, away),
		"sent back":       claim.SendBack("Receive", "gone"),
		"nobody's known":  errors.New("odd"),
		"a stage's words": claim.Transient("extra-copy", errors.New("there is a further copy")),
	} {
		if f := claim.FaultIn(result); f != nil {
			t.Errorf("%s is the fault of %s", name, f.Service)
		}
	}
	if claim.FaultIn(nil) != nil {
		t.Error("nothing is a fault")
	}
}

// An ending that a process in the wrong bucket would come to as well needs a second
// process; alone, a second look.
func TestDoubtNeedsASecondWitness(t *testing.T) {
	t.Parallel()
	gone := claim.Doubt(fault.Bucket("receiving"), claim.Suspend("bag-gone", "The bag is gone."))
	look := func(q *queue, e *claim.Engine) (status string) {
		q.t.Helper()
		q.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
		h := q.claimOne(e, "Receive")
		q.settle(h, claim.Done{}, e.Believe(context.Background(), h.Item, gone))
		return value[string](q, `SELECT status FROM work_items`)
	}
	alive := func(q *queue, e *claim.Engine) {
		q.t.Helper()
		q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat)
			VALUES ($1, 'n', 1, 'h', 1, '[{"name": "all", "slots": 1}]', '1 hour')`, e.Worker())
	}
	t.Run("two workers", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		q.put("Receive", 1)
		one, other := q.engine(), q.engine()
		alive(q, one)
		alive(q, other)
		for range 3 {
			if got := look(q, one); got != "Pending" {
				t.Fatalf("on the word of one worker the item is %s", got)
			}
		}
		if got := look(q, other); got != "Suspended" {
			t.Errorf("on the word of two it is %s", got)
		}
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		q.put("Receive", 1)
		e := q.engine()
		alive(q, e)
		if first, second := look(q, e), look(q, e); first != "Pending" || second != "Suspended" {
			t.Errorf("at first %s, then %s", first, second)
		}
	})
	t.Run("beside one that sees the service fail", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		q.put("Receive", 1)
		e, bad := q.engine(), q.engine()
		alive(q, e)
		alive(q, bad)
		must.Do(t, bad.Report(t.Context(), claim.ServiceReport{Service: "s3:receiving", State: claim.ServiceFailing}))
		if first, second := look(q, e), look(q, e); first != "Pending" || second != "Suspended" {
			t.Errorf("at first %s, then %s", first, second)
		}
	})
}

// What a claim is to leave alone it leaves alone, and nothing else.
func TestClaimLeavesScopesAlone(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	standard, wasabi, unknown, early := q.put("Store", 1), q.put("Store", 1), q.put("Store", 1), q.put("Receive", 1)
	q.exec(`UPDATE work_items SET storage_option = 'Standard' WHERE id = $1`, standard)
	q.exec(`UPDATE work_items SET storage_option = 'Wasabi-OR' WHERE id = $1`, wasabi)
	e := q.engine()
	stages := []claim.Want{{Stage: "Store", Most: 9}, {Stage: "Receive", Most: 9}}
	for name, tc := range map[string]struct {
		without []claim.Scope
		want    []int64
	}{
		"nothing":              {nil, []int64{standard, wasabi, unknown, early}},
		"a stage":              {[]claim.Scope{{Steps: []string{"Store", "Record"}}}, []int64{early}},
		"all":                  {[]claim.Scope{{Steps: []string{"Store", "Receive"}}}, nil},
		"an option":            {[]claim.Scope{{Steps: []string{"Store"}, StorageOptions: []string{"Wasabi-OR"}}}, []int64{standard, unknown, early}},
		"another's option":     {[]claim.Scope{{Steps: []string{"Record"}, StorageOptions: []string{"Wasabi-OR"}}}, []int64{standard, wasabi, unknown, early}},
		"an institution":       {[]claim.Scope{{Steps: []string{"Receive"}, Institutions: []string{"test.edu"}}}, []int64{standard, wasabi, unknown}},
		"another institution":  {[]claim.Scope{{Steps: []string{"Receive"}, Institutions: []string{"other.edu"}}}, []int64{standard, wasabi, unknown, early}},
		"two scopes":           {[]claim.Scope{{Steps: []string{"Store"}, StorageOptions: []string{"Standard"}}, {Steps: []string{"Receive"}}}, []int64{wasabi, unknown}},
		"requests of the same": {[]claim.Scope{{Steps: []string{"Delete"}}}, []int64{standard, wasabi, unknown, early}},
	} {
		got, err := e.Peek(t.Context(), claim.Filter{Stages: stages, Without: tc.without}, 9)
		slices.Sort(got)
		slices.Sort(tc.want)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("without %s: %v, %v; want %v", name, got, err, tc.want)
		}
	}
}

// More than half of those that use a service hold it for all; a person does so
// alone, and one process's own never.
func TestServicesAreHeldByMost(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var engines []*claim.Engine
	for range 3 {
		e := q.engine()
		engines = append(engines, e)
		q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat)
			VALUES ($1, 'n', 1, 'h', 1, '[{"stages": ["Store"], "actions": ["Ingest"], "slots": 1}]', '1 hour')`, e.Worker())
	}
	q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat)
		VALUES ('elsewhere', 'n', 1, 'h', 1, '[{"stages": ["Receive"], "actions": ["Ingest"], "slots": 1}]', '1 hour')`)
	report := func(e *claim.Engine, service string, state claim.ServiceState, own bool) {
		t.Helper()
		must.Do(t, e.Report(t.Context(), claim.ServiceReport{
			Service: service, State: state, OfProcess: own, Code: "x", Said: "503 SlowDown", NextProbe: time.Minute, Scopes: []claim.Scope{{Steps: []string{"Store"}}},
		}))
	}
	state := func(service string) string {
		t.Helper()
		return value[string](q, `SELECT state || ' ' || workers_failing || '/' || workers FROM services WHERE service = $1`, service)
	}
	for i, want := range []string{"failing 1/3", "held 2/3", "held 3/3"} {
		report(engines[i], "s3:a", claim.ServiceFailing, false)
		report(engines[i], fault.Disk, claim.ServiceFailing, true)
		if got := state("s3:a"); got != want {
			t.Errorf("seen by %d: %q, want %q", i+1, got, want)
		}
	}
	if got := state(fault.Disk); got != "failing 3/3" {
		t.Errorf("the processes' own is %q", got)
	}
	since := value[time.Time](q, `SELECT since FROM services WHERE service = 's3:a'`)
	report(engines[0], "s3:a", claim.ServiceTrying, false)
	if got := value[time.Time](q, `SELECT since FROM services WHERE service = 's3:a'`); !got.Equal(since) || state("s3:a") != "held 3/3" {
		t.Errorf("a trial makes it %s since %v, before %v", state("s3:a"), got, since)
	}
	for _, e := range engines {
		report(e, "s3:a", claim.ServiceOK, false)
	}
	if got := state("s3:a"); got != "ok 0/3" {
		t.Errorf("afterwards it is %q", got)
	}
	q.exec(`SELECT hold_service('s3:a', 'new disks')`)
	if got := state("s3:a"); got != "held 0/3" {
		t.Errorf("held by a person it is %q", got)
	}
	q.exec(`SELECT release_service('s3:a')`)
	if got := state("s3:a"); got != "ok 0/3" {
		t.Errorf("released it is %q", got)
	}
	testenv.Refused(t, q.db, "there is no service 's3:b'", `SELECT hold_service('s3:b')`)
}

// People get an alert of a failure after five minutes, and only one.
func TestPeopleAreAlertedToAServiceOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat) VALUES ($1, 'n', 1, 'h', 1, '[]', '1 hour')`, e.Worker())
	alerts := func() int {
		t.Helper()
		q.exec(`SELECT tell_of_services()`)
		return value[int](q, `SELECT count(*) FROM alerts WHERE type = 'Service Held'`)
	}
	report := func(state claim.ServiceState) {
		t.Helper()
		must.Do(t, e.Report(t.Context(), claim.ServiceReport{Service: "redis", State: state, Code: "progress-full", Said: "OOM"}))
	}
	report(claim.ServiceFailing)
	if n := alerts(); n != 0 {
		t.Errorf("%d alerts at once", n)
	}
	q.exec(`UPDATE service_reports SET since = since - interval '6 minutes'`)
	if first, second := alerts(), alerts(); first != 1 || second != 1 {
		t.Errorf("%d alerts after six minutes, then %d", first, second)
	}
	report(claim.ServiceOK)
	report(claim.ServiceFailing)
	q.exec(`UPDATE service_reports SET since = since - interval '7 minutes'`)
	if n := alerts(); n != 2 {
		t.Errorf("%d alerts after a second failure", n)
	}
	if text := value[string](q, `SELECT content FROM alerts ORDER BY id LIMIT 1`); text == "" {
		t.Error("the alert says nothing")
	}
}

// A heartbeat does not wait for reports of services, even if another transaction locks
// the rows that they write: else the leases of live work would lapse.
func TestHeartbeatDoesNotWaitForReports(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background())
	must.Get(tx.Exec(t.Context(), `LOCK TABLE service_reports`))(t)
	const reports = 9 // more than a process has connections for the queue
	reported := make(chan error, reports)
	for i := range reports {
		go func() {
			reported <- e.Report(t.Context(), claim.ServiceReport{Service: fmt.Sprint("s3:", i), State: claim.ServiceFailing, Code: "storage-unavailable"})
		}()
	}
	testenv.Eventually(t, "reports to wait for the lock", func() bool {
		return value[bool](q, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%report_service%')`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := e.Beat(ctx); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if n := len(reported); n != 0 {
		t.Errorf("%d reports did not wait for the lock", n)
	}
	must.Do(t, tx.Rollback(t.Context()))
	for range reports {
		if err := <-reported; err != nil {
			t.Errorf("report: %v", err)
		}
	}
}
