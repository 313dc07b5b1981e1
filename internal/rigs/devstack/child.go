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
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	maxLog  = 10 << 20 // bytes; a longer log is begun again at the next start
	tailLog = 2 << 10  // bytes of a log that an error carries
)

// child is our own program started again as a server, or as the guard of one.
//
// It reads its settings as one line of JSON from its standard input, so that no
// secret shows among the arguments, says "READY" with a word or two on its
// standard output, and stops when its input ends: by our doing or our death.
type child struct {
	service Service
	ready   string // what it said after READY
	cmd     *exec.Cmd
	stdin   io.Closer
	logPath string
	logFrom int64         // where this run's part of the log begins
	exited  chan struct{} // closed once it has ended and err is set
	err     error
}

// launch starts "farol-dev internal COMMAND" and returns when it is ready. The
// child gets none of our environment: there may be secrets in it, or settings
// of other clusters. What it keeps of its own accord is in our directory.
func (s *Stack) launch(ctx context.Context, service Service, command string, settings any) (*child, error) {
	line, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	c := &child{service: service, exited: make(chan struct{}), logPath: filepath.Join(s.dir, "log", string(service)+".log")}
	logFile, err := openLog(c.logPath)
	if err != nil {
		return nil, err
	}
	defer logFile.Close() //nolint:errcheck // the child has its own
	if c.logFrom, err = logFile.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	c.cmd = exec.Command(s.options.Executable, "internal", command)
	c.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir}
	c.cmd.Dir = s.dir
	c.cmd.Stderr = logFile
	c.cmd.ExtraFiles = []*os.File{s.servers}
	// A group of its own: Ctrl-C in a terminal is for us, who know the order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe: %w", err)
	}
	c.stdin = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make the pipe: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", s.options.Executable, err)
	}
	said := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		first, _ := r.ReadString('\n')
		said <- first
		io.Copy(io.Discard, r) //nolint:errcheck // nothing more is expected
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	if _, err := in.Write(append(line, '\n')); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, errors.Join(fmt.Errorf("send the settings: %w", err), c.giveUp(ctx))
	}
	return c, c.await(ctx, said)
}

func (c *child) await(ctx context.Context, said <-chan string) error {
	select {
	case first := <-said:
		if word, rest, _ := strings.Cut(strings.TrimSpace(first), " "); word == "READY" {
			c.ready = rest
			return nil
		}
		if err := c.giveUp(ctx); err != nil {
			return err
		}
		return c.death()
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), c.giveUp(ctx))
	}
}

// awaitAnswer returns when the server of the guard c answers. If it does not come
// to that, both are stopped.
func (c *child) awaitAnswer(ctx context.Context, answers func() bool) error {
	err := poll(ctx, 5*time.Millisecond, func() (bool, error) {
		select {
		case <-c.exited:
			return false, c.death()
		default:
			return answers(), nil
		}
	})
	if err != nil {
		return errors.Join(err, c.giveUp(ctx))
	}
	return nil
}

// giveUp stops a child that did not get ready, which may be because ctx ended:
// it has some seconds of its own.
func (c *child) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.stop(ctx)
}

// stop ends the child's input and waits for it. When ctx ends, it is killed,
// together with its server: a guard and its server share a process group.
func (c *child) stop(ctx context.Context) error {
	c.stdin.Close() //nolint:errcheck // it may have been closed by its exit
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
	}
	if err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", c.service, err)
	}
	<-c.exited
	return fmt.Errorf("stop %s: it was killed: %w", c.service, context.Cause(ctx))
}

// death describes an exit that nobody asked for.
func (c *child) death() error {
	<-c.exited
	cause := c.err
	if cause == nil {
		cause = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended: %w; the end of %s:\n%s", c.service, cause, c.logPath, c.tail())
}

func (c *child) tail() string {
	f, err := os.Open(c.logPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // only read
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(tailLog, max(0, end-c.logFrom)))
	n, err := f.ReadAt(b, end-int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	return strings.TrimSpace(string(b[:n]))
}

func openLog(path string) (*os.File, error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}

// onPorts calls run with addresses until it gets a child, at most three times.
// Between the choice of a port and its use, another process may take it; any
// other failure is final.
func (s *Stack) onPorts(ctx context.Context, ids []string, run runner) (addrs []string, c *child, err error) {
	for range 3 {
		if addrs, err = s.ports.take(ids...); err != nil {
			return nil, nil, err
		}
		if c, err = run(ctx, addrs); err == nil {
			return addrs, c, nil
		}
		lost := false
		for _, addr := range addrs {
			lost = lost || !free(addr)
		}
		if !lost {
			return nil, nil, err
		}
	}
	return nil, nil, err
}
