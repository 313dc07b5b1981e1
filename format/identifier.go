package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ErrClosed is what [Identifier.Identify] returns after [Identifier.Close].
var ErrClosed = errors.New("format: identifier is closed")

// ErrStart says that no child could be started, which no file is to blame for.
var ErrStart = errors.New("start a child")

// errTimedOut ends the time of one file, errSlow that of one read of it.
var (
	errTimedOut = errors.New("no answer before the timeout")
	errSlow     = errors.New("the content did not arrive in time")
)

// maxSignatures is some twenty times the size of PRONOM's.
const maxSignatures = 64 << 20

// startTimeout bounds the start of a child; it loads its signatures in some
// ten milliseconds, on a machine that is not starved.
const startTimeout = time.Minute

// Options say how to start children and what they may use. Zero values take
// the defaults, but Command has none.
type Options struct {
	Command []string      // program and arguments of a child; it calls [Serve] on its standard input and output
	Workers int           // children at most, and so files in progress at a time; default 2
	Timeout time.Duration // for one file, in addition to its reading, and for each read of it; default 30 s
	Memory  int64         // bytes a child may use in addition to the signatures; default 256 MiB
	// Signatures is the content of a signature file of Siegfried's; empty: the built-in ones.
	// Every child gets these bytes, so that a file that is replaced changes no child.
	Signatures []byte
	Budget     int64 // bytes to read of one file, in addition to a mebibyte at each end; default 8 MiB
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return o, errors.New("format: no command to start a child")
	}
	if len(o.Signatures) > maxSignatures {
		return o, fmt.Errorf("format: the signature file has %d bytes; it may have %d", len(o.Signatures), maxSignatures)
	}
	if o.Workers < 0 || o.Timeout < 0 || o.Memory < 0 || o.Budget < 0 {
		return o, errors.New("format: an option is negative")
	}
	o.Workers, o.Timeout = cmp.Or(o.Workers, 2), cmp.Or(o.Timeout, 30*time.Second)
	o.Memory, o.Budget = cmp.Or(o.Memory, 256<<20), cmp.Or(o.Budget, 8<<20)
	return o, nil
}

// An Identifier identifies files in its children. It may be used by many
// goroutines at once.
type Identifier struct {
	opts   Options
	closed chan struct{}
	// slots holds a token for each child that may run: the child if it is idle,
	// nil if it is not running. A caller that takes a token gives one back.
	slots chan *child
	// close runs once, and every caller waits for its end.
	close func()
}

// Start returns an Identifier whose children end with ctx or with
// [Identifier.Close]. The children start when the first files come. From then on other
// processes of the same user can read neither this one's environment nor its memory.
func Start(ctx context.Context, o Options) (*Identifier, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := hide(); err != nil {
		return nil, fmt.Errorf("protect this process from its children: %w", err)
	}
	i := &Identifier{opts: o, closed: make(chan struct{}), slots: make(chan *child, o.Workers)}
	for range o.Workers {
		i.slots <- nil
	}
	i.close = sync.OnceFunc(i.stop)
	context.AfterFunc(ctx, i.close)
	return i, nil
}

// Close waits for the files in progress, which end with their ctx at the latest, and
// ends the children. It may be called again.
func (i *Identifier) Close() { i.close() }

func (i *Identifier) stop() {
	close(i.closed)
	for range i.opts.Workers {
		if c := <-i.slots; c != nil {
			c.stop()
		}
	}
}

// Identify returns the format of a file of the given size whose content r has.
// Only the extension of name matters, in any case of letters.
//
// A file that crashes its child, or gets no answer before the timeout, is no error: it is
// answered by its extension, with the Reason. There is an error only if ctx
// ends, if r gives one (which is wrapped), less than size bytes, or nothing
// within [Options.Timeout], if a child can not be started at all, or if the
// Identifier is closed.
//
// Only ranges of r are read, of 256 KiB at most. A ReadAt that outlasts its
// time goes on without Identify, so r should end with ctx.
func (i *Identifier) Identify(ctx context.Context, name string, size int64, r io.ReaderAt) (Result, error) {
	if size < 0 {
		return Result{}, fmt.Errorf("identify %q: size %d", name, size)
	}
	if size == 0 {
		return byExtension(name, Empty, ""), nil
	}
	// the head is read before a child is taken: slow storage should not keep
	// the children from working
	head, err := readSpan(ctx, r, span{0, int(min(size, headSize))}, i.opts.Timeout)
	if err != nil {
		return i.resolve(ctx, name, err)
	}
	c, err := i.take(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("identify %q: %w", name, err)
	}
	file, t := withTimer(ctx, i.opts.Timeout)
	defer t.stop()
	a, err := c.identify(file, subject{strings.ToLower(name), size, head}, r, t)
	version := c.version
	if c.dead() {
		c = nil
	}
	i.slots <- c
	result := choose(name, a)
	if err != nil {
		if result, err = i.resolve(ctx, name, err); err != nil {
			return Result{}, err
		}
	}
	result.Version = version
	return result, nil
}

// Version names what identifies, as [Result.Version] does. It starts a child if
// none runs.
func (i *Identifier) Version(ctx context.Context) (string, error) {
	c, err := i.take(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the version of the signatures: %w", err)
	}
	version := c.version
	i.slots <- c
	return version, nil
}

// resolve decides whether an error is the caller's to handle, or the file's
// fate.
func (i *Identifier) resolve(ctx context.Context, name string, err error) (Result, error) {
	var content contentError
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("identify %q: %w", name, context.Cause(ctx))
	case errors.As(err, &content):
		return Result{}, fmt.Errorf("identify %q: %w", name, content)
	case errors.Is(err, errTimedOut):
		return byExtension(name, TimedOut, "no answer in "+i.opts.Timeout.String()), nil
	default:
		return byExtension(name, Crashed, err.Error()), nil
	}
}

// take waits for a child that is idle, or starts one.
func (i *Identifier) take(ctx context.Context) (*child, error) {
	var c *child
	select {
	case <-i.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case c = <-i.slots:
	}
	// an idle child that was killed is not the fault of the next file
	if c != nil && !c.dead() {
		return c, nil
	}
	c, err := startChild(ctx, i.opts)
	if err != nil {
		i.slots <- nil
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	return c, nil
}

// A contentError is an error of the caller's reader.
type contentError struct{ error }

func (e contentError) Unwrap() error { return e.error }

// readSpan reads all of a span, within the time that it may take. If that or ctx
// ends first it leaves the reading behind, which has a buffer and a goroutine of
// its own. Storage that hangs is no fault of the file's.
func readSpan(ctx context.Context, r io.ReaderAt, want span, most time.Duration) ([]byte, error) {
	late := time.NewTimer(most)
	defer late.Stop()
	type read struct {
		p   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		p := make([]byte, want.n)
		n, err := r.ReadAt(p, want.off)
		if n == len(p) {
			err = nil // io.EOF may come with the last byte
		} else if err == nil {
			err = io.ErrUnexpectedEOF
		}
		done <- read{p, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			return nil, contentError{fmt.Errorf("read %d bytes at %d: %w", want.n, want.off, noEOF(got.err))}
		}
		return got.p, nil
	case <-late.C:
		return nil, contentError{fmt.Errorf("read %d bytes at %d: %w", want.n, want.off, errSlow)}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A timer ends a file's context when its time is over. It stands still while the
// file is read.
type timer struct {
	most time.Duration // for the file, and for each read of it
	end  context.CancelCauseFunc
	left time.Duration
	from time.Time
	t    *time.Timer
}

func withTimer(ctx context.Context, d time.Duration) (context.Context, *timer) {
	ctx, end := context.WithCancelCause(ctx)
	t := &timer{most: d, end: end, left: d, from: time.Now()}
	t.t = time.AfterFunc(d, func() { end(errTimedOut) })
	return ctx, t
}

func (t *timer) pause() {
	t.t.Stop()
	t.left -= time.Since(t.from)
}

func (t *timer) resume() {
	t.from = time.Now()
	t.t.Reset(max(t.left, 0))
}

func (t *timer) stop() {
	t.t.Stop()
	t.end(nil)
}
