package servers_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func occupy(t *testing.T, addr string) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", addr))(t)
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // it only listens
	return addr
}

// However the parent ends, no server stays, and the next stack has the data.
func TestServersGoWithTheirParent(t *testing.T) {
	t.Parallel()
	exe := must.Get(os.Executable())(t)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(tempDir(t), "data")
			p := startParent(t, exe, dir, nil)
			leave(t, &p.stack)
			must.Do(t, p.Process.Signal(signal))
			p.Wait() //nolint:errcheck // it was killed
			// At once, while the old servers are still stopping.
			s := start(t, devstack.Options{Dir: dir})
			if diff := cmp.Diff([]string{"in postgres", "in redis", "in s3", "in nsq"}, find(t, s)); diff != "" {
				t.Error("after the parent was killed (-want +got):\n" + diff)
			}
			stop(t, s)
			awaitEmpty(t, dir)
			for _, addr := range append(addrs(t, &p.stack), addrs(t, s)...) {
				if listening(addr) {
					t.Errorf("something still listens on %s", addr)
				}
			}
		})
	}
}

func TestServersGoWithoutASuccessor(t *testing.T) {
	t.Parallel()
	exe := must.Get(os.Executable())(t)
	dir := filepath.Join(tempDir(t), "data")
	p := startParent(t, exe, dir, nil)
	must.Do(t, p.Process.Kill())
	p.Wait() //nolint:errcheck // it was killed
	awaitEmpty(t, dir)
	for _, addr := range addrs(t, &p.stack) {
		if listening(addr) {
			t.Errorf("something still listens on %s", addr)
		}
	}
}

// Ctrl-C goes to the terminal's whole foreground group. The servers must not be
// in it: the parent stops its own work first.
func TestInterruptOfTheTerminalSparesTheServers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Redis, devstack.S3}})
	group := syscall.Getpgrp()
	for pid, command := range processesIn(t, dir) {
		if pgid, err := syscall.Getpgid(pid); err == nil && pgid == group {
			t.Errorf("%s is in the group of its parent", command)
		}
	}
}

// A guard that is killed cannot stop its server, so the kernel has to (Linux).
func TestServerOfAKilledGuardGoesToo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}, Ephemeral: true})
	killed := 0
	for pid, command := range processesIn(t, dir) {
		if strings.Contains(command, "internal guard") {
			killed++
			must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	if killed != 1 {
		t.Fatalf("killed %d guards, want 1", killed)
	}
	if err := <-s.Died(); err == nil || !strings.Contains(err.Error(), "postgres ended: signal: killed") {
		t.Errorf("Died = %v, want the guard's end", err)
	}
	awaitEmpty(t, dir)
}

func TestDeathOfAServerIsReportedWithItsLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Redis}, Ephemeral: true})
	for pid, command := range processesIn(t, dir) {
		if strings.Contains(command, "redis-server") {
			must.Do(t, syscall.Kill(pid, syscall.SIGTERM))
		}
	}
	if err := <-s.Died(); err == nil || !strings.Contains(err.Error(), "bye bye") {
		t.Errorf("Died = %v, want the last words of Redis", err)
	}
}

// After a crash of the machine, or in a container that is started again, the
// number in PostgreSQL's pid file may belong to anyone.
func TestPidFileOfAnotherProgramIsNoObstacle(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}, Ephemeral: true}
	stop(t, start(t, o))
	home := filepath.Join(o.Dir, "postgres")
	fi := must.Get(os.Stat(home))(t)
	owner, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the cluster has no owner")
	}
	stranger := exec.Command("cat")
	if os.Geteuid() == 0 {
		stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	stranger.Dir = "/"
	in := must.Get(stranger.StdinPipe())(t)
	must.Do(t, stranger.Start())
	t.Cleanup(func() {
		in.Close()      //nolint:errcheck // its end is the message
		stranger.Wait() //nolint:errcheck // of no interest
	})
	line := fmt.Appendf(nil, "%d\n%s\n1\n5432\n\n127.0.0.1\n\nready   \n", stranger.Process.Pid, filepath.Join(home, "data"))
	must.Do(t, os.WriteFile(filepath.Join(home, "data", "postmaster.pid"), line, 0o644))
	query(t, start(t, o), "SELECT 'x'")
}

func TestRunsAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(programDir(t), "exe")
	copySelf(t, exe)
	data := filepath.Join(tempDir(t), "data")
	who := nobody(t)
	must.Do(t, os.Mkdir(data, 0o700))
	must.Do(t, os.Chown(data, int(who.Uid), int(who.Gid)))
	p := startParent(t, exe, data, &syscall.SysProcAttr{Credential: who})
	if got := query(t, &p.stack, "SELECT current_user::text"); got != "postgres" {
		t.Errorf("the user is %s", got)
	}
	p.stdin.Close() //nolint:errcheck // its end is the message
	if err := p.Wait(); err != nil {
		t.Errorf("the orderly end: %v", err)
	}
	awaitEmpty(t, data)
}

// Under root, PostgreSQL runs as a user who cannot go where root can, such as
// a clone of the repository below /root. Modes of what is not ours stay.
func TestRunsInAPrivateDirectoryAsRoot(t *testing.T) {
	t.Parallel()
	private := tempDir(t)
	must.Do(t, os.Chmod(private, 0o700))
	o := devstack.Options{Dir: filepath.Join(private, "data"), Only: []devstack.Service{devstack.Postgres}}
	first := start(t, o)
	query(t, first, "SELECT 'x'")
	home := must.Get(filepath.EvalSymlinks(filepath.Join(o.Dir, "postgres")))(t)
	t.Cleanup(func() { os.RemoveAll(home) }) //nolint:errcheck // of a test that has ended
	password := mustParse(t, first.DatabaseURL).User.String()
	stop(t, first)
	second := start(t, o)
	if got := mustParse(t, second.DatabaseURL).User.String(); got != password {
		t.Error("the password changed")
	}
	query(t, second, "SELECT 'x'")
	stop(t, second)
	fi, err := os.Stat(private)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the mode of the private directory became %v, %v", fi.Mode(), err)
	}

	// The user removes the directory, and with it the password: a new one
	// must not stumble over the old cluster.
	must.Do(t, os.RemoveAll(o.Dir))
	third := start(t, o)
	query(t, third, "SELECT 'x'")
	must.Do(t, third.Remove(t.Context()))
	for _, gone := range []string{o.Dir, home} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
}

// An empty directory, as from mktemp -d, is the stack's own: nothing of it need
// be elsewhere.
func TestEmptyDirectoryHoldsEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	must.Do(t, os.Mkdir(dir, 0o700))
	start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}, Ephemeral: true})
	fi, err := os.Lstat(filepath.Join(dir, "postgres"))
	if err != nil || !fi.IsDir() {
		t.Errorf("the database is not in the directory: %v, %v", fi, err)
	}
}

// programDir is a directory for programs, which may not run from memory, that
// every user can pass through.
func programDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "farol-devstack-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // of a test that has ended
	must.Do(t, os.Chmod(dir, 0o755))
	return dir
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		path, perr := os.Executable()
		if perr != nil {
			t.Fatal(perr)
		}
		if in, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
	}
	defer in.Close() //nolint:errcheck // only read
	out := must.Get(os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755))(t)
	must.Get(io.Copy(out, in))(t)
	must.Do(t, out.Close())
}
