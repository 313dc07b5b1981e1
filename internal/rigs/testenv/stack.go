package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// lazyStack is one server in a stack of its own, so that it can start when it
// is first needed.
type lazyStack struct {
	start  func() (*devstack.Stack, error) // starts it at the first call
	shared bool                            // it is another process's, and already runs
}

// stack returns the running stack that has the service, and that the first who
// asks for it may change.
func stack(t testing.TB, service devstack.Service, change ...func(*devstack.Options)) *devstack.Stack {
	t.Helper()
	running.mu.Lock()
	dir := running.dir
	l := running.stacks[service]
	if l == nil {
		l = &lazyStack{start: sync.OnceValues(func() (*devstack.Stack, error) {
			return startStack(filepath.Join(dir, string(service)), service, change...)
		})}
		running.stacks[service] = l
	}
	running.mu.Unlock()
	if dir == "" {
		t.Fatal("testenv: the package's TestMain must call testenv.Main")
	}
	s, err := l.start()
	must(t, err)
	return s
}

func startStack(dir string, service devstack.Service, change ...func(*devstack.Options)) (*devstack.Stack, error) {
	exe, err := stackd()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	o := options(dir, exe)
	o.Only = []devstack.Service{service}
	for _, c := range change {
		c(&o)
	}
	return devstack.Start(ctx, o)
}

// OwnDir makes a directory for a server or a program that one test has. It is removed when all
// tests have ended.
func OwnDir(t testing.TB, name string) string {
	t.Helper()
	running.mu.Lock()
	base := running.dir
	running.mu.Unlock()
	dir, err := os.MkdirTemp(base, name) //nolint:usetesting // it has to be where the others are
	if err == nil {
		err = os.Chmod(dir, 0o711) // like the directory above it: PostgreSQL may run as another user
	}
	must(t, err)
	return dir
}

// ownServer is a server that one test has, and may hurt. It ends with the test.
type ownServer struct {
	service  devstack.Service
	dir      string
	settings func(*devstack.Options)
	stack    *devstack.Stack // nil while it is down
}

// newOwn makes a server that is down.
func newOwn(t testing.TB, service devstack.Service, settings func(*devstack.Options)) *ownServer {
	t.Helper()
	s := &ownServer{service: service, dir: OwnDir(t, string(service)+"-"), settings: settings}
	t.Cleanup(func() { s.stop(t) })
	return s
}

// start starts the server with the data that it had, at the address that it had.
func (s *ownServer) start(t testing.TB, change ...func(*devstack.Options)) {
	t.Helper()
	if s.stack != nil {
		return
	}
	stack, err := startStack(s.dir, s.service, append(change, s.settings)...)
	must(t, err)
	s.stack = stack
}

// stop stops the server in the order that keeps its data.
func (s *ownServer) stop(t testing.TB) {
	t.Helper()
	if s.stack == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.stack.Stop(ctx); err != nil {
		t.Error("testenv:", err)
	}
	s.stack = nil
}

// end sends the server's process a signal that ends it, and returns when it has.
func (s *ownServer) end(t testing.TB, pid int, how syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(pid, how))
	select {
	case <-s.stack.Died(): //nolint:errcheck // that it has died is what was wanted
	case <-time.After(30 * time.Second):
		t.Fatalf("testenv: %s does not end", s.service)
	}
	s.stop(t)
}

// options are those of every stack of a test.
func options(dir, exe string) devstack.Options {
	return devstack.Options{
		Dir: dir, Executable: exe, Ephemeral: true, RestoreDelay: RestoreDelay, PGBinDir: os.Getenv("PG_BINDIR"),
		PostgresSettings: []string{"max_connections=500"}, // for the tests of several packages at once
	}
}

// scratchDir makes a directory for this process, which holds a lock on the file
// alive in it, and removes those whose process was killed.
func scratchDir() (dir string, alive *os.File, err error) {
	base := scratchBase()
	prefix := "farol-test-" + strconv.Itoa(os.Getuid()) + "-"
	for _, place := range []string{memory, "/tmp", os.TempDir()} { // wherever the others had theirs
		removeStale(filepath.Join(place, prefix+"*"))
	}
	if dir, err = os.MkdirTemp(base, prefix); err != nil {
		return "", nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	if err = os.Chmod(dir, 0o711); err == nil {
		alive, err = os.Create(filepath.Join(dir, "alive"))
	}
	if err == nil {
		err = syscall.Flock(int(alive.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return "", nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	return dir, alive, nil
}

// scratchBase is in memory where there is enough, which makes a cluster in a
// third of the time. Under root it is where PostgreSQL's user can go.
func scratchBase() string {
	const enough = 4 << 30 // bytes
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) >= enough { //nolint:unconvert // the types differ between systems
		return memory
	}
	if os.Geteuid() == 0 {
		return "/tmp"
	}
	return os.TempDir()
}

func removeStale(pattern string) {
	dirs, _ := filepath.Glob(pattern) // the pattern is well-formed
	for _, dir := range dirs {
		f, err := os.Open(filepath.Join(dir, "alive"))
		if err != nil {
			continue // made a moment ago, or gone
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir) //nolint:errcheck // the next process tries again
		}
		f.Close() //nolint:errcheck // only locked
	}
}

// memory is where Linux keeps files in memory.
const memory = "/dev/shm"

// Clamd returns the address, host:port, of a clamd of ClamAV that all tests of
// this process share. It finds devstack.Virus and nothing else.
func Clamd(t testing.TB) string {
	t.Helper()
	return stack(t, devstack.Clamd).ClamdAddr
}
