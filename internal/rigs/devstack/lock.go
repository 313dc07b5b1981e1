package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long the servers of a stack that was killed may take to stop
// before a new stack on their directory gives up.
const patience = 15 * time.Second

// acquire takes the two locks of dir. The first is this process's: the kernel
// drops it when we die. The second is handed down to every server, so it is
// free only when the last server of an earlier stack is gone.
func acquire(ctx context.Context, dir string) (lock, servers *os.File, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the previous stack is still stopping after %s", patience))
	defer cancel()
	if lock, err = lockFile(ctx, filepath.Join(dir, "lock"), holderStops); err != nil {
		return nil, nil, err
	}
	if err := stamp(lock, "running"); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	servers, err = lockFile(ctx, filepath.Join(dir, "servers.lock"), func(*os.File) error { return nil })
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return lock, servers, nil
}

// lockFile waits for the lock on path, as long as wait (asked while another
// process holds it) returns nil.
func lockFile(ctx context.Context, path string, wait func(*os.File) error) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = poll(ctx, 20*time.Millisecond, func() (bool, error) {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, wait(f)
		case errors.Is(err, syscall.EINTR):
			return false, nil
		default:
			return false, err
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// holderStops returns an error unless the holder of the lock has announced that
// it is on its way out.
func holderStops(f *os.File) error {
	b := make([]byte, 64)
	n, _ := f.ReadAt(b, 0)
	pid, state, _ := strings.Cut(strings.TrimSpace(string(b[:n])), " ")
	if state == "stopping" || pid == "" { // empty: it got the lock a moment ago and will tell
		return nil
	}
	return fmt.Errorf("process %s already runs a stack there", pid)
}

func announceStop(lock *os.File) error { return stamp(lock, "stopping") }

// stamp tells those who wait for the lock who has it and what it does.
func stamp(lock *os.File, state string) error {
	line := fmt.Appendf(nil, "%d %-8s\n", os.Getpid(), state)
	_, err := lock.WriteAt(line, 0)
	if err = errors.Join(err, lock.Truncate(int64(len(line)))); err != nil {
		return fmt.Errorf("write the process ID to the lock: %w", err)
	}
	return nil
}

// poll calls done every interval until it returns true or an error, or ctx ends.
func poll(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
