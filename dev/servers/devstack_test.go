package servers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func mustParse(t *testing.T, s string) *url.URL {
	t.Helper()
	u := must.Get(url.Parse(s))(t)
	return u
}

// query runs a statement and returns the one value that it yields, as text.
func query(t *testing.T, s *devstack.Stack, statement string) string {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), s.AdminURL))(t)
	defer conn.Close(t.Context()) //nolint:errcheck // only read
	var value string
	if err := conn.QueryRow(t.Context(), statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func redisClient(t *testing.T, s *devstack.Stack) *redis.Client {
	t.Helper()
	options := must.Get(redis.ParseURL(s.RedisURL))(t)
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // nothing is pending
	return client
}

func body(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, resp.Status, err)
	}
	return string(b)
}

// leave writes something into every server; find looks for it.
func leave(t *testing.T, s *devstack.Stack) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), s.AdminURL))(t)
	defer conn.Close(t.Context()) //nolint:errcheck // the statement has been answered
	must.Get(conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 'in postgres' AS v"))(t)
	must.Do(t, redisClient(t, s).Set(t.Context(), "kept", "in redis", 0).Err())
	client := s3Client(t, s)
	makeBucket(t, client, "kept")
	put(t, client, "kept", "key", "in s3", "")
	resp, err := http.Post("http://"+s.NSQDHTTPAddr+"/pub?topic=kept", "", strings.NewReader("in nsq"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close() //nolint:errcheck // of no interest
}

func find(t *testing.T, s *devstack.Stack) []string {
	t.Helper()
	v, err := redisClient(t, s).Get(t.Context(), "kept").Result()
	if err != nil {
		t.Error(err)
	}
	found := []string{query(t, s, "SELECT v FROM kept"), v, get(t, s3Client(t, s), "kept", "key")}
	if strings.Contains(body(t, "http://"+s.NSQDHTTPAddr+"/stats?format=json"), `"topic_name":"kept","channels":[],"depth":1`) {
		found = append(found, "in nsq")
	}
	return found
}

// How long it takes until a stack is up: a new one, and one that takes up its data.
func BenchmarkStart(b *testing.B) {
	base := tempDir(b)
	up := func(b *testing.B, dir string) {
		b.Helper()
		s := must.Get(devstack.Start(b.Context(), devstack.Options{Dir: filepath.Join(base, dir)}))(b)
		b.StopTimer()
		stop(b, s)
		b.StartTimer()
	}
	b.Run("new", func(b *testing.B) {
		for n := range b.N {
			up(b, fmt.Sprint(b.N, "-", n))
		}
	})
	b.Run("warm", func(b *testing.B) {
		up(b, "warm")
		b.ResetTimer()
		for range b.N {
			up(b, "warm")
		}
	})
}

func TestWarmStartKeepsDataAndAddresses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	began := time.Now()
	first := start(t, devstack.Options{Dir: dir})
	t.Logf("first start: %s", time.Since(began))
	leave(t, first)
	began = time.Now()
	stop(t, first)
	t.Logf("stop: %s", time.Since(began))
	awaitEmpty(t, dir)

	began = time.Now()
	second := start(t, devstack.Options{Dir: dir})
	t.Logf("warm start: %s", time.Since(began))
	if diff := cmp.Diff([]string{"in postgres", "in redis", "in s3", "in nsq"}, find(t, second)); diff != "" {
		t.Error("after a restart (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(first.Env(), second.Env()); diff != "" {
		t.Error("the settings changed (-first +second):\n" + diff)
	}
	if page := body(t, second.NSQAdminURL+"/"); !strings.Contains(page, "nsqadmin") {
		t.Errorf("nsqadmin's page is %q", page)
	}
	if got := query(t, second, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s in a stack that is to keep its data", got)
	}
}

// A shell must read the file as the program would: with any character in a value.
func TestEnvFileIsReadByAShell(t *testing.T) {
	t.Parallel()
	s := start(t, devstack.Options{Dir: filepath.Join(tempDir(t), "it's here"), Only: []devstack.Service{devstack.S3}})
	path := must.Get(s.WriteEnv())(t)
	out := must.Get(exec.CommandContext(t.Context(), "sh", "-c", `. "$1"; env`, "sh", path).Output())(t)
	env := strings.Split(string(out), "\n")
	have := map[string]bool{}
	for _, line := range env {
		have[line] = true
	}
	for _, setting := range append(s.Env(), "AWS_REQUEST_CHECKSUM_CALCULATION=when_required") { // or large deposits fail
		if !have[setting] {
			t.Errorf("the shell does not have %s", setting)
		}
	}
	for _, file := range []string{path, filepath.Join(filepath.Dir(path), "secrets")} {
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", file, fi.Mode(), err)
		}
	}
}

func TestSecondStackOnADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	o := devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Redis}}
	start(t, o)
	_, err := devstack.Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "already runs a stack there") { // one that stops is waited for, in vain
		t.Errorf("Start = %v, want an error that says who runs it", err)
	}
}

// One terminal is at Ctrl-C, the next one already at "farol dev".
func TestStackThatStopsIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data")}
	first := start(t, o)
	leave(t, first)
	stopped := make(chan error, 1)
	go func() { stopped <- first.Stop(context.Background()) }()
	testenv.Eventually(t, "the stack does not say that it stops", func() bool {
		b, err := os.ReadFile(filepath.Join(o.Dir, "lock"))
		return err == nil && strings.Contains(string(b), "stopping")
	})
	second := start(t, o)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"in postgres", "in redis", "in s3", "in nsq"}, find(t, second)); diff != "" {
		t.Error("after a restart (-want +got):\n" + diff)
	}
}

// What is not needed is not started: a test of Redis need not wait for initdb.
func TestOnlyStartsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Redis}})
	if s.RedisURL == "" || s.DatabaseURL != "" || s.S3Endpoint != "" || s.NSQDTCPAddr != "" {
		t.Errorf("the stack is %v", s.Env())
	}
}

// The person at the terminal gets the reason, not just a status.
func TestFailedStartTellsWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	stop(t, start(t, devstack.Options{Dir: dir}))
	conf := filepath.Join(dir, "postgres", "data", "postgresql.conf")
	must.Do(t, os.WriteFile(conf, []byte("no_such_setting = 1\n"), 0o600))
	_, err := devstack.Start(t.Context(), devstack.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), `"no_such_setting"`) {
		t.Errorf("Start = %v, want the line of PostgreSQL's log", err)
	}
	awaitEmpty(t, dir)
	if _, err := devstack.Start(t.Context(), devstack.Options{Dir: dir, PGBinDir: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("Start with a wrong PGBinDir = %v, want an error that names it", err)
	}
}

// A start that is cancelled says that it was, whatever it was at: initdb that ends
// by our signal is no fault of PostgreSQL's.
func TestCancelledStartSaysSoAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for after := 50 * time.Millisecond; after < 2*time.Second; after = after * 3 / 2 {
		dir := filepath.Join(tempDir(t), "data")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		s, err := devstack.Start(ctx, devstack.Options{Dir: dir})
		switch {
		case err == nil:
			stop(t, s)
		case !errors.Is(err, context.Canceled):
			t.Errorf("Start cancelled after %v = %v, want that it was cancelled", after, err)
		}
		awaitEmpty(t, dir)
	}
}

// Half a data directory must not be taken for a new one: the database would
// refuse the new password without anyone knowing why.
func TestLostSecretsAreAnError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	o := devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}, Ephemeral: true}
	stop(t, start(t, o))
	must.Do(t, os.Remove(filepath.Join(dir, "secrets")))
	if _, err := devstack.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "secrets is gone") {
		t.Errorf("Start = %v, want an error about the secrets", err)
	}
}

// Someone else may have taken a port while the stack was down.
func TestTakenPortIsReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	o := devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Redis}}
	first := start(t, o)
	stop(t, first)
	l := occupy(t, mustParse(t, first.RedisURL).Host)
	second := start(t, o)
	if got := mustParse(t, second.RedisURL).Host; got == l {
		t.Errorf("Redis is at %s, which another process has", got)
	}
	if err := redisClient(t, second).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestStopIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	s := start(t, devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.NSQ}})
	for range 2 {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-s.Died():
		t.Errorf("a server that was stopped is reported as dead: %v", err)
	default:
	}
}
