package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/retry"
)

// How a server that has ended is brought back.
const (
	firstPause   = 100 * time.Millisecond // before the first try; doubled after each one
	longestPause = 5 * time.Second
	lookPause    = time.Second // between two checks of a server that another process has started
	mostTries    = 10          // in a row; then it is reported by Died
	tryTime      = 2 * time.Minute
)

// runner starts a server on addresses and returns when it answers.
type runner func(ctx context.Context, addrs []string) (*child, error)

// server is one server of a stack, and what it takes to have it back.
type server struct {
	again   func(context.Context) (*child, error) // on the same addresses with the same data
	answers func(context.Context) bool            // whether anyone does at these addresses; nil: again sees to that
	evict   func(context.Context) error           // stops what someone else has started; nil: nothing

	end   context.CancelFunc // stops the looking after, not the server
	idle  chan struct{}      // closed once nobody looks after it
	child *child             // the last one; may be read once idle is closed
}

// find finds the program of a server, or says which package has it on Debian and on macOS.
func find(program, debian, macOS string) (path string, err error) {
	path, err = exec.LookPath(program)
	if err != nil && executable("/usr/sbin", program) {
		return filepath.Join("/usr/sbin", program), nil // which is in root's PATH only
	}
	if err != nil {
		return "", fmt.Errorf("no %s: apt-get install %s | brew install %s: %w", program, debian, macOS, err)
	}
	return path, nil
}

// guard starts a foreign server under a guard, and returns when it answers.
func (s *Stack) guard(ctx context.Context, service Service, g guarded, answers func() bool) (*child, error) {
	c, err := s.launch(ctx, service, "guard", g)
	if err != nil {
		return nil, err
	}
	return c, c.awaitAnswer(ctx, answers)
}

// serve starts a server on ports that are remembered by their IDs, and keeps it.
func (s *Stack) serve(ctx context.Context, run runner, ids ...string) (addrs []string, c *child, err error) {
	if addrs, c, err = s.onPorts(ctx, ids, run); err != nil {
		return nil, nil, err
	}
	s.keepListening(ctx, c, run, addrs)
	return addrs, c, nil
}

func (s *Stack) keepListening(ctx context.Context, c *child, run runner, addrs []string) {
	s.keep(ctx, c, &server{
		again:   func(ctx context.Context) (*child, error) { return run(ctx, addrs) },
		answers: func(ctx context.Context) bool { return listens(ctx, addrs[0]) },
	})
}

// Run adds a server that the stack does not know to it: the program at path, which takes
// connections at addr.
func (s *Stack) Run(ctx context.Context, name, addr, path string, args ...string) error {
	run := func(ctx context.Context, _ []string) (*child, error) {
		return s.guard(ctx, Service(name), guarded{
			Path: path, Args: args, Dir: s.dir, UID: -1, GID: -1, Stop: syscall.SIGTERM, GraceMS: 10_000,
		}, func() bool { return listens(ctx, addr) })
	}
	c, err := run(ctx, nil)
	if err == nil {
		s.keepListening(ctx, c, run, []string{addr})
	}
	return err
}

// keep makes a server part of the stack: it is started again when it ends, and
// stopped with the stack. ctx lends its values; it may end before.
func (s *Stack) keep(ctx context.Context, c *child, sv *server) {
	ctx, sv.end = context.WithCancel(context.WithoutCancel(ctx))
	sv.child, sv.idle = c, make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, sv)
	go func() {
		defer close(sv.idle)
		if err := s.lookAfter(ctx, sv); err != nil {
			select {
			case s.died <- err:
			default: // only the first one is news
			}
		}
	}()
}

// stop stops the server, no matter who has started it. It waits for a try to start it
// that is under way, which ends with its context and cleans up.
func (sv *server) stop(ctx context.Context) error {
	sv.end()
	<-sv.idle
	err := sv.child.stop(ctx)
	if sv.evict != nil {
		err = errors.Join(err, sv.evict(ctx))
	}
	return err
}

// lookAfter starts a server again whenever it ends. It returns nil when ctx has
// ended, and an error when the server is beyond it.
func (s *Stack) lookAfter(ctx context.Context, sv *server) error {
	pause := firstPause
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
		case <-sv.child.exited:
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // we stop it
		}
		death, ended := sv.child.death(), time.Now()
		if s.options.Ephemeral {
			return death
		}
		service := string(sv.child.service)
		s.options.Log.WarnContext(ctx, "a server ended; restarting it", "server", service, "err", death)
		if ended.Sub(began) > longestPause {
			pause = firstPause // else what ended it may go on
		}
		c, err := s.revive(ctx, sv, &pause)
		if err != nil {
			return fmt.Errorf("%s could not be restarted in %d attempts: %w", service, mostTries, err)
		}
		if c == nil {
			return nil
		}
		sv.child = c
		s.options.Log.WarnContext(ctx, "server restarted", "server", service, "took_ms", time.Since(ended).Milliseconds())
	}
}

// revive tries to start a server until one runs, or another's answers no
// more and we may start ours again. It returns nil when ctx has ended.
func (s *Stack) revive(ctx context.Context, sv *server, pause *time.Duration) (*child, error) {
	service := string(sv.child.service)
	wait, foreign := *pause, false
	for tries := 1; ; {
		if !retry.Pause(ctx, wait) {
			return nil, nil //nolint:nilnil // asked to stop
		}
		if sv.answers != nil && sv.answers(ctx) {
			if !foreign {
				s.options.Log.WarnContext(ctx, "another process serves the address; using it", "server", service)
			}
			wait, foreign, tries, *pause = lookPause, true, 1, firstPause
			continue
		}
		foreign = false
		c, err := s.try(ctx, sv)
		*pause = min(2**pause, longestPause)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, nil //nolint:nilnil,nilerr // asked to stop
		case tries == mostTries:
			return nil, err
		}
		tries++
		wait = *pause
		s.options.Log.WarnContext(ctx, "cannot restart the server; retrying", "server", service, "err", err)
	}
}

func (s *Stack) try(ctx context.Context, sv *server) (*child, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTime, fmt.Errorf("no answer within %s", tryTime))
	defer cancel()
	return sv.again(ctx)
}

// listens reports whether anyone accepts connections at addr.
func listens(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	return err == nil && conn.Close() == nil
}
