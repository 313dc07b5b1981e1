// Package testenv gives tests real servers: PostgreSQL, Redis, S3 and NSQ, and a
// proxy that breaks connections to them.
//
// A test package calls [Main] from its TestMain. All packages of "make test" share
// the servers that [Share] has started. Without it, as in "go test ./claim", a server
// starts when the first test of the package asks for it and stops after the last.
// Every test has a database, a number or a name prefix of its own on them, so tests
// may run in parallel. Nothing survives the test process, not even one that is killed.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/devstack"
)

// RestoreDelay is how long the S3 server takes to restore a cold object.
const RestoreDelay = 300 * time.Millisecond

// memory is where Linux keeps files in memory.
const memory = "/dev/shm"

// running is what the tests of this process share. A test is handed nothing but
// its testing.TB, so this has to be a variable of the package.
var running = &environment{stacks: map[devstack.Service]*lazyStack{}, programs: map[string]func() (string, error){}} //nolint:gochecknoglobals // see above

type environment struct {
	mu       sync.Mutex
	dir      string // "" until Main is called
	stacks   map[devstack.Service]*lazyStack
	programs map[string]func() (string, error) // each builds one, at the first call
	template template
	stackd   string // its path, if the process that started the servers is one; else ""
	behind   backstage
	atEnd    []func()
}

// lazyStack is one server in a stack of its own, so that it can start when it
// is first needed.
type lazyStack struct {
	start  func() (*devstack.Stack, error) // starts it at the first call
	shared bool                            // it is another process's, and already runs
}

// Main runs the tests of a package and exits, with the servers stopped and their
// data removed. Call it from TestMain and do nothing after it.
func Main(m *testing.M) { main(m, true) }

// MainAlone is Main for a package that changes what all databases of a server share,
// such as a role: it always has servers of its own.
func MainAlone(m *testing.M) { main(m, false) }

func main(m *testing.M, share bool) {
	code, err := runTests(m, share)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runTests(m *testing.M, share bool) (code int, err error) {
	// The race detector has each program that ends wait for a second, and tests start
	// hundreds.
	if _, set := os.LookupEnv("GORACE"); !set {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=20"); err != nil {
			return 1, err
		}
	}
	dir, alive, err := scratchDir()
	if err != nil {
		return 1, err
	}
	running.mu.Lock()
	running.dir = dir
	running.mu.Unlock()
	if share {
		err = running.join()
	}
	if err = errors.Join(err, setChecks()); err != nil {
		return 1, err
	}
	code = m.Run()
	for _, f := range running.atEnd {
		f()
	}
	err = running.stop()
	return code, errors.Join(err, os.RemoveAll(dir), alive.Close())
}

// AtEnd has f called when all tests of this process have ended: what they share
// cannot be tidied up by one of them.
func AtEnd(f func()) {
	running.mu.Lock()
	defer running.mu.Unlock()
	running.atEnd = append(running.atEnd, f)
}

func (e *environment) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.template.close(ctx)
	for _, l := range e.stacks {
		if s, startErr := l.start(); startErr == nil && !l.shared { // it is in the map, so a test has started it
			err = errors.Join(err, s.Stop(ctx))
		}
	}
	return err
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
	if err != nil {
		t.Fatal("testenv:", err)
	}
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
