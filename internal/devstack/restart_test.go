package devstack_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/devstack"
)

// postgresWords are in the command line of a postmaster, and of none of the
// processes that it starts.
const postgresWords = "bin/postgres -D"

// harm sends a signal to the processes of a stack that have the words in their
// command line, and waits until those have ended.
func harm(t *testing.T, dir string, sig syscall.Signal, words ...string) {
	t.Helper()
	hit := map[int]string{}
	for pid, command := range processesIn(t, dir) {
		for _, w := range words {
			guard := strings.Contains(command, "internal guard")
			if strings.Contains(command, w) && guard == (w == "internal guard") {
				hit[pid] = command
			}
		}
	}
	if len(hit) < len(words) {
		t.Fatalf("%q hits only %v", words, hit)
	}
	for pid := range hit {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a process outlives its signal", func() bool {
		for pid, command := range processesIn(t, dir) {
			if hit[pid] == command {
				return false
			}
		}
		return true
	})
}

// answers reports whether every server of the stack does.
func answers(t *testing.T, s *devstack.Stack) bool {
	t.Helper()
	for _, addr := range addrs(t, s) {
		if !listening(addr) {
			return false
		}
	}
	return databaseAnswers(t, s) && redisClient(t, s).Ping(t.Context()).Err() == nil
}

func databaseAnswers(t *testing.T, s *devstack.Stack) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		return false
	}
	return conn.Close(t.Context()) == nil
}

// postmasterOf returns the process of PostgreSQL, 0 if it is down.
func postmasterOf(t *testing.T, dir string) int {
	t.Helper()
	for pid, command := range processesIn(t, dir) {
		if strings.Contains(command, postgresWords) {
			return pid
		}
	}
	return 0
}

func notDead(t *testing.T, s *devstack.Stack) {
	t.Helper()
	select {
	case err := <-s.Died():
		t.Errorf("the stack gave up: %v", err)
	default:
	}
}

// The acceptance of a server's death: its clients see it down for a moment.
func TestServerThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	log := &warnings{}
	s := start(t, devstack.Options{Dir: dir, Log: slog.New(log)})
	leave(t, s)
	for _, loss := range []struct {
		name   string
		signal syscall.Signal
		words  []string
	}{
		{"every server killed", syscall.SIGKILL, []string{postgresWords, "redis-server", "internal s3", "internal nsq"}},
		{"the guards killed", syscall.SIGKILL, []string{"internal guard"}},
		{"servers told to stop", syscall.SIGINT, []string{postgresWords, "redis-server"}},
	} {
		t.Log(loss.name)
		harm(t, dir, loss.signal, loss.words...)
		eventually(t, loss.name+": a server does not come back", func() bool { return answers(t, s) })
		// What nsqd had in memory is lost: the mirror's readers count on that.
		if diff := cmp.Diff([]string{"in postgres", "in redis", "in s3"}, find(t, s)[:3]); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", loss.name, diff)
		}
		notDead(t, s)
	}
	if !log.has("server ended and is started again", "ready to accept connections") {
		t.Error("no warning has the end of PostgreSQL's log")
	}
	stop(t, s)
	awaitEmpty(t, dir)
}

// warnings collects what a stack logs.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *warnings) WithGroup(string) slog.Handler                { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.lines = append(w.lines, line)
	return nil
}

func (w *warnings) has(message, detail string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.HasPrefix(line, message) && strings.Contains(line, detail) {
			return true
		}
	}
	return false
}

// pgCtl runs pg_ctl on the stack's cluster, as the user whose it is.
func pgCtl(t *testing.T, dir string, args ...string) error {
	t.Helper()
	data, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), pgCtlPath(t), append(args, "-D", data, "-l", filepath.Join(data, "pg_ctl.log"))...)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		fi, err := os.Stat(data)
		if err != nil {
			t.Fatal(err)
		}
		owner, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("the cluster has no owner")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

func pgCtlPath(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pg_ctl", "/opt/homebrew/opt/postgresql@*/bin/pg_ctl", "/usr/local/opt/postgresql@*/bin/pg_ctl"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	path, err := exec.LookPath("pg_ctl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Whoever restarts PostgreSQL by its own means gets a stack that works, and no
// orphan at its end, not even when the parent is killed.
func TestPostgresRestartedBySomebodyElseIsPartOfTheStack(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*process) error{
		"stopped": func(p *process) error { return errors.Join(p.stdin.Close(), p.Wait()) },
		"killed": func(p *process) error {
			err := p.Process.Kill()
			p.Wait() //nolint:errcheck // it was killed
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(tempDir(t), "data")
			p := startParent(t, exe, dir, nil)
			leave(t, &p.stack)
			for range 2 {
				before := guards(t, dir)
				if err := pgCtl(t, dir, "restart"); err != nil {
					t.Fatal(err)
				}
				eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, &p.stack) })
				adopted(t, dir, before)
			}
			if err := end(p); err != nil {
				t.Error(err)
			}
			awaitEmpty(t, dir)
			if got := query(t, start(t, devstack.Options{Dir: dir}), "SELECT v FROM kept"); got != "in postgres" {
				t.Errorf("the database has %q", got)
			}
		})
	}
}

// guards are the processes that look after PostgreSQL and Redis.
func guards(t *testing.T, dir string) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	for pid, command := range processesIn(t, dir) {
		if strings.Contains(command, "internal guard") {
			found[pid] = true
		}
	}
	return found
}

// adopted waits until one guard has taken the place of one of those before.
func adopted(t *testing.T, dir string, before map[int]bool) {
	t.Helper()
	eventually(t, "nobody looks after PostgreSQL", func() bool {
		same, now := 0, guards(t, dir)
		for pid := range now {
			if before[pid] {
				same++
			}
		}
		return len(now) == len(before) && same == len(before)-1
	})
}

// When somebody else's server ends, it is the stack's turn again.
func TestStackTakesOverFromSomebodyElsesPostgres(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}})
	if err := pgCtl(t, dir, "restart"); err != nil {
		t.Fatal(err)
	}
	harm(t, dir, syscall.SIGKILL, postgresWords)
	eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, s) })

	// One where no client looks for it is of no use.
	pgCtl(t, dir, "restart", "-o", "-h 127.0.0.1 -p "+freePort(t)+" -k /tmp") //nolint:errcheck // it may see its server stopped
	eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, s) })
	notDead(t, s)
	stop(t, s)
	awaitEmpty(t, dir)
}

// Stop may come in the middle of somebody else's restart, before the new server
// is known.
func TestStopWhileServersAreDownLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir})
	harm(t, dir, syscall.SIGKILL, postgresWords, "redis-server", "internal s3", "internal nsq")
	stop(t, s)
	awaitEmpty(t, dir)
}

// A PostgreSQL that was left on the data, by whomever, must not keep the stack
// from coming up.
func TestStartStopsSomebodyElsesPostgres(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}}
	stop(t, start(t, o))
	if err := pgCtl(t, o.Dir, "start", "-o", "-h 127.0.0.1 -p "+freePort(t)+" -k /tmp"); err != nil {
		t.Fatal(err)
	}
	foreign := postmasterOf(t, o.Dir)
	s := start(t, o)
	query(t, s, "SELECT 'x'")
	if now := postmasterOf(t, o.Dir); foreign == 0 || now == foreign {
		t.Errorf("process %d serves the stack, %d was started by somebody else", now, foreign)
	}
	stop(t, s)
	awaitEmpty(t, o.Dir)
}

// The stack gives up only after some time, and then says why.
func TestServerThatCannotComeBackIsReported(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(programDir(t), "exe")
	copySelf(t, exe)
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Executable: exe, Only: []devstack.Service{devstack.NSQ}})
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	harm(t, dir, syscall.SIGKILL, "internal nsq")
	err := <-s.Died()
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "nsq could not be started again in 10 tries") {
		t.Errorf("Died = %v, want that the program is gone", err)
	}
	stop(t, s)
	awaitEmpty(t, dir)
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return port
}
