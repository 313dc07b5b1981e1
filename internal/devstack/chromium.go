package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// chromiums are where the browser is, the first that is there.
func chromiums() []string {
	return []string{"chromium", "/Applications/Chromium.app/Contents/MacOS/Chromium"}
}

// startChromium runs Chromium without a window, for pages of our own alone.
func (s *Stack) startChromium(ctx context.Context) error {
	path, err := "", error(nil)
	for _, name := range chromiums() {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("no chromium: apt-get install chromium | brew install chromium: %w", err)
	}
	run := func(ctx context.Context, addrs []string) (*child, error) { return s.runChromium(ctx, path, addrs[0]) }
	addrs, c, err := s.onPorts(ctx, []string{"chromium"}, run)
	if err != nil {
		return err
	}
	s.keep(ctx, c, &server{
		again:   func(ctx context.Context) (*child, error) { return run(ctx, addrs) },
		answers: func(ctx context.Context) bool { return listens(ctx, addrs[0]) },
		evict:   func(ctx context.Context) error { return evictGroup(ctx, c.cmd.Process.Pid) },
	})
	s.DevToolsAddr = addrs[0]
	return nil
}

// evictGroup ends what is left of a process group: processes of Chromium outlive the one
// that has started them for a moment, and write into a directory that is being removed.
// One that has ended, and that nobody has waited for, is not waited for here for long.
func evictGroup(ctx context.Context, group int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return syscall.Kill(-group, syscall.SIGKILL) != nil, nil })
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (s *Stack) runChromium(ctx context.Context, path, addr string) (*child, error) {
	_, port, err := net.SplitHostPort(addr)
	home := filepath.Join(s.dir, "chromium")
	if err = errors.Join(err, os.MkdirAll(home, 0o700)); err != nil {
		return nil, fmt.Errorf("make Chromium's directory: %w", err)
	}
	return s.guard(ctx, Chromium, guarded{
		Path: path, Dir: home, UID: -1, GID: -1, Stop: syscall.SIGTERM, GraceMS: 5_000,
		Args: []string{
			"--headless", "--remote-debugging-port=" + port, "--user-data-dir=" + filepath.Join(home, "profile"),
			// Its sandbox needs an ordinary user with namespaces, which a container does not
			// give, and the memory that it shares more than a container has.
			"--no-sandbox", "--disable-dev-shm-usage",
			// It opens pages of this machine, and asks nobody for anything else.
			"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--no-proxy-server",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
			"--disable-extensions", "--disable-breakpad", "--no-first-run", "--no-default-browser-check",
			"--password-store=basic", "--use-mock-keychain",
			// All tabs are in the background, and look the same on each machine.
			"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
			"--lang=en-US", "--hide-scrollbars", "--force-color-profile=srgb",
		},
	}, func() bool { return listens(ctx, addr) })
}
