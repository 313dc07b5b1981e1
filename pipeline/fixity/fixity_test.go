package fixity

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

func (a *archive) checker() *Checker {
	return &Checker{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "w", Slots: 2, Batch: 5, Attempts: 3, Days: 90,
		Lease: 20 * time.Second, Poll: 20 * time.Millisecond, Again: time.Millisecond,
	}
}

// running starts f; the function that it returns ends it.
func (a *archive) running(f *Checker) (stop func()) {
	a.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := f.Run(ctx); err != nil {
			a.T.Error(err)
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
}

const leftToCheck = `SELECT count(*) FROM storage_records s JOIN fixity_policies p USING (target) LEFT JOIN fixity_checks c ON c.storage_record_id = s.id
	WHERE s.active AND p.mode = 'read' AND p.paused_until <= now() AND s.last_fixity_at < now() - interval '90 days' AND coalesce(c.run_at, now()) <= now() OR c.worker <> ''`

// checked has f check all that is due.
func (a *archive) checked(f *Checker) {
	a.T.Helper()
	stop := a.running(f)
	defer stop()
	testenv.Eventually(a.T, "all due copies to be checked", func() bool { return pipelinetest.Value[int](a, leftToCheck) == 0 })
}

const fixityEvents = `SELECT concat_ws(' ', substr(f.identifier, 19), e.outcome, split_part(e.outcome_information, ' at ', 1)) FROM premis_events e
	JOIN generic_files f ON f.id = e.generic_file_id WHERE e.event_type = 'fixity check' AND e.outcome_information LIKE '% at %' ORDER BY f.identifier, e.id`

// Each copy that is due is read to its end, whatever its size, and judged.
func TestCopiesAreReadAndJudged(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Stored(map[string]string{
		"good": "good", "empty": "", "large": strings.Repeat("large", 1_000_000), "block": strings.Repeat("b", 256<<10), "blocks": strings.Repeat("b", 1<<20+1),
		"altered": strings.Repeat("altered", 100_000), "shorter": "shorter", "missing": "missing", "early": "early",
	})
	first := a.Deps.Targets["Standard-VA"]
	a.Spoil(first, "altered")
	a.Overwrite(first, a.CopyKey("shorter"), []byte("short"))
	must.Do(t, first.Delete(t.Context(), a.CopyKey("missing")))
	a.MakeDue("%/data/%")
	a.Exec(`UPDATE storage_records SET last_fixity_at = now() WHERE generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/early')`)
	var mu sync.Mutex
	outcomes, read := map[string]int{}, int64(0)
	f := a.checker()
	f.Observe = func(o Outcome) {
		mu.Lock()
		defer mu.Unlock()
		outcomes[o.Result]++
		read += o.Bytes
	}
	a.checked(f)

	const is, isNot = " Success Fixity matches", " Failure Fixity did not match"
	want := []string{"altered" + isNot, "block" + is, "blocks" + is, "empty" + is, "good" + is, "large" + is, "missing" + isNot, "shorter" + isNot}
	if diff := cmp.Diff(want, a.Rows(fixityEvents)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"altered altered", "missing missing", "shorter altered"},
		a.Rows(`SELECT substr(file, 19) || ' ' || problem FROM bad_copies WHERE target = 'Standard-VA' ORDER BY file`)); diff != "" {
		t.Errorf("bad copies (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"matched": 5, "altered": 2, "missing": 1}, outcomes); diff != "" || read != 4+5_000_000+256<<10+1<<20+1+2*700_000+2*5 {
		t.Errorf("%d bytes were read; outcomes (-want +got):\n%s", read, diff)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`); n != 3 {
		t.Errorf("%d alerts, want 3", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE last_fixity_check > now() - interval '1 minute' AND identifier LIKE '%/data/%'`); n < 8 {
		t.Errorf("%d files were checked just now", n)
	}
	a.checked(a.checker())
	if n := len(a.Rows(fixityEvents)); n != len(want) {
		t.Errorf("%d events after a second look, want %d", n, len(want))
	}
}

// An s3Gate is an HTTP proxy to the S3 server, which lets requests pass as it is told.
type s3Gate struct {
	http.Handler

	mu sync.Mutex
	do func(w http.ResponseWriter, r *http.Request, pass http.Handler)
}

func (g *s3Gate) set(do func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.do = do
}

func (g *s3Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	do := g.do
	g.mu.Unlock()
	if do == nil {
		do = func(w http.ResponseWriter, r *http.Request, pass http.Handler) { pass.ServeHTTP(w, r) }
	}
	do(w, r, g.Handler)
}

// gatedTarget has a target reached by way of a gate.
func (a *archive) gatedTarget(target string) *s3Gate {
	a.T.Helper()
	g := &s3Gate{Handler: a.S3.Proxy(a.T)}
	server := httptest.NewServer(g)
	a.T.Cleanup(func() {
		g.set(nil)
		server.Close()
	})
	was := a.Deps.Targets[target]
	b := must.Get(a.Client.Bucket(storage.Target{
		Name: target, Bucket: was.Name(), Endpoint: server.URL, Region: a.S3.Region, PathStyle: true, Provider: was.Provider(), RestorePriority: was.Priority(),
		AccessKeyID: a.S3.AccessKeyID, SecretAccessKey: storage.Secret(a.S3.SecretAccessKey),
	}))(a.T)
	a.Deps.Targets[target] = b
	return g
}

// reads tells whether a request reads an object.
func reads(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.RawQuery != "" || r.Method == http.MethodGet && strings.Count(r.URL.Path, "/") > 1
}

// altered passes on an answer with a byte of its content changed.
func altered(w http.ResponseWriter, r *http.Request, pass http.Handler, by byte) {
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	if answer.Code < 300 && len(body) > 0 {
		body[0] ^= by
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body)
}

// A provider that does not answer, or not to us, says nothing of its copies.
func TestNoAnswerIsNoVerdict(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request, pass http.Handler){
		"unavailable": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"broken":    func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"denied":    func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) },
		"no bucket": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusNotFound) },
		"no such key, and no such bucket": func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusNotFound)
			if reads(r) {
				_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>`)
			}
		},
		"cut off": func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if !reads(r) {
				pass.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Length", "7")
			_, _ = io.WriteString(w, "goo")
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Stored(map[string]string{"a": "content"})
			g := a.gatedTarget("Standard-VA")
			g.set(fail)
			a.MakeDue("%/data/a")
			stop := a.running(a.checker())
			defer stop()
			testenv.Eventually(t, "the failure to be noted", func() bool {
				return pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks WHERE attempts = 1 AND error <> ''`) == 1
			})
			if n := len(a.Rows(fixityEvents)) + pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_failures`) + pipelinetest.Value[int](a, `SELECT count(*) FROM alerts`); n > 0 {
				t.Errorf("a verdict is on record")
			}
			g.set(nil)
			a.Exec(`UPDATE fixity_checks SET run_at = now()`)
			testenv.Eventually(t, "the copy to be checked", func() bool { return len(a.Rows(fixityEvents)) == 1 })
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n > 0 {
				t.Error("the copy is bad")
			}
		})
	}
}

// What is seen once is not believed: the second look decides, and where the two have
// nothing to do with each other, nothing is known.
func TestBadCopyIsLookedAtTwice(t *testing.T) {
	t.Parallel()
	gone := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>`)
	}
	for name, tc := range map[string]struct {
		looks []byte // by what each read is altered; 255: there is nothing
		want  string
	}{
		"altered, then good":      {[]byte{1, 0}, "1 0 1 0"}, // checks, failures, wavered, attempts
		"missing, then good":      {[]byte{255, 0}, "1 0 1 0"},
		"altered, twice the same": {[]byte{1, 1}, "1 1 0 0"},
		"missing, twice":          {[]byte{255, 255}, "1 1 0 0"},
		"altered in two ways":     {[]byte{1, 2}, "0 0 1 1"},
		"altered, then missing":   {[]byte{1, 255}, "0 0 1 1"},
		"missing, then altered":   {[]byte{255, 1}, "0 0 1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Stored(map[string]string{"a": "content"})
			g := a.gatedTarget("Standard-VA")
			var mu sync.Mutex
			n := 0
			g.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				mu.Lock()
				defer mu.Unlock()
				if !reads(r) {
					pass.ServeHTTP(w, r)
					return
				}
				by := tc.looks[min(n, len(tc.looks)-1)]
				if n++; by == 255 {
					gone(w)
					return
				}
				altered(w, r, pass, by)
			})
			a.MakeDue("%/data/a")
			a.checked(a.checker())
			got := pipelinetest.Value[string](a, `SELECT concat_ws(' ', sum(checks), sum(failures), sum(wavered), (SELECT count(*) FROM fixity_checks WHERE attempts > 0)) FROM fixity_done`)
			if got != tc.want {
				t.Errorf("checks, failures, wavered, attempts: %s, want %s", got, tc.want)
			}
		})
	}
}

// A connection that breaks in the middle of a large copy costs the rest, not all.
func TestBrokenReadingGoesOn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	content := strings.Repeat("0123456789abcdef", 100_000)
	a.Stored(map[string]string{"a": content})
	g := a.gatedTarget("Standard-VA")
	var mu sync.Mutex
	var ranges []string
	g.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !reads(r) {
			pass.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		ranges = append(ranges, r.Header.Get("Range"))
		n := len(ranges)
		mu.Unlock()
		if n > 3 {
			pass.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:400_000])
		panic(http.ErrAbortHandler)
	})
	a.MakeDue("%/data/a")
	a.checked(a.checker())
	if diff := cmp.Diff([]string{"a Success Fixity matches"}, a.Rows(fixityEvents)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", "bytes=400000-", "bytes=800000-", "bytes=1200000-"}, ranges); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// held is a worker that is reading a copy whose provider does not answer until
// the function that it returns is called.
func (a *archive) held(f *Checker) (stop, letGo func()) {
	a.T.Helper()
	a.Stored(map[string]string{"a": "content"})
	g := a.gatedTarget("Standard-VA")
	f.Targets = a.Deps.Targets
	open := make(chan struct{})
	asked := make(chan struct{}, 100)
	g.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		asked <- struct{}{}
		select {
		case <-open:
		case <-r.Context().Done():
		}
		pass.ServeHTTP(w, r)
	})
	a.MakeDue("%/data/a")
	stop = a.running(f)
	<-asked
	letGo = sync.OnceFunc(func() { close(open) })
	a.T.Cleanup(letGo)
	return stop, letGo
}

// However long a check takes, nobody takes it over while its worker lives.
func TestLongCheckIsNotTakenOver(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	f := a.checker()
	f.Lease = 3 * time.Second // renewed each second
	stop, letGo := a.held(f)
	defer stop()
	token := pipelinetest.Value[int64](a, `SELECT token FROM fixity_checks`)
	other := a.checker()
	other.Worker = "other"
	stopOther := a.running(other)
	defer stopOther()
	for range 3 { // whole leases
		was := pipelinetest.Value[time.Time](a, `SELECT run_at FROM fixity_checks`)
		testenv.Eventually(t, "the lease to be renewed", func() bool { return pipelinetest.Value[bool](a, `SELECT now() > $1 FROM fixity_checks`, was) })
	}
	if now := pipelinetest.Value[int64](a, `SELECT token FROM fixity_checks WHERE worker = 'w'`); now != token {
		t.Errorf("the token is %d, was %d", now, token)
	}
	letGo()
	testenv.Eventually(t, "the check to end", func() bool { return pipelinetest.Value[int](a, leftToCheck) == 0 })
	if n := len(a.Rows(fixityEvents)); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// A checker that is asked to stop releases its copies at once.
func TestStoppedCheckIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	stop, _ := a.held(a.checker())
	began := time.Now()
	stop()
	if took := time.Since(began); took > testenv.AtOnce {
		t.Errorf("it took %v to stop", took)
	}
	if got := pipelinetest.Value[string](a, `SELECT concat_ws(' ', worker, run_at <= now(), attempts) FROM fixity_checks`); got != " t 0" {
		t.Errorf("the check is %q, want it to be released at once, and not counted", got)
	}
}

// A checker that is asked to stop while it claims releases the copies of that claim.
func TestClaimThatIsUnderWayIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Stored(map[string]string{"a": "content"})
	a.MakeDue("%/data/a")
	tx := must.Get(a.DB.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // ended below, unless the test failed
	must.Get(tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('farol fixity', 0))`))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.checker().Run(ctx) }()
	testenv.Eventually(t, "the claim to wait for the lock", func() bool {
		return pipelinetest.Value[bool](a, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)`)
	})
	stop()
	must.Do(t, tx.Rollback(t.Context()))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := a.Rows(`SELECT concat_ws(' ', worker, run_at <= now(), attempts) FROM fixity_checks`); len(got) != 1 || got[0] != " t 0" {
		t.Errorf("the claim left %q, want one copy that is released at once, and not counted", got)
	}
}

// A check that was taken over while its worker stood still ends, and its result is not
// recorded.
func TestCheckThatWasTakenOverEnds(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	f := a.checker()
	f.Lease = 300 * time.Millisecond
	ended := make(chan Outcome, 10)
	f.Observe = func(o Outcome) { ended <- o }
	stop, _ := a.held(f)
	defer stop()
	a.Exec(`UPDATE fixity_checks SET token = token + 1, worker = 'other', run_at = now() + interval '1 hour'`)
	if o := <-ended; o.Result != "dropped" {
		t.Errorf("it ended as %+v", o)
	}
	if got := pipelinetest.Value[string](a, `SELECT worker FROM fixity_checks`); got != "other" || len(a.Rows(fixityEvents)) != 0 {
		t.Errorf("the check is of %s now", got)
	}
}

// The copies of a dead worker are checked once its lease has lapsed.
func TestDeadWorkersChecksAreTakenUp(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Stored(map[string]string{"a": "content"})
	a.MakeDue("%/data/a")
	list, err := fixity.In(a.Deps.Registry).Claim(t.Context(), fixity.Claim{Worker: "dead", Targets: []string{"Standard-VA"}, Most: 1, Days: 90, Lease: 200 * time.Millisecond})
	if err != nil || len(list) != 1 {
		t.Fatalf("claimed %v, %v", list, err)
	}
	a.Allow(0)
	stop := a.running(a.checker())
	defer stop()
	testenv.Eventually(t, "the copy to be checked", func() bool { return len(a.Rows(fixityEvents)) == 1 })
}

// Copies that turn out to be archived are no failures: what is wrong is their policy,
// and people are notified once.
func TestArchivedCopiesAreNoFailures(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	a.Stored(files)
	a.Exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.MakeDue("%")
	a.checked(a.checker())
	if n := strings.Count(a.Log.String(), "copies are archived"); n != 1 {
		t.Errorf("people were notified %d times", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n > 0 || strings.Contains(a.Log.String(), "ERROR") {
		t.Errorf("%d copies failed", n)
	}
	tried := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks WHERE target = 'Standard-OR' AND run_at > now() + interval '23 hours' AND error LIKE '%archived%'`)
	if paused := pipelinetest.Value[bool](a, `SELECT paused_until > now() + interval '23 hours' FROM fixity_policies WHERE target = 'Standard-OR'`); tried < 5 || tried > 4+2+5 || !paused {
		t.Errorf("%d were tried, and the target is paused: %v", tried, paused)
	}
}

// A request to check archived copies reports each that is missing, however many there are.
// It makes no one wait.
func TestMissingArchivedCopyIsFoundOnRequest(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	a.Stored(files)
	must.Do(t, a.Deps.Targets["Standard-OR"].Delete(t.Context(), a.CopyKey("19")))
	asked := must.Get(fixity.In(a.Deps.Registry).Request(t.Context(), "test.edu/bag", "Standard-OR", false))(t)
	stop := a.running(a.checker())
	testenv.Eventually(t, "all of them to be looked at", func() bool { return pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) == 0 })
	stop()
	missing := a.Rows(`SELECT f.identifier || ' ' || s.target || ' ' || s.problem FROM fixity_failures s JOIN generic_files f ON f.id = s.generic_file_id`)
	if want := []string{"test.edu/bag/data/19 Standard-OR missing"}; !slices.Equal(missing, want) {
		t.Errorf("failures: %q, want %q", missing, want)
	}
	if n := strings.Count(a.Log.String(), "copy exists and is archived"); int64(n) != asked[0].Copies-1 || n < 19 {
		t.Errorf("%d of %d are said to be there", n, asked[0].Copies)
	}
	if pipelinetest.Value[bool](a, `SELECT bool_or(paused_until > now()) FROM fixity_policies`) {
		t.Error("the target was left alone")
	}
}

// Copies that are ingested again or deleted while they are checked never fail.
func TestFixityBesideIngests(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 60
	version := func(content string) []byte {
		var files []bagtest.File
		for i := range n {
			files = append(files, bagtest.File{Path: fmt.Sprintf("data/%03d.txt", i), Content: content + fmt.Sprint(i)})
		}
		return a.Bag(bagtest.Spec{Name: "busy", Files: files})
	}
	a.Deposit("busy.tar", version("first"))
	a.Work()
	a.Allow(1_000_000)
	f := a.checker()
	f.Slots = 6
	stop := a.running(f)
	defer stop()
	for i := range 4 {
		a.MakeDue("%")
		a.Deposit("busy.tar", version(fmt.Sprintf("version %d", i)))
		end := a.Start()
		testenv.Eventually(t, "the version to be ingested", func() bool {
			a.MakeDue("%")
			return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE retry`) == 0
		})
		end()
	}
	stop()
	if got := a.Rows(`SELECT DISTINCT e.outcome_information FROM premis_events e WHERE event_type = 'fixity check' AND outcome = 'Failure'`); len(got) > 0 {
		t.Errorf("copies failed: %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome_information LIKE '% at %'`); n < 50 {
		t.Errorf("%d checks were made, which says little", n)
	}
}

// The policies are of the targets that there are, and what cannot be read without a
// restoration is not read.
func TestEachTargetHasAPolicy(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	policies := must.Get(fixity.In(a.Deps.Registry).Policies(t.Context()))(t)
	got := map[string]string{}
	for _, p := range policies {
		got[p.Target] = p.Provider + " " + p.Mode
		if p.Days != nil {
			t.Errorf("%s has an interval of its own", p.Target)
		}
	}
	want := map[string]string{}
	for _, target := range storage.Targets() {
		want[target.Name] = target.Provider + " read"
		if target.StorageClass != "" {
			want[target.Name] = target.Provider + " off"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}
