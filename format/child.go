package format

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A child is a process that runs [Serve]. One goroutine uses it at a time.
type child struct {
	cmd     *exec.Cmd
	in      *os.File // its standard input
	out     *os.File // its standard output
	writer  *bufio.Writer
	reader  *bufio.Reader
	stderr  *complaint
	budget  int64
	version string
	exited  chan struct{} // closed when the process is gone and waited for
	killed  chan struct{} // closed by kill
	kill    func()        // ends the process and every call on its pipes; may be called by any goroutine, again too
}

// exitPatience bounds the wait for a process that closed its output, or that
// was asked to end.
const exitPatience = 5 * time.Second

// tempPrefix begins the name of a child's directory for temporary files.
const tempPrefix = "farol-format-"

// startChild returns a child that has loaded its signatures.
func startChild(ctx context.Context, o Options) (*child, error) {
	c, err := launch(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errTimedOut)
	defer cancel()
	stop := context.AfterFunc(ctx, c.kill)
	err = c.greet(o)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, c.autopsy(err)
	}
	return c, nil
}

func launch(ctx context.Context, o Options) (*child, error) {
	// Siegfried unpacks large members of archives into temporary files, which
	// one that is killed does not remove
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return nil, err
	}
	c, err := launchIn(ctx, o, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(c.exited)
		// how it ended is read where it matters; a directory that stays behind
		// is for the system's own tidying
		_, _ = c.cmd.Wait(), os.RemoveAll(dir)
	}()
	return c, nil
}

// launchIn returns a child that runs and that someone has to wait for.
func launchIn(ctx context.Context, o Options, dir string) (*child, error) {
	// a child outlives the file it was started for
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.Command[0], o.Command[1:]...)
	// it needs nothing else, and its parent's environment holds secrets
	cmd.Env = []string{"TMPDIR=" + dir}
	cmd.SysProcAttr = ownGroup()
	stderr := &complaint{}
	cmd.Stderr = stderr
	// what the process may leave behind must not keep Wait from returning
	cmd.WaitDelay = exitPatience

	// pipes of our own: those of exec are closed by Wait, which runs all along
	// to notice the end of the process, while an answer may still be in them
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close() //nolint:errcheck // the child has its own
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close() //nolint:errcheck // the child has its own
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	c := &child{
		cmd: cmd, in: in, out: out, stderr: stderr, budget: o.Budget,
		writer: bufio.NewWriterSize(in, 64<<10),
		reader: bufio.NewReaderSize(out, 4<<10),
		exited: make(chan struct{}),
		killed: make(chan struct{}),
	}
	c.kill = sync.OnceFunc(func() {
		close(c.killed)
		// errors mean that it is gone already
		_, _, _ = c.cmd.Process.Kill(), c.in.Close(), c.out.Close()
	})
	return c, nil
}

func (c *child) greet(o Options) error {
	for part := range slices.Chunk(o.Signatures, headSize) {
		if err := writeFrame(c.writer, kindSigs, part); err != nil {
			return err
		}
	}
	if err := writeFrame(c.writer, kindHello, limits{o.Memory, o.Budget}.encode()); err != nil {
		return err
	}
	f, err := readFrame(c.reader)
	if err != nil {
		return noEOF(err)
	}
	if f.kind != kindReady {
		return fmt.Errorf("%w: kind %q for a greeting", errProtocol, f.kind)
	}
	c.version = string(f.payload)
	return nil
}

// identify has the child look at a file. After an error the child is dead,
// unless the error is of r alone.
func (c *child) identify(ctx context.Context, s subject, r io.ReaderAt, t *timer) (answer, error) {
	c.stderr.forget()
	stop := context.AfterFunc(ctx, c.kill)
	a, content, err := c.converse(ctx, s, r, t)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return answer{}, errors.Join(c.autopsy(err), content)
	}
	return a, content
}

// converse answers the child's wishes until it has an answer. An error of r is
// returned as content, when the child has given the file up; err is the end of
// the child.
func (c *child) converse(ctx context.Context, s subject, r io.ReaderAt, t *timer) (a answer, content, err error) {
	if err := writeFrame(c.writer, kindFile, s.encode()...); err != nil {
		return answer{}, nil, err
	}
	left := c.budget + 2*edge + headSize
	for {
		f, err := readFrame(c.reader)
		if err != nil {
			return answer{}, content, noEOF(err)
		}
		switch f.kind {
		case kindAnswer:
			if err := json.Unmarshal(f.payload, &a); err != nil {
				return answer{}, content, fmt.Errorf("%w: %w", errProtocol, err)
			}
			return a, content, nil
		case kindRead:
			want, err := parseSpan(f.payload, s.size)
			if err != nil {
				return answer{}, content, err
			}
			// the child keeps to the budget; this is for one gone wild
			if left -= int64(want.n); left < 0 {
				return answer{}, content, fmt.Errorf("%w: it reads more than its budget", errProtocol)
			}
			if content, err = c.reply(ctx, r, t, want); err != nil {
				return answer{}, content, err
			}
		default:
			return answer{}, content, fmt.Errorf("%w: kind %q for an answer", errProtocol, f.kind)
		}
	}
}

// reply sends what the child wants of the file, whose timer stands still while it is read.
func (c *child) reply(ctx context.Context, r io.ReaderAt, t *timer, want span) (content, err error) {
	t.pause()
	p, err := readSpan(ctx, r, want, t.most)
	t.resume()
	if errors.As(err, new(contentError)) {
		return err, writeFrame(c.writer, kindFail)
	}
	if err != nil {
		return nil, err
	}
	return nil, writeFrame(c.writer, kindData, p)
}

// dead reports whether the process has ended or was asked to.
func (c *child) dead() bool {
	select {
	case <-c.killed:
		return true
	case <-c.exited:
		return true
	default:
		return false
	}
}

// stop lets an idle child go, and waits for it.
func (c *child) stop() {
	_ = c.in.Close() // which it takes for the end
	c.wait()
	c.kill()
}

// wait reports whether the process ends soon.
func (c *child) wait() bool {
	patience := time.NewTimer(exitPatience)
	defer patience.Stop()
	select {
	case <-c.exited:
		return true
	case <-patience.C:
		return false
	}
}

// autopsy ends the child and adds to err how it ended and what it complained
// of.
func (c *child) autopsy(err error) error {
	defer c.kill()
	// one that closed its pipes is ending, and its state tells why
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.EPIPE) {
		c.kill()
	}
	if !c.wait() {
		return err
	}
	state := c.cmd.ProcessState.String()
	if said := c.stderr.String(); said != "" {
		state += ": " + said
	}
	return fmt.Errorf("%w (%s)", err, state)
}

// A complaint keeps the beginning of what a child wrote to its standard error
// since it began the current file: the end of a Go trace says where, not what.
type complaint struct {
	mu   sync.Mutex
	said []byte // guarded by mu
}

const maxComplaint = 4 << 10

// Write never fails, so that it never stops a child.
func (c *complaint) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, p[:min(len(p), maxComplaint-len(c.said))]...)
	return len(p), nil
}

func (c *complaint) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = c.said[:0]
}

// String returns the line that tells most.
func (c *complaint) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := ""
	for line := range strings.Lines(string(c.said)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
		if first == "" {
			first = line
		}
	}
	return first
}
