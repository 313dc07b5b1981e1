package servers_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
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
		must.Do(t, syscall.Kill(pid, sig))
	}
	testenv.Eventually(t, "a process outlives its signal", func() bool {
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
	conn, err := pgx.Connect(t.Context(), s.AdminURL)
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
		testenv.Eventually(t, loss.name+": a server does not come back", func() bool { return answers(t, s) })
		// What nsqd had in memory is lost: the mirror's readers count on that.
		if diff := cmp.Diff([]string{"in postgres", "in redis", "in s3"}, find(t, s)[:3]); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", loss.name, diff)
		}
		notDead(t, s)
	}
	if !log.has("a server ended; restarting it", "ready to accept connections") {
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

// Stop may come before the servers are back.
func TestStopWhileServersAreDownLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir})
	harm(t, dir, syscall.SIGKILL, postgresWords, "redis-server", "internal s3", "internal nsq")
	stop(t, s)
	awaitEmpty(t, dir)
}

// The stack gives up only after some time, and then says why.
func TestServerThatCannotComeBackIsReported(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(programDir(t), "exe")
	copySelf(t, exe)
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Executable: exe, Only: []devstack.Service{devstack.NSQ}})
	must.Do(t, os.Remove(exe))
	harm(t, dir, syscall.SIGKILL, "internal nsq")
	err := <-s.Died()
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "nsq could not be restarted in 10 attempts") {
		t.Errorf("Died = %v, want that the program is gone", err)
	}
	stop(t, s)
	awaitEmpty(t, dir)
}

// While another process answers at a server's address, the stack leaves it the address. Then
// it starts its own server again.
func TestAddressThatAnotherProcessServesIsLeftToIt(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(programDir(t), "exe")
	copySelf(t, exe)
	dir := filepath.Join(tempDir(t), "data")
	log := &warnings{}
	s := start(t, devstack.Options{Dir: dir, Executable: exe, Only: []devstack.Service{devstack.NSQ}, Log: slog.New(log)})
	if err := os.Remove(exe); err != nil { // so that it cannot be faster
		t.Fatal(err)
	}
	harm(t, dir, syscall.SIGKILL, "internal nsq")
	var l net.Listener
	testenv.Eventually(t, "the address is not free", func() bool { // the kernel takes its time to end what was killed
		var err error
		l, err = net.Listen("tcp", s.NSQDTCPAddr)
		return err == nil
	})
	defer l.Close() //nolint:errcheck // a second time, if all goes well
	testenv.Eventually(t, "the stack does not see who serves", func() bool { return log.has("another process serves the address; using it", "nsq") })
	copySelf(t, exe)
	must.Do(t, l.Close())
	testenv.Eventually(t, "nsqd does not come back", func() bool { return listening(s.NSQDHTTPAddr) })
	notDead(t, s)
}
