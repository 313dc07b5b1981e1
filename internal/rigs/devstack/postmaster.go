package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postmaster is a PostgreSQL server as it describes itself in postmaster.pid, a
// file of eight lines (src/include/utils/pidfile.h).
type postmaster struct {
	pid      int
	port     int
	ready    bool // takes connections
	stopping bool // takes no more
}

func (c cluster) pidFile() string { return filepath.Join(c.data(), "postmaster.pid") }

// postmaster finds who serves the cluster, no matter who started it; false if nobody
// does.
func (c cluster) postmaster() (p postmaster, ok bool) {
	b, err := os.ReadFile(c.pidFile())
	if err != nil {
		return p, false
	}
	lines := append(strings.Split(string(b), "\n"), make([]string, 8)...) // the later ones come later
	if p.pid, err = strconv.Atoi(lines[0]); err != nil || p.pid <= 0 {
		return p, false
	}
	p.port, _ = strconv.Atoi(lines[3]) // 0 until it is known
	p.ready = strings.TrimSpace(lines[7]) == "ready"
	p.stopping = strings.TrimSpace(lines[7]) == "stopping"
	return p, c.serves(p.pid)
}

// serves reports whether a process is a PostgreSQL server on this cluster. It
// tells from the working directory, where the system lets us see that.
func (c cluster) serves(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	name, err := os.ReadFile(filepath.Join(proc, "comm"))
	if err != nil {
		return true // there is no /proc: PostgreSQL itself does not ask for more
	}
	if !strings.HasPrefix(string(name), "postgres") {
		return false
	}
	cwd, err := os.Stat(filepath.Join(proc, "cwd"))
	if err != nil {
		// Without one it has ended, and its parent has not taken note. Otherwise
		// it is hidden from us, as from root in a container.
		return !errors.Is(err, os.ErrNotExist)
	}
	data, err := os.Stat(c.data())
	return err == nil && os.SameFile(cwd, data)
}

// successor finds a server that another process has started. A server that is stopping is
// ours: successor waits until it has stopped.
//
// If that was shut down in order, it has removed its pid file, and the process that stopped
// it is likely to start another, as pg_ctl restart does: successor waits for that, up to a
// second. If ours came first, pg_ctl would say that it could not start one.
func (c cluster) successor(ctx context.Context) (postmaster, bool) {
	poll(ctx, 20*time.Millisecond, func() (bool, error) { //nolint:errcheck // the next use of ctx will fail
		p, ok := c.postmaster()
		return !ok || !p.stopping, nil
	})
	if _, err := os.Stat(c.pidFile()); errors.Is(err, os.ErrNotExist) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		poll(ctx, 20*time.Millisecond, func() (bool, error) { //nolint:errcheck // none has come
			_, ok := c.postmaster()
			return ok, nil
		})
	}
	return c.postmaster()
}

// evict stops a server on the cluster that is no child of a guard: in order, and
// by force when that takes longer than our patience or than ctx allows.
func (c cluster) evict(ctx context.Context) error {
	p, ok := c.postmaster()
	if !ok {
		return nil
	}
	gone := func() (bool, error) { return !c.serves(p.pid), nil }
	if err := send(p.pid, syscall.SIGINT); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if poll(ctx, 20*time.Millisecond, gone) == nil {
		return nil
	}
	if err := send(p.pid, syscall.SIGKILL); err != nil {
		return err
	}
	err := fmt.Errorf("stop PostgreSQL, process %d: it was killed: %w", p.pid, context.Cause(ctx))
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, poll(ctx, 20*time.Millisecond, gone))
}

func send(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop PostgreSQL, process %d: %w", pid, err)
	}
	return nil
}

// forgetStranger removes a pid file that a crash has left and whose number now
// belongs to another program, as happens in containers, where the numbers
// repeat. PostgreSQL would take that program for a server on the same data.
func (c cluster) forgetStranger() error {
	b, err := os.ReadFile(c.pidFile())
	if err != nil {
		return nil //nolint:nilerr // there is none, or PostgreSQL will complain itself
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || c.serves(pid) {
		return nil //nolint:nilerr // PostgreSQL deals with that
	}
	if err := os.Remove(c.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale pid file: %w", err)
	}
	return nil
}
