package pipeline

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

func (a *archive) fixity() *Fixity {
	return &Fixity{
		Deps: a.deps, Worker: "w", Slots: 2, Batch: 5, Attempts: 3, Days: 90,
		Lease: 20 * time.Second, Poll: 20 * time.Millisecond, Again: time.Millisecond,
	}
}

// stored ingests a bag with these files, by path.
func (a *archive) stored(files map[string]string) {
	a.t.Helper()
	spec := bagtest.Spec{Name: "bag"}
	for path, content := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: "data/" + path, Content: content})
	}
	a.deposit("bag.tar", a.bag(spec))
	a.work()
	a.allow(1000)
}

func (a *archive) allow(n int) {
	a.t.Helper()
	if _, err := fixity.In(a.deps.Registry).Feed(context.Background(), n, time.Hour); err != nil {
		a.t.Fatal(err)
	}
}

// makeDue makes the copies of files due whose paths are like this.
func (a *archive) makeDue(like string) {
	a.t.Helper()
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '100 days' WHERE id IN (
		SELECT s.id FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier LIKE '` + like + `' FOR NO KEY UPDATE OF s SKIP LOCKED)`)
}

// running starts f; the function that it returns ends it.
func (a *archive) running(f *Fixity) (stop func()) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := f.Run(ctx); err != nil {
			a.t.Error(err)
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
func (a *archive) checked(f *Fixity) {
	a.t.Helper()
	stop := a.running(f)
	defer stop()
	wait(a.t, time.Minute, "all due copies to be checked", func() bool { return value[int](a, leftToCheck) == 0 })
}

func (a *archive) copyKey(path string) string {
	a.t.Helper()
	return value[string](a, `SELECT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/data/' || $1 LIMIT 1`, path)
}

// spoil flips a bit of a stored copy behind everybody's back, and returns what it is then.
func (a *archive) spoil(b *storage.Bucket, path string) []byte {
	a.t.Helper()
	key := a.copyKey(path)
	content := a.content(b, key)
	content[len(content)/2] ^= 1
	a.overwrite(b, key, content)
	return content
}

func (a *archive) overwrite(b *storage.Bucket, key string, content []byte) {
	a.t.Helper()
	if _, err := b.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))}); err != nil {
		a.t.Fatal(err)
	}
}

const fixityEvents = `SELECT concat_ws(' ', substr(f.identifier, 19), e.outcome, split_part(e.outcome_information, ' at ', 1)) FROM premis_events e
	JOIN generic_files f ON f.id = e.generic_file_id WHERE e.event_type = 'fixity check' AND e.outcome_information LIKE '% at %' ORDER BY f.identifier, e.id`

// Each copy that is due is read to its end, whatever its size, and judged.
func TestCopiesAreReadAndJudged(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.stored(map[string]string{
		"good": "good", "empty": "", "large": strings.Repeat("large", 1_000_000), "block": strings.Repeat("b", 256<<10), "blocks": strings.Repeat("b", 1<<20+1),
		"altered": strings.Repeat("altered", 100_000), "shorter": "shorter", "missing": "missing", "early": "early",
	})
	first := a.deps.Targets["Standard-VA"]
	a.spoil(first, "altered")
	a.overwrite(first, a.copyKey("shorter"), []byte("short"))
	if err := first.Delete(t.Context(), a.copyKey("missing")); err != nil {
		t.Fatal(err)
	}
	a.makeDue("%/data/%")
	a.exec(`UPDATE storage_records SET last_fixity_at = now() WHERE generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/early')`)
	var mu sync.Mutex
	outcomes, read := map[string]int{}, int64(0)
	f := a.fixity()
	f.Observe = func(o FixityOutcome) {
		mu.Lock()
		defer mu.Unlock()
		outcomes[o.Result]++
		read += o.Bytes
	}
	a.checked(f)

	const is, isNot = " Success Fixity matches", " Failure Fixity did not match"
	want := []string{"altered" + isNot, "block" + is, "blocks" + is, "empty" + is, "good" + is, "large" + is, "missing" + isNot, "shorter" + isNot}
	if diff := cmp.Diff(want, a.rows(fixityEvents)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"altered altered", "missing missing", "shorter altered"},
		a.rows(`SELECT substr(file, 19) || ' ' || problem FROM bad_copies WHERE target = 'Standard-VA' ORDER BY file`)); diff != "" {
		t.Errorf("bad copies (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"matched": 5, "altered": 2, "missing": 1}, outcomes); diff != "" || read != 4+5_000_000+256<<10+1<<20+1+2*700_000+2*5 {
		t.Errorf("%d bytes were read; outcomes (-want +got):\n%s", read, diff)
	}
	if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`); n != 3 {
		t.Errorf("%d alerts, want 3", n)
	}
	if n := value[int](a, `SELECT count(*) FROM generic_files WHERE last_fixity_check > now() - interval '1 minute' AND identifier LIKE '%/data/%'`); n < 8 {
		t.Errorf("%d files were checked just now", n)
	}
	a.checked(a.fixity())
	if n := len(a.rows(fixityEvents)); n != len(want) {
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
	a.t.Helper()
	pem, err := os.ReadFile(a.s3.CAFile)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	upstream, err := url.Parse(a.s3.Endpoint)
	if err != nil {
		a.t.Fatal(err)
	}
	g := &s3Gate{Handler: &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(upstream)
			p.Out.Host = p.In.Host // which the signature is over
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true},
	}}
	server := httptest.NewServer(g)
	a.t.Cleanup(func() {
		g.set(nil)
		server.Close()
	})
	was := a.deps.Targets[target]
	b, err := a.client.Bucket(storage.Target{
		Name: target, Bucket: was.Name(), Endpoint: server.URL, Region: a.s3.Region, PathStyle: true, Provider: was.Provider(), RestorePriority: was.Priority(),
		AccessKeyID: a.s3.AccessKeyID, SecretAccessKey: storage.Secret(a.s3.SecretAccessKey),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.deps.Targets[target] = b
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
			a.stored(map[string]string{"a": "content"})
			g := a.gatedTarget("Standard-VA")
			g.set(fail)
			a.makeDue("%/data/a")
			stop := a.running(a.fixity())
			defer stop()
			wait(t, time.Minute, "the failure to be noted", func() bool {
				return value[int](a, `SELECT count(*) FROM fixity_checks WHERE attempts = 1 AND error <> ''`) == 1
			})
			if n := len(a.rows(fixityEvents)) + value[int](a, `SELECT count(*) FROM fixity_failures`) + value[int](a, `SELECT count(*) FROM alerts`); n > 0 {
				t.Errorf("a verdict is on record")
			}
			g.set(nil)
			a.exec(`UPDATE fixity_checks SET run_at = now()`)
			wait(t, time.Minute, "the copy to be checked", func() bool { return len(a.rows(fixityEvents)) == 1 })
			if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n > 0 {
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
			a.stored(map[string]string{"a": "content"})
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
			a.makeDue("%/data/a")
			a.checked(a.fixity())
			got := value[string](a, `SELECT concat_ws(' ', sum(checks), sum(failures), sum(wavered), (SELECT count(*) FROM fixity_checks WHERE attempts > 0)) FROM fixity_done`)
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
	a.stored(map[string]string{"a": content})
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
	a.makeDue("%/data/a")
	a.checked(a.fixity())
	if diff := cmp.Diff([]string{"a Success Fixity matches"}, a.rows(fixityEvents)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", "bytes=400000-", "bytes=800000-", "bytes=1200000-"}, ranges); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// held is a worker that has a copy in hand, of which the provider says nothing until
// the function that it returns is called.
func (a *archive) held(f *Fixity) (stop, letGo func()) {
	a.t.Helper()
	a.stored(map[string]string{"a": "content"})
	g := a.gatedTarget("Standard-VA")
	f.Deps = a.deps
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
	a.makeDue("%/data/a")
	stop = a.running(f)
	<-asked
	letGo = sync.OnceFunc(func() { close(open) })
	a.t.Cleanup(letGo)
	return stop, letGo
}

// However long a check takes, nobody takes it over while its worker lives.
func TestLongCheckIsNotTakenOver(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	f := a.fixity()
	f.Lease = 300 * time.Millisecond
	stop, letGo := a.held(f)
	defer stop()
	token := value[int64](a, `SELECT token FROM fixity_checks`)
	other := a.fixity()
	other.Worker = "other"
	stopOther := a.running(other)
	defer stopOther()
	for range 3 { // whole leases
		was := value[time.Time](a, `SELECT run_at FROM fixity_checks`)
		wait(t, time.Minute, "the lease to be renewed", func() bool { return value[bool](a, `SELECT now() > $1 FROM fixity_checks`, was) })
	}
	if now := value[int64](a, `SELECT token FROM fixity_checks WHERE worker = 'w'`); now != token {
		t.Errorf("the token is %d, was %d", now, token)
	}
	letGo()
	wait(t, time.Minute, "the check to end", func() bool { return value[int](a, leftToCheck) == 0 })
	if n := len(a.rows(fixityEvents)); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// Who was told to stop gives back what it has, at once.
func TestStoppedCheckIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	stop, _ := a.held(a.fixity())
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if got := value[string](a, `SELECT concat_ws(' ', worker, run_at <= now(), attempts) FROM fixity_checks`); got != " t 0" {
		t.Errorf("the check is %q, want it to be nobody's, at once, and not counted", got)
	}
}

// Who was told to stop while it claims gives back what the claim took.
func TestClaimThatIsUnderWayIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.stored(map[string]string{"a": "content"})
	a.makeDue("%/data/a")
	tx, err := a.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // ended below, unless the test failed
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('farol fixity', 0))`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.fixity().Run(ctx) }()
	wait(t, time.Minute, "the claim to wait its turn", func() bool {
		return value[bool](a, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)`)
	})
	stop()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := a.rows(`SELECT concat_ws(' ', worker, run_at <= now(), attempts) FROM fixity_checks`); len(got) != 1 || got[0] != " t 0" {
		t.Errorf("the claim left %q, want one copy that is nobody's, at once, and not counted", got)
	}
}

// A check that was taken over while its worker stood still ends, and its result is
// not heard.
func TestCheckThatWasTakenOverEnds(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	f := a.fixity()
	f.Lease = 300 * time.Millisecond
	ended := make(chan FixityOutcome, 10)
	f.Observe = func(o FixityOutcome) { ended <- o }
	stop, _ := a.held(f)
	defer stop()
	a.exec(`UPDATE fixity_checks SET token = token + 1, worker = 'other', run_at = now() + interval '1 hour'`)
	if o := <-ended; o.Result != "dropped" {
		t.Errorf("it ended as %+v", o)
	}
	if got := value[string](a, `SELECT worker FROM fixity_checks`); got != "other" || len(a.rows(fixityEvents)) != 0 {
		t.Errorf("the check is of %s now", got)
	}
}

// What a dead worker had in hand is taken up once its lease has lapsed.
func TestDeadWorkersChecksAreTakenUp(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.stored(map[string]string{"a": "content"})
	a.makeDue("%/data/a")
	list, err := fixity.In(a.deps.Registry).Claim(t.Context(), fixity.Claim{Worker: "dead", Targets: []string{"Standard-VA"}, Most: 1, Days: 90, Lease: 200 * time.Millisecond})
	if err != nil || len(list) != 1 {
		t.Fatalf("claimed %v, %v", list, err)
	}
	a.allow(0)
	stop := a.running(a.fixity())
	defer stop()
	wait(t, time.Minute, "the copy to be checked", func() bool { return len(a.rows(fixityEvents)) == 1 })
}

// Copies that turn out to be archived are no failures: what is wrong is their policy,
// and people hear of it once.
func TestArchivedCopiesAreNoFailures(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	a.stored(files)
	a.exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.makeDue("%")
	a.checked(a.fixity())
	if n := strings.Count(a.log.String(), "copies are archived"); n != 1 {
		t.Errorf("people heard of it %d times", n)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n > 0 || strings.Contains(a.log.String(), "ERROR") {
		t.Errorf("%d copies failed", n)
	}
	tried := value[int](a, `SELECT count(*) FROM fixity_checks WHERE target = 'Standard-OR' AND run_at > now() + interval '23 hours' AND error LIKE '%archived%'`)
	if paused := value[bool](a, `SELECT paused_until > now() + interval '23 hours' FROM fixity_policies WHERE target = 'Standard-OR'`); tried < 5 || tried > 4+2+5 || !paused {
		t.Errorf("%d were tried, and the target is paused: %v", tried, paused)
	}
}

// Who asks about archived copies hears of each that is missing, however many are
// there. Nobody is told to wait.
func TestMissingArchivedCopyIsFoundOnRequest(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	a.stored(files)
	if err := a.deps.Targets["Standard-OR"].Delete(t.Context(), a.copyKey("19")); err != nil {
		t.Fatal(err)
	}
	asked, err := fixity.In(a.deps.Registry).Request(t.Context(), "test.edu/bag", "Standard-OR", false)
	if err != nil {
		t.Fatal(err)
	}
	stop := a.running(a.fixity())
	wait(t, time.Minute, "all of them to be looked at", func() bool { return value[int](a, `SELECT count(*) FROM fixity_checks`) == 0 })
	stop()
	missing := a.rows(`SELECT f.identifier || ' ' || s.target || ' ' || s.problem FROM fixity_failures s JOIN generic_files f ON f.id = s.generic_file_id`)
	if want := []string{"test.edu/bag/data/19 Standard-OR missing"}; !slices.Equal(missing, want) {
		t.Errorf("failures: %q, want %q", missing, want)
	}
	if n := strings.Count(a.log.String(), "copy is there, and archived"); int64(n) != asked[0].Copies-1 || n < 19 {
		t.Errorf("%d of %d are said to be there", n, asked[0].Copies)
	}
	if value[bool](a, `SELECT bool_or(paused_until > now()) FROM fixity_policies`) {
		t.Error("the target was left alone")
	}
}

// Copies that are ingested anew or deleted while they are checked never fail.
func TestFixityBesideIngests(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 60
	version := func(content string) []byte {
		var files []bagtest.File
		for i := range n {
			files = append(files, bagtest.File{Path: fmt.Sprintf("data/%03d.txt", i), Content: content + fmt.Sprint(i)})
		}
		return a.bag(bagtest.Spec{Name: "busy", Files: files})
	}
	a.deposit("busy.tar", version("first"))
	a.work()
	a.allow(1_000_000)
	f := a.fixity()
	f.Slots = 6
	stop := a.running(f)
	defer stop()
	for i := range 4 {
		a.makeDue("%")
		a.deposit("busy.tar", version(fmt.Sprintf("version %d", i)))
		end := a.start()
		wait(t, time.Minute, "the version to be ingested", func() bool {
			a.makeDue("%")
			return value[int](a, `SELECT count(*) FROM work_items WHERE retry`) == 0
		})
		end()
	}
	stop()
	if got := a.rows(`SELECT DISTINCT e.outcome_information FROM premis_events e WHERE event_type = 'fixity check' AND outcome = 'Failure'`); len(got) > 0 {
		t.Errorf("copies failed: %q", got)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome_information LIKE '% at %'`); n < 50 {
		t.Errorf("%d checks were made, which says little", n)
	}
}

// The policies are of the targets that there are, and what cannot be read without a
// restoration is not read.
func TestEachTargetHasAPolicy(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	policies, err := fixity.In(a.deps.Registry).Policies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
