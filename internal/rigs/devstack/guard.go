package devstack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// guarded is a foreign server, as its guard gets to know it.
type guarded struct {
	Adopt   bool           `json:"adopt"` // the server is PostgreSQL and runs already; of the rest, only Dir counts
	Path    string         `json:"path"`
	Args    []string       `json:"args"`
	Dir     string         `json:"dir"`
	Stdin   string         `json:"stdin"` // its whole standard input
	UID     int            `json:"uid"`   // -1: as the guard
	GID     int            `json:"gid"`
	Stop    syscall.Signal `json:"stop"`     // asks it to end with its data in order
	GraceMS int64          `json:"grace_ms"` // how long that may take before it is killed
}

// Guard runs one foreign server for as long as in stays open, and is the body
// of "farol-dev internal guard". The first line of in says what to run; out gets
// "READY pid" once it runs.
//
// When in ends, because the process that started the guard stopped or died, or when ctx
// ends, the server is asked to stop and, after its grace, killed. A guard that
// dies first takes the server with it on Linux, where the kernel sends the same
// request to stop; elsewhere the server would be left.
//
// A PostgreSQL that someone else has started can be adopted: the guard ends
// when it does, and otherwise stops it in the same way.
//
// It must be called from the main goroutine of a process that does nothing else.
func Guard(ctx context.Context, in io.Reader, out io.Writer) error {
	// The kernel sends the death signal when the *thread* that started the
	// server ends, so this one must last as long as the guard.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// Otherwise the word READY to a parent that has just died would end us, and
	// leave the server.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)

	r := bufio.NewReader(in)
	var g guarded
	if err := ReadSettings(r, &g); err != nil {
		return err
	}
	if g.Adopt {
		ctx, cancel := UntilEOF(ctx, r)
		defer cancel()
		return adopt(ctx, cluster{path: g.Dir}, out)
	}
	cmd := exec.Command(g.Path, g.Args...)
	cmd.Dir = g.Dir
	cmd.Stdin = strings.NewReader(g.Stdin)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // the log
	// The lock that tells the next stack whether a server still lives.
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "servers.lock")}
	cmd.SysProcAttr = asUser(g.UID, g.GID)
	dieWithParent(cmd.SysProcAttr, g.Stop)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", g.Path, err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ctx, cancel := UntilEOF(ctx, r)
	defer cancel()
	if _, err := fmt.Fprintln(out, "READY", cmd.Process.Pid); err != nil {
		cancel() // nobody listens any more
	}
	select {
	case err := <-exited:
		return errors.Join(err, fmt.Errorf("%s ended by itself", g.Path))
	case <-ctx.Done():
	}
	return shutDown(cmd.Process, g, exited)
}

// adopt is [Guard] for a PostgreSQL that runs already. It is not our child, so
// its end has to be looked for.
func adopt(ctx context.Context, home cluster, out io.Writer) error {
	p, ok := home.postmaster()
	if !ok {
		return fmt.Errorf("no process serves %s any more", home.data())
	}
	if _, err := fmt.Fprintln(out, "READY", p.pid); err != nil {
		return errors.Join(err, home.evict(ctx)) // nobody listens any more
	}
	err := poll(ctx, 100*time.Millisecond, func() (bool, error) { return !home.serves(p.pid), nil })
	if err == nil {
		return fmt.Errorf("process %d ended by itself", p.pid)
	}
	return home.evict(context.WithoutCancel(ctx))
}

func shutDown(p *os.Process, g guarded, exited <-chan error) error {
	if err := p.Signal(g.Stop); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", g.Path, err)
	}
	grace := time.NewTimer(time.Duration(g.GraceMS) * time.Millisecond)
	defer grace.Stop()
	select {
	case <-exited: //nolint:errcheck // with whatever status: it was asked to
		return nil
	case <-grace.C:
	}
	err := p.Kill()
	<-exited //nolint:errcheck // it was killed
	return errors.Join(err, fmt.Errorf("%s did not stop within %d ms and was killed", g.Path, g.GraceMS))
}

// asUser are the attributes of a process that runs as another user.
func asUser(uid, gid int) *syscall.SysProcAttr {
	if uid < 0 {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// ReadSettings reads the line of JSON that a child of a stack gets first. What
// follows it in r is for [UntilEOF].
func ReadSettings(r *bufio.Reader, settings any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	if err := json.Unmarshal(line, settings); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	return nil
}

// UntilEOF returns a context that ends with ctx or when r does, which is how a
// child of a stack learns that its parent is gone.
func UntilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, r) //nolint:errcheck // an error is an end too
		cancel()
	}()
	return ctx, cancel
}
