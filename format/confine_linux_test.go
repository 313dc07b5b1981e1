package format

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

const tryArg = "try-what-is-refused"

// tryAll is a child that confines itself and then says what it can still do.
func tryAll(secret string) {
	dir := os.TempDir()
	if err := confine(dir); err != nil {
		fmt.Println("confine:", err)
		return
	}
	lacks := strings.Join(Unconfined(), ", ") // what the kernel has not cannot refuse
	_, file := os.ReadFile(secret)
	_, environ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
	_, dial := net.Dial("tcp", "127.0.0.1:9")
	_, socket := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	temp := os.WriteFile(filepath.Join(dir, "member"), []byte("x"), 0o600)
	for _, try := range []struct {
		what, by string
		err      error
	}{
		{"read a file", "Landlock", file},
		{"read the parent's environment", "Landlock", environ},
		{"dial", "seccomp", dial},
		{"make a socket", "seccomp", socket},
		{"run a program", "seccomp", exec.Command("/bin/true").Run()},
		{"attach to the parent", "seccomp", unix.PtraceAttach(os.Getppid())},
		{"signal the parent", "seccomp", unix.Kill(os.Getppid(), 0)},
	} {
		if !strings.Contains(lacks, try.by) && !errors.Is(try.err, unix.EPERM) && !errors.Is(try.err, unix.EACCES) {
			fmt.Printf("it can %s: %v\n", try.what, try.err)
		}
	}
	if temp != nil {
		fmt.Println("it cannot write temporary files:", temp)
	}
	removeTemp()
}

// A child whose parser was taken over by a file reaches no other file, no network, no
// program, and nothing of its parent's.
func TestAChildIsConfined(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(secret, []byte("x"), 0o600))
	dir := filepath.Join(t.TempDir(), tempPrefix+"test")
	must.Do(t, os.Mkdir(dir, 0o700))
	exe := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), exe, tryArg, secret)
	cmd.Env = []string{"TMPDIR=" + dir}
	said, err := cmd.CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("%v\n%s", err, said)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

// Another process of the same user cannot read the memory of the parent.
func TestParentHidesItself(t *testing.T) {
	t.Parallel()
	must.Do(t, hide())
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		t.Errorf("dumpable = %d, %v", dumpable, err)
	}
}
