package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// role makes a user of the database who may log in and nothing else, and has the
// processes started from now on be that user.
func (s *site) role() (name string) {
	s.t.Helper()
	u := must.Get(url.Parse(s.settings["FAROL_DATABASE_URL"]))(s.t)
	name, password := "role_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	s.exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD '` + password + `'`)
	u.User = url.UserPassword(name, password)
	s.settings["FAROL_DATABASE_URL"] = u.String()
	return name
}

// surroundings are those of a worker of the site.
func (s *site) surroundings() preflight.Surroundings {
	s.t.Helper()
	config := must.Get(settings.Load(s.settings, settings.Worker{}))(s.t)
	return surroundingsOf(&config)
}

// found returns what was found of something.
func found(t *testing.T, all []preflight.Finding, service, what string) preflight.Finding {
	t.Helper()
	for _, f := range all {
		if f.Service == service && f.Check == what {
			return f
		}
	}
	t.Fatalf("nothing was found of %s, %s: %+v", service, what, all)
	return preflight.Finding{}
}

// The rights that are named are enough: with no others a worker takes a bag to its
// end and gives a file of it back, and the jobs of the scheduler run. Each that is
// taken away is named.
func TestRightsThatAreNamedAreEnough(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner := s.settings["FAROL_DATABASE_URL"]
	s.deposit(sampleBag("sample"))
	name := s.role()
	db := must.Get(dial.Connect(t.Context(), s.settings["FAROL_DATABASE_URL"], "test"))(t)
	t.Cleanup(db.Close)
	missing, err := registry.New(db).MissingRights(t.Context(), "work", "schedule")
	if err != nil || len(missing) < 50 {
		t.Fatalf("a role without rights lacks %d, %v", len(missing), err)
	}
	for _, right := range missing {
		s.exec(`GRANT ` + right + ` TO ` + name)
	}
	w := s.worker()
	s.atRest(w)
	s.intact(1)
	restored := s.settings["FAROL_DATABASE_URL"]
	s.settings["FAROL_DATABASE_URL"] = owner
	s.created(s.in.RestoreBucket)
	s.farol("restore", "file", "test.edu/sample/data/a.bin")
	s.settings["FAROL_DATABASE_URL"] = restored
	s.atRest(w)
	if item := s.item(2); item.Status != "Success" {
		t.Errorf("the restoration is %s: %s", item.Status, item.Note)
	}
	s.farol("schedule", "--once")
	if text := w.said(); strings.Contains(text, "permission denied") {
		t.Errorf("the worker lacked a right:\n%s", text)
	}
	stop(t, w)

	s.exec(`REVOKE INSERT ON alerts FROM ` + name)
	f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "rights")
	if diff := cmp.Diff([]string{"INSERT ON alerts"}, f.Missing); diff != "" || f.State != preflight.Failed || !f.Fatal || f.Code != "database-denied" {
		t.Errorf("after REVOKE: %+v\n%s", f, diff)
	}
	if !strings.Contains(f.Todo, "FAROL_DATABASE_URL") || !strings.Contains(f.Found, name) {
		t.Errorf("%q does not name the setting, or %q the role", f.Todo, f.Found)
	}
}

// With the rights that are named for them, and no others, messages are posted and
// pulled over HTTP, and the mirror publishes.
func TestRightsOfServersAreEnough(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.deposit(sampleBag("sample"))
	name := s.role()
	nsq := testenv.NewNSQ(t)
	s.settings["FAROL_NSQD_TCP_ADDR"], s.settings["FAROL_NSQD_HTTP_ADDR"] = nsq.TCPAddr, nsq.HTTPAddr
	db := must.Get(dial.Connect(t.Context(), s.settings["FAROL_DATABASE_URL"], "test"))(t)
	t.Cleanup(db.Close)
	for process, args := range map[string][]string{"serve": {"serve", "--pull"}, "mirror": {"mirror"}} {
		p := startProcess(t, s.binary, t.TempDir(), s.settings, args...)
		if err := p.wait(); err == nil || !strings.Contains(p.said(), "database, rights") {
			t.Errorf("%s starts without rights: %v", process, err)
		}
		missing := must.Get(registry.New(db).MissingRights(t.Context(), process))(t)
		for _, right := range missing {
			s.exec(`GRANT ` + right + ` TO ` + name)
		}
	}
	p, addr := startServe(t, s.binary, "127.0.0.1", s.settings)
	if status, answer := send(t, addr+"/post", "", `{"sender": "a", "messages": {"scans": ["one"]}}`); status != http.StatusOK {
		t.Errorf("post: %d %s", status, answer)
	}
	if status, answer := send(t, addr+"/pull", "", `{"receiver": "r", "queues": {"scans": {}}}`); status != http.StatusOK {
		t.Errorf("pull: %d %s", status, answer)
	}
	if status, answer := send(t, addr+"/pull", "", `{"receiver": "r", "results": {"scans": {"1": "x"}}, "queues": {"scans": {}}, "timeout": 0}`); status != http.StatusNoContent {
		t.Errorf("answer: %d %s", status, answer)
	}
	m := startProcess(t, s.binary, t.TempDir(), s.settings, "mirror")
	m.eventually("the mirror to have published", func() bool {
		return ask[bool](t, s.db, `SELECT count(*) = 1 FROM topic_readers r JOIN topic_messages m ON r.message_id = m.id WHERE m.topic = 'ingest01_prefetch'`)
	})
	for _, p := range []*process{p, m} {
		stop(t, p)
		if text := p.said(); strings.Contains(text, "permission denied") {
			t.Errorf("a right was lacking:\n%s", text)
		}
	}
}

// A role whose transactions may not write is refused, and so is a schema of another
// version; a newer one is that of an upgrade.
func TestDatabaseMustTakeWritesAndHaveTheSchema(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := s.settings["FAROL_DATABASE_URL"]
	name := s.role()
	s.exec(`ALTER ROLE ` + name + ` SET default_transaction_read_only = on`)
	f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "answers")
	if f.State != preflight.Failed || !f.Fatal || !strings.Contains(f.Todo, "FAROL_DATABASE_URL") {
		t.Errorf("read-only: %+v", f)
	}
	s.settings["FAROL_DATABASE_URL"] = strings.Replace(direct, "/t_", "/u_", 1)
	if f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "answers"); f.Code != "database-missing" || !f.Fatal {
		t.Errorf("no such database: %+v", f)
	}
	s.settings["FAROL_DATABASE_URL"] = direct
	s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
	if f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "schema"); f.State != preflight.Warning || !strings.Contains(f.Found, "99999") {
		t.Errorf("a newer schema: %+v", f)
	}
	s.exec(`DELETE FROM goose_db_version WHERE version_id IN (203, 99999)`)
	if f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "schema"); f.State != preflight.Failed || !strings.Contains(f.Found, ": 203") || !f.Fatal {
		t.Errorf("a schema that lacks a migration: %+v", f)
	}
	s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (162, true)`)
	if f := found(t, s.surroundings().Examine(t.Context()), fault.Database, "schema"); f.State != preflight.Failed || !strings.Contains(f.Todo, "docs/upgrading.md") || !f.Fatal {
		t.Errorf("a schema that cannot be migrated in place: %+v", f)
	}
}

// Fixity checks that cannot keep up keep no worker from starting; farol check says so.
func TestCheckSaysThatFixityCannotKeepUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	look := func() preflight.Finding {
		t.Helper()
		return found(t, s.surroundings().Examine(t.Context()), fault.Database, "fixity checks")
	}
	if f := look(); f.State != preflight.OK {
		t.Errorf("without copies: %+v", f)
	}
	w := s.worker()
	s.deposit(sampleBag("sample"))
	s.atRest(w)
	stop(t, w)
	s.exec(`UPDATE fixity_feed SET fed = 1, every = '10000 hours', fed_at = now()`)
	if f := look(); f.State != preflight.Warning || f.Fatal || !strings.Contains(f.Found, "cannot keep up") || !strings.Contains(f.Todo, "FAROL_FIXITY_FEED") {
		t.Errorf("one copy in 10,000 hours: %+v", f)
	}
	s.farol("schedule", "run", "fixity-feed")
	if f := look(); f.State != preflight.OK {
		t.Errorf("with a release that follows: %+v", f)
	}
	s.farol("pause", string(registry.FixityStage), "--reason", "Upgrade")
	if f := look(); f.State != preflight.Warning || !strings.Contains(f.Found, "paused") {
		t.Errorf("paused: %+v", f)
	}
}

// One target of several, or one institution's buckets, keep no worker from starting;
// all targets do.
func TestOneTargetOfSeveralIsNotFatal(t *testing.T) {
	t.Parallel()
	s := newSite(t) // which has no restore bucket
	s.settings["FAROL_TARGET_WASABI_OR_BUCKET"] = s.s3.Prefix + "nowhere"
	around := s.surroundings()
	all := around.Examine(t.Context())
	for service, what := range map[string]string{"s3:Wasabi-OR": "target", "s3:" + s.in.RestoreBucket: "restore bucket of test.edu"} {
		if f := found(t, all, service, what); f.State != preflight.Failed || f.Fatal || f.Code == "" {
			t.Errorf("%+v", f)
		}
	}
	if err := refusal("work", all); err != nil {
		t.Errorf("a worker refuses to start: %v", err)
	}
	for i := range around.Storage.Targets {
		around.Storage.Targets[i].Bucket = s.s3.Prefix + "nowhere"
	}
	all = around.Examine(t.Context())
	err := refusal("work", all)
	if f := found(t, all, "s3:Standard-VA", "target"); !f.Fatal || err == nil || cli.FailureOf(err).Code != cli.ExitUsage {
		t.Errorf("no target is there: %+v, %v", f, err)
	}
	around.Command = "schedule" // whose other jobs need no target
	if err := refusal("schedule", around.Examine(t.Context())); err != nil {
		t.Errorf("a scheduler refuses to start: %v", err)
	}
}

// All checks end in bounded time, though nothing answers.
func TestChecksEndThoughEverythingHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hang := func(addr string) string {
		p := testenv.NewProxy(t, addr)
		p.Delay(time.Hour)
		return p.Addr()
	}
	for _, name := range []string{"FAROL_DATABASE_URL", "FAROL_REDIS_URL", "FAROL_S3_ENDPOINT"} {
		u := must.Get(url.Parse(s.settings[name]))(t)
		u.Host = hang(u.Host)
		s.settings[name] = u.String()
	}
	began := time.Now()
	all := s.surroundings().Examine(t.Context())
	if took := time.Since(began); took > testenv.AtOnce {
		t.Errorf("the checks took %v", took)
	}
	for service, what := range map[string]string{"database": "answers", "redis": "answers", "s3:" + s.settings["FAROL_STAGING_BUCKET"]: "staging bucket"} {
		if f := found(t, all, service, what); f.State != preflight.Failed || !f.Fatal || !strings.HasSuffix(f.Code, "-unavailable") {
			t.Errorf("%+v", f)
		}
	}
}

// A worker that waits says what for, is alive and not ready at the same time, and starts by
// itself when the server comes up.
func TestWaitEndsWhenTheServerComesUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	u := must.Get(url.Parse(s.settings["FAROL_REDIS_URL"]))(t)
	proxy := testenv.NewProxy(t, u.Host)
	proxy.Cut()
	u.Host = proxy.Addr()
	s.settings["FAROL_REDIS_URL"], s.settings["FAROL_HTTP_ADDR"] = u.String(), "127.0.0.1:0"
	id := s.depositSample()
	w := startProcess(t, s.binary, t.TempDir(), s.settings, "work", "--wait")
	w.eventually("the worker to wait", func() bool { return strings.Contains(w.said(), "not ready; retrying the failed checks") })
	w.eventually("its health to be served", func() bool { return strings.Contains(w.said(), "serving metrics and health") })
	for _, path := range []string{"/healthz", "/readyz"} {
		_, after, _ := strings.Cut(w.said(), `msg="serving metrics and health" addr=`)
		addr, _, _ := strings.Cut(after, "\n")
		want := map[string]string{"/healthz": "ok\n", "/readyz": "not ready\n"}[path]
		if got := fetched(t, "http://"+addr+path); got != want {
			t.Errorf("%s answers %q, want %q", path, got, want)
		}
	}
	proxy.Resume()
	s.atRest(w)
	s.intact(id)
	stop(t, w)
}

// A clock that is off by more than S3 takes is fatal only if S3 refuses for it.
func TestClocksAreCompared(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		off     time.Duration
		refuses bool
		want    string
		fatal   bool
	}{
		{20 * time.Second, false, preflight.OK, false},
		{-5 * time.Minute, false, preflight.Warning, false},
		{time.Hour, false, preflight.Warning, false},
		{time.Hour, true, preflight.Failed, true},
	} {
		s := newSite(t)
		s.settings["FAROL_S3_ENDPOINT"] = clockedS3(t, s.s3, tc.off, tc.refuses)
		around := s.surroundings()
		all := around.Examine(t.Context())
		if f := found(t, all, "s3", "clock"); f.State != tc.want || f.Fatal != tc.fatal {
			t.Errorf("%v off: %+v", tc.off, f)
		}
	}
}

// A check that has been interrupted is no refusal.
func TestCheckThatIsInterruptedEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settings["FAROL_REDIS_URL"] = "redis://127.0.0.1:1/0"
	ctx, cancel := context.WithCancel(t.Context())
	log := connect.NewLogger(settings.Log{Level: "error"})
	_, err := waiting(time.Hour).until(ctx, s.surroundings(), func(list []preflight.Finding) bool {
		cancel()
		return false
	}, log, nil)
	if err == nil || orderly(ctx, err) != nil {
		t.Errorf("err = %v", err)
	}
}

// clockedS3 is the way to S3 through a server whose clock is off, and which may refuse
// requests for that.
func clockedS3(t *testing.T, s testenv.S3Server, off time.Duration, refuses bool) string {
	t.Helper()
	return s3Through(t, s, func(w http.ResponseWriter, _ *http.Request) bool {
		if refuses {
			w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>`)
		}
		return refuses
	}, func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
		return nil
	})
}

// s3Through is the way to S3 through a proxy that may answer by itself, and change
// answers.
func s3Through(t *testing.T, s testenv.S3Server, instead func(http.ResponseWriter, *http.Request) bool, change func(*http.Response) error) string {
	t.Helper()
	proxy := s.Proxy(t)
	proxy.ModifyResponse = change
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !instead(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func fetched(t *testing.T, url string) string {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	return string(text)
}

// stop ends a process in order.
func stop(t *testing.T, p *process) {
	t.Helper()
	must.Do(t, p.Process.Signal(syscall.SIGTERM))
	if err := p.wait(); err != nil {
		t.Errorf("%v\n%s", err, p.said())
	}
}

// Redis that evicts, or does not persist, is warned of; one that takes no writes is
// refused, with the setting that leads to it.
func TestRedisIsLookedAt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := testenv.NewRedisServer(t)
	s.settings["FAROL_REDIS_URL"] = server.URL
	look := func(starting bool) []preflight.Finding {
		around := s.surroundings()
		around.Starting = starting
		return slices.DeleteFunc(around.Examine(t.Context()), func(f preflight.Finding) bool { return f.Service != fault.Redis })
	}
	server.Set("appendonly", "yes")
	if all := look(true); preflight.Worst(all) != preflight.OK {
		t.Errorf("%+v", all)
	}
	if keys, err := server.Client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left in Redis: %v, %v", keys, err)
	}
	server.Set("maxmemory-policy", "allkeys-lru", "appendonly", "no")
	for _, what := range []string{"eviction", "persistence"} {
		if f := found(t, look(true), fault.Redis, what); f.State != preflight.Warning || f.Fatal || !strings.Contains(f.Todo, "FAROL_REDIS_URL") {
			t.Errorf("%+v", f)
		}
	}
	server.Set("maxmemory-policy", "noeviction", "maxmemory", "1")
	if f := found(t, look(true), fault.Redis, "answers"); f.Code != "progress-full" || !f.Fatal {
		t.Errorf("full: %+v", f)
	}
	server.Set("maxmemory", "0")
	server.Follow(testenv.NewRedisServer(t))
	for _, starting := range []bool{true, false} {
		if f := found(t, look(starting), fault.Redis, "answers"); f.Code != "progress-read-only" || !f.Fatal || !strings.Contains(f.Todo, "FAROL_REDIS_URL") {
			t.Errorf("a replica: %+v", f)
		}
	}
	server.Promote()
	for command, code := range map[string]string{"-info": "", "-eval": "progress-denied"} {
		must.Do(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "shy", "reset", "on", ">quiet", "~*", "&*", "+@all", command).Err())
		u := must.Get(url.Parse(server.URL))(t)
		u.User = url.UserPassword("shy", "quiet")
		s.settings["FAROL_REDIS_URL"] = u.String()
		all := look(true)
		if f := found(t, all, fault.Redis, "answers"); f.Code != code || strings.Contains(fmt.Sprint(all), "quiet") {
			t.Errorf("%s: %+v", command, all)
		}
	}
}
