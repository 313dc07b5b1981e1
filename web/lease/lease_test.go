package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
)

// leases is a server of the lease API, on a queue with a stage Virus Scan behind
// Validate and two institutions.
type leases struct {
	t      *testing.T
	db     *pgxpool.Pool
	engine *claim.Engine
	api    *API
	url    string
	spec   *spec
	claims atomic.Int64 // statements that were sent, or joined
}

// Claimed is of claim.Observer, as are those that follow.
func (l *leases) Claimed(time.Duration, int) { l.claims.Add(1) }
func (l *leases) Settled(time.Duration, int) {}
func (l *leases) Ended(claim.End)            {}
func (l *leases) Lost(string)                {}

func newLeases(t *testing.T, change ...func(*Options)) *leases {
	t.Helper()
	l := &leases{t: t, db: testenv.Database(t), spec: readSpec(t)}
	testenv.Exec(t, l.db, `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		VALUES ('Test', 'test.edu', 'in', 'out'), ('Other', 'other.edu', 'in2', 'out2')`)
	testenv.Exec(t, l.db, `SELECT add_stage('Virus Scan', 'Validate')`)
	o := claim.DefaultOptions()
	o.Observer = l
	var err error
	if l.engine, err = claim.New(t.Context(), l.db, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.engine.Close)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.engine.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	var lo Options
	for _, c := range change {
		c(&lo)
	}
	l.api = New(l.db, l.engine, lo)
	mux := http.NewServeMux()
	l.api.Routes(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// put makes an item of a size at Virus Scan.
func (l *leases) put(institution string, size int64) (id int64) {
	l.t.Helper()
	must.Do(l.t, l.db.QueryRow(context.Background(), `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Virus Scan', 'bag ' || (SELECT count(*) FROM work_items) || '.tar', 'in', 'e', $2, now()
		FROM institutions WHERE identifier = $1 RETURNING id`, institution, size).Scan(&id))
	return id
}

// call makes a call with a body of JSON, and sees to it that the answer is one of
// those that the document describes.
func (l *leases) call(method, path, body string, header ...string) (status int, answer map[string]any) {
	l.t.Helper()
	return l.callWith(method, path, strings.NewReader(body), header...)
}

func (l *leases) callWith(method, path string, body io.Reader, header ...string) (status int, answer map[string]any) {
	l.t.Helper()
	r := must.Get(http.NewRequestWithContext(l.t.Context(), method, l.url+path, body))(l.t)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(l.t)
	l.spec.check(l.t, method, path, response, text)
	if len(text) > 0 {
		d := json.NewDecoder(bytes.NewReader(text))
		if err := d.Decode(&answer); err != nil {
			l.t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
	return response.StatusCode, answer
}

// claimed claims an item that is there.
func (l *leases) claimed(body string) map[string]any {
	l.t.Helper()
	status, answer := l.call("POST", "/v1/claim", body)
	items, _ := answer["items"].([]any)
	if status != http.StatusOK || len(items) != 1 {
		l.t.Fatalf("claim: %d %v", status, answer)
	}
	item, _ := items[0].(map[string]any)
	return item
}

// ref names a claim in a request.
func ref(item map[string]any, more string) string {
	return fmt.Sprintf(`{"id": %v, "token": %v%s}`, item["id"], item["token"], more)
}

func (l *leases) value(sql string, args ...any) (v string) {
	l.t.Helper()
	if err := l.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

const scans = `{"worker": "anna", "stages": ["Virus Scan"]}`

// An item is claimed, renewed, ended once, and announced; a second end says that the
// first has landed.
func TestLeaseFromClaimToFinish(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	id := l.put("test.edu", 10)
	item := l.claimed(`{"worker": "anna", "node": "attic", "pid": 7, "stages": ["Virus Scan"], "wait": 20}`)
	if item["id"] != float64(id) || item["stage"] != "Virus Scan" || item["lease"] != 30.0 || item["heartbeat"] != 10.0 || item["institution"] != "test.edu" {
		t.Errorf("claimed %v", item)
	}
	if who := l.value(`SELECT concat_ws(' ', worker, node, pid, status) FROM work_items`); who != "anna attic 7 Started" {
		t.Errorf("the row says %q", who)
	}
	if status, answer := l.call("POST", "/v1/heartbeat", ref(item, `, "file": "data/a"`)); status != http.StatusOK || answer["lease"] != 30.0 {
		t.Errorf("heartbeat: %d %v", status, answer)
	}
	if file := l.value(`SELECT current_file FROM work_item_attempts`); file != "data/a" {
		t.Errorf("the file in hand is %q", file)
	}
	if status, answer := l.call("GET", fmt.Sprint("/v1/items/", id), ""); status != http.StatusOK || answer["status"] != "Started" || answer["worker"] != "anna" {
		t.Errorf("item: %d %v", status, answer)
	}
	if status, answer := l.call("POST", "/v1/finish", ref(item, `, "note": "Clean."`)); status != http.StatusOK || answer["stage"] != "Reingest Check" || answer["status"] != "Pending" {
		t.Errorf("finish: %d %v", status, answer)
	}
	for _, end := range []string{"finish", "release"} {
		if status, answer := l.call("POST", "/v1/"+end, ref(item, "")); status != http.StatusConflict || answer["code"] != "ended" || answer["outcome"] != "done" {
			t.Errorf("a second end: %d %v", status, answer)
		}
	}
	if n := l.value(`SELECT count(*) || ' ' || min(outcome) FROM work_item_attempts`); n != "1 done" {
		t.Errorf("the ledger has %s", n)
	}
}

// Each way to end a claim has its own effect.
func TestLeaseEndsInEachWay(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	for end, want := range map[string]struct{ more, row string }{
		"retry":   {`, "code": "scanner-away", "reason": "No \"scanner\"."`, `Pending at Virus Scan, 1: No "scanner". (scanner-away)`},
		"fail":    {`, "code": "virus-found", "reason": "It has Eicar."`, `Failed at Virus Scan, 1: It has Eicar. (virus-found)`},
		"release": {``, `Pending at Virus Scan, 0: Given back by the worker. (released)`},
		"finish":  {`, "note": "Clean."`, `Pending at Reingest Check, 0: Clean. ()`},
	} {
		id := l.put("test.edu", 10)
		if status, answer := l.call("POST", "/v1/"+end, ref(l.claimed(scans), want.more)); status != http.StatusOK {
			t.Errorf("%s: %d %v", end, status, answer)
		}
		if row := l.value(`SELECT format('%s at %s, %s: %s (%s)', status, stage, attempt, note, error_code) FROM work_items WHERE id = $1`, id); row != want.row {
			t.Errorf("%s leaves %q, want %q", end, row, want.row)
		}
		testenv.Exec(t, l.db, `SELECT cancel($1)`, id)
	}
}

// A worker that is not heard of loses its item, which the next one gets; what it
// says afterwards changes nothing.
func TestLapsedLeaseGoesToTheNext(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	l.put("test.edu", 10)
	first := l.claimed(scans)
	testenv.Exec(t, l.db, `UPDATE work_items SET lease_expires_at = now() - interval '1 second'`)
	second := l.claimed(`{"worker": "berta", "stages": ["Virus Scan"], "wait": 60}`)
	for _, call := range []string{"heartbeat", "finish"} {
		if status, answer := l.call("POST", "/v1/"+call, ref(first, "")); status != http.StatusConflict || answer["code"] != "lost" {
			t.Errorf("%s of the first: %d %v", call, status, answer)
		}
	}
	if status, answer := l.call("POST", "/v1/finish", ref(second, "")); status != http.StatusOK {
		t.Errorf("finish of the second: %d %v", status, answer)
	}
}

// What bounds a claim is kept.
func TestClaimIsNarrowed(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	small, large := l.put("test.edu", 10), l.put("other.edu", 1000)
	for _, narrow := range []string{`"min_size": 2000`, `"max_size": 10`, `"institution": "other.edu", "max_size": 1000`} {
		if status, answer := l.call("POST", "/v1/claim", `{"worker": "anna", "stages": ["Virus Scan"], `+narrow+`}`); status != http.StatusNoContent {
			t.Errorf("%s: %d %v", narrow, status, answer)
		}
	}
	if item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], "institution": "other.edu", "storage_options": ["Standard"], "processing_timeout": 60.5}`); item["id"] != float64(large) || item["lease"] != 181.5 || item["heartbeat"] != 0.0 {
		t.Errorf("claimed %v", item)
	}
	if item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], "max": 5, "min_size": 10, "max_size": 11}`); item["id"] != float64(small) {
		t.Errorf("claimed %v", item)
	}
}

// A caller that is bound to an institution or to stages neither gets nor hears of
// anything else.
func TestCallerIsBound(t *testing.T) {
	t.Parallel()
	l := newLeases(t, func(o *Options) {
		o.Caller = func(r *http.Request) (access.Caller, error) {
			switch r.Header.Get("Authorization") {
			case "Bearer other":
				return access.Caller{Name: "other", Institution: "other.edu"}, nil
			case "Bearer ocr":
				return access.Caller{Name: "ocr", Stages: []registry.Stage{"OCR"}}, nil
			case "Bearer all":
				return access.Caller{}, nil
			}
			return access.Caller{}, &access.Error{Status: http.StatusUnauthorized, Reason: "no token"}
		}
	})
	testenv.Exec(t, l.db, `SELECT add_stage('OCR', 'Validate')`)
	mine := l.put("test.edu", 10)
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	if status, _ := l.call("POST", "/v1/claim", scans, as("other")...); status != http.StatusNoContent {
		t.Errorf("another institution's claim: %d", status)
	}
	if status, answer := l.call("POST", "/v1/claim", `{"worker": "anna", "stages": ["Virus Scan"], "institution": "test.edu"}`, as("other")...); status != http.StatusForbidden || answer["code"] != "not-allowed" {
		t.Errorf("another institution's claim by name: %d %v", status, answer)
	}
	if status, answer := l.call("POST", "/v1/claim", scans, as("ocr")...); status != http.StatusForbidden || answer["code"] != "not-allowed" {
		t.Errorf("a claim of another stage: %d %v", status, answer)
	}
	_, answer := l.call("POST", "/v1/claim", scans, as("all")...)
	item, _ := answer["items"].([]any)[0].(map[string]any)
	for _, end := range []string{"heartbeat", "finish", "release", "retry", "fail"} {
		more := map[string]string{"retry": `, "reason": "r"`, "fail": `, "code": "c", "reason": "r"`}[end]
		if status, answer := l.call("POST", "/v1/"+end, ref(item, more), as("other")...); status != http.StatusNotFound {
			t.Errorf("%s by another institution: %d %v", end, status, answer)
		}
		if status, answer := l.call("POST", "/v1/"+end, ref(item, more), as("ocr")...); status != http.StatusForbidden {
			t.Errorf("%s by who works another stage: %d %v", end, status, answer)
		}
		if status, _ := l.call("POST", "/v1/"+end, ref(item, more)); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", end, status)
		}
	}
	path := fmt.Sprint("/v1/items/", mine)
	if status, _ := l.call("GET", path, "", as("other")...); status != http.StatusNotFound {
		t.Errorf("another institution sees the item: %d", status)
	}
	if status, answer := l.call("GET", path, "", as("all")...); status != http.StatusOK || answer["status"] != "Started" {
		t.Errorf("the item is %d %v", status, answer)
	}
}

// waitOne waits for an item, and says whether it got one.
func (l *leases) waitOne(ctx context.Context, worker string) bool {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/claim",
		strings.NewReader(`{"worker": "`+worker+`", "stages": ["Virus Scan"], "wait": 120}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux := http.NewServeMux()
	l.api.Routes(mux)
	mux.ServeHTTP(w, r)
	return w.Code == http.StatusOK
}

// Of a thousand that wait for the same, few ask the database when an item comes,
// and one gets it; of many items each goes to another.
func TestManyWaitWithoutAStampede(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	const waiters, more = 1000, 20
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var got atomic.Int64
	for i := range waiters {
		wg.Go(func() {
			if l.waitOne(ctx, fmt.Sprint("worker ", i)) {
				got.Add(1)
			}
		})
	}
	testenv.Eventually(t, "all wait", func() bool {
		l.api.mu.Lock()
		defer l.api.mu.Unlock()
		return l.api.waiting == waiters
	})
	before := l.claims.Load()
	l.put("test.edu", 10)
	testenv.Eventually(t, "one has the item", func() bool { return got.Load() == 1 })
	if asked := l.claims.Load() - before; asked > 10 { // one gets it, the next finds none, and now and then a poll
		t.Errorf("%d claims were made for one item", asked)
	}
	for range more {
		l.put("test.edu", 10)
	}
	testenv.Eventually(t, "each item is with a worker of its own", func() bool {
		return got.Load() == 1+more && l.value(`SELECT count(DISTINCT worker)::text FROM work_items WHERE status = 'Started'`) == fmt.Sprint(1+more)
	})
	cancel()
	wg.Wait()
	if l.api.waiting != 0 || len(l.api.waits) != 0 {
		t.Errorf("%d wait still, on %d waitlists", l.api.waiting, len(l.api.waits))
	}
}

// deafWriter is an answer that nobody reads.
type brokenWriter struct{ header http.Header }

func (d brokenWriter) Header() http.Header       { return d.header }
func (d brokenWriter) Write([]byte) (int, error) { return 0, errors.New("connection reset") }
func (d brokenWriter) WriteHeader(int)           {}

// Who is gone when an item comes gets none: it goes to the next, and no attempt
// counts.
func TestClientThatIsGoneSwallowsNoItem(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/claim", strings.NewReader(`{"worker": "gone", "stages": ["Virus Scan"], "wait": 300}`)))(t)
	r.Header.Set("Content-Type", "application/json")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if response, err := http.DefaultClient.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	waiting := func(n int) func() bool {
		return func() bool { l.api.mu.Lock(); defer l.api.mu.Unlock(); return l.api.waiting == n }
	}
	testenv.Eventually(t, "it waits", waiting(1))
	cancel()
	<-answered
	testenv.Eventually(t, "the server has noticed", waiting(0))
	id := l.put("test.edu", 10)

	// One that goes between the claim and the answer.
	gone := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/claim", strings.NewReader(`{"worker": "gone", "stages": ["Virus Scan"]}`))
	gone.Header.Set("Content-Type", "application/json")
	l.api.claim(brokenWriter{http.Header{}}, gone, access.Caller{})
	if row := l.value(`SELECT concat_ws(' ', status, attempt) FROM work_items`); row != "Pending 0" {
		t.Errorf("the item is %s", row)
	}
	if item := l.claimed(scans); item["id"] != float64(id) || item["attempt"] != 1.0 {
		t.Errorf("claimed %v", item)
	}
	if outcomes := l.value(`SELECT string_agg(worker || ' ' || coalesce(outcome, 'has it'), ', ' ORDER BY claim_token) FROM work_item_attempts`); outcomes != "gone released, anna has it" {
		t.Errorf("the ledger says: %s", outcomes)
	}
}

// A server that stops keeps nobody waiting.
func TestStopEndsTheWaiting(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	l := newLeases(t, func(o *Options) { o.Stop = stopping })
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { l.waitOne(t.Context(), "anna") })
	}
	testenv.Eventually(t, "all wait", func() bool { l.api.mu.Lock(); defer l.api.mu.Unlock(); return l.api.waiting == 3 })
	stop()
	wg.Wait()
}

// Leases outlive the process that gave them, and any other goes on with them.
func TestAnyServerServesAnyWorker(t *testing.T) {
	t.Parallel()
	first := newLeases(t)
	first.put("test.edu", 10)
	item := first.claimed(scans)
	engine := must.Get(claim.New(t.Context(), first.db, claim.DefaultOptions()))(t)
	t.Cleanup(engine.Close)
	mux := http.NewServeMux()
	New(first.db, engine, Options{}).Routes(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	second := &leases{t: t, db: first.db, url: server.URL, spec: first.spec}
	if status, answer := second.call("POST", "/v1/heartbeat", ref(item, "")); status != http.StatusOK {
		t.Errorf("heartbeat at another: %d %v", status, answer)
	}
	if status, answer := second.call("POST", "/v1/finish", ref(item, "")); status != http.StatusOK {
		t.Errorf("finish at another: %d %v", status, answer)
	}
	if status, answer := first.call("POST", "/v1/finish", ref(item, "")); status != http.StatusConflict || answer["outcome"] != "done" {
		t.Errorf("a second finish at the first: %d %v", status, answer)
	}
}

// Whatever a command of a worker's prints is no reason to lose what it did: what the
// database cannot keep is replaced.
func TestAnyTextEndsAClaim(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	for path, more := range map[string]string{
		"finish": `"note": "a\u0000` + "\xff" + `b"`, "retry": `"reason": "a\u0000` + "\xff" + `b"`, "fail": `"code": "x", "reason": "a\u0000` + "\xff" + `b"`,
		"release": `"reason": "a\u0000` + "\xff" + `b"`,
	} {
		id := l.put("test.edu", 1)
		i := l.claimed(`{"worker": "w", "stages": ["Virus Scan"]}`)
		if status, answer := l.call("POST", "/v1/heartbeat", fmt.Sprintf(`{"id": %d, "token": %v, "file": "data/\u0000%s"}`, id, i["token"], "\xff")); status != http.StatusOK {
			t.Errorf("heartbeat: %d %v", status, answer)
		}
		if status, answer := l.call("POST", "/v1/"+path, fmt.Sprintf(`{"id": %d, "token": %v, %s}`, id, i["token"], more)); status != http.StatusOK {
			t.Errorf("%s: %d %v", path, status, answer)
		}
		if note := l.value(`SELECT note FROM work_items WHERE id = $1`, id); note != "a \ufffdb" {
			t.Errorf("after %s the note is %q", path, note)
		}
		testenv.Exec(t, l.db, `UPDATE work_items SET run_at = now() + interval '1 day' WHERE status = 'Pending'`)
	}
}

// A connection may have a deadline from an earlier answer: none is written under it.
func TestAnswersAreWrittenInTheirOwnTime(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	mux := http.NewServeMux()
	l.api.Routes(mux)
	testenv.CallLate(
		t, mux,
		testenv.Call{Method: "POST", Path: "/v1/claim", Body: `{"worker": "w", "stages": ["Virus Scan"], "wait": 0.1}`, Status: 204},
		testenv.Call{Method: "POST", Path: "/v1/finish", Body: `{"id": 1, "token": 1}`, Status: 404},
		testenv.Call{Method: "GET", Path: "/v1/openapi.json", Status: 200},
	)
}
