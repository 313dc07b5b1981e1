package servers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/dev/servers"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// TestMain lets this test program be three things: the tests, the children of a
// stack, and a process that runs a stack until it is stopped from outside.
func TestMain(m *testing.M) {
	ctx := context.Background()
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "internal":
		err = servers.Run(ctx, os.Args[2], os.Stdin, os.Stdout)
	case len(os.Args) == 3 && os.Args[1] == "parent":
		err = parent(ctx, os.Args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// parent runs a whole stack and says so as JSON; when its input ends, it stops
// the stack in order.
func parent(ctx context.Context, dir string) error {
	s, err := devstack.Start(ctx, devstack.Options{Dir: dir})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Stop(ctx)
}

// process is a parent in a process of its own.
type process struct {
	*exec.Cmd
	stdin io.Closer
	stack devstack.Stack // only what it printed
}

// startParent starts exe, this program or a copy of it, as a parent.
func startParent(t *testing.T, exe, dir string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	cmd := exec.Command(exe, "parent", dir)
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	p := &process{Cmd: cmd, stdin: in}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			p.Process.Kill() //nolint:errcheck // it may have ended
			p.Wait()         //nolint:errcheck // it was killed
		}
		awaitEmpty(t, dir)
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the parent did not start its stack: %v", errors.Join(err, cmd.Wait()))
	}
	must.Do(t, json.Unmarshal(line, &p.stack))
	return p
}

// start runs a stack in this process.
func start(t testing.TB, o devstack.Options) *devstack.Stack {
	t.Helper()
	s := must.Get(devstack.Start(t.Context(), o))(t)
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *devstack.Stack) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// tempDir is t.TempDir where every user can pass, as PostgreSQL's has to, and
// in memory if there is space, since most of these tests make a cluster.
func tempDir(t testing.TB) string {
	t.Helper()
	base := "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(base, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < 4<<30 {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "farol-devstack-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, os.Chmod(dir, 0o755))
	return dir
}

// awaitEmpty waits until no process works in dir or below.
func awaitEmpty(t *testing.T, dir string) {
	t.Helper()
	if runtime.GOOS == "linux" {
		testenv.Eventually(t, "a server still runs in "+dir, func() bool { return len(processesIn(t, dir)) == 0 })
	}
}

// processesIn finds the processes of a stack by their working directories, and
// returns the command line of each.
func processesIn(t *testing.T, dir string) map[int]string {
	t.Helper()
	home, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		home = dir
	}
	found := map[int]string{}
	links := must.Get(filepath.Glob("/proc/[0-9]*/cwd"))(t)
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !within(cwd, dir) && !within(cwd, home) {
			continue
		}
		pid := must.Get(strconv.Atoi(filepath.Base(filepath.Dir(link))))(t)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline")) // gone: it has ended
		found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
	}
	return found
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// addrs are where the servers of a stack listen.
func addrs(t *testing.T, s *devstack.Stack) []string {
	t.Helper()
	list := []string{s.NSQDTCPAddr, s.NSQDHTTPAddr}
	for _, u := range []string{s.DatabaseURL, s.RedisURL, s.S3Endpoint, s.NSQAdminURL} {
		list = append(list, mustParse(t, u).Host)
	}
	return list
}

func listening(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// nobody is an ordinary user: the one we are, unless that is root.
func nobody(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), NoSetGroups: true}
	}
	u := must.Get(user.Lookup("nobody"))(t)
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	must.Do(t, errors.Join(uidErr, gidErr))
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
