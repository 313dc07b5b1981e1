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
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// RestoreDelay is how long the S3 server takes to restore a cold object.
const RestoreDelay = 300 * time.Millisecond

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
	// A collector with its usual aim takes a quarter of the processors' time from small heaps.
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(400)
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
