package format

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/richardlehane/siegfried"
	"github.com/richardlehane/siegfried/pkg/config"
)

// Serve is the main loop of a child that an [Identifier] starts: it answers
// the questions that come by in, one file at a time, through out.
//
// It returns nil when in ends, and at once with an error when in ends while a
// file is in progress; the process must exit then, and so no child outlives its
// parent, not even one that hangs. It limits the memory of the whole process,
// and if out is [os.Stdout] it puts [os.Stderr] in that place, so that
// nothing a library prints gets between the frames, and removes in the end the
// directory for temporary files that its parent made for it.
//
// A panic of Siegfried's is not recovered: the process ends, and the parent
// sees it.
func Serve(in io.Reader, out io.Writer) error {
	f, ok := out.(*os.File)
	alone := ok && f == os.Stdout // in this process
	if alone {
		os.Stdout = os.Stderr
		defer removeTemp()
	}
	s := newServer(in, out)
	l, signatures, err := s.greeting()
	if err != nil {
		return err
	}
	sf, err := load(signatures)
	if err != nil {
		return err
	}
	if alone {
		stayLean()
	}
	if err := limitProcess(l.memory); err != nil {
		return fmt.Errorf("format: limit the process to %d bytes: %w", l.memory, err)
	}
	if dir := os.TempDir(); alone && strings.HasPrefix(filepath.Base(dir), tempPrefix) {
		if err := confine(dir); err != nil {
			return fmt.Errorf("format: confine the process: %w", err)
		}
	}
	return s.run(sf, l.budget)
}

// stayLean gives back what loading the signatures took, and collects garbage when
// there is half as much of it as lives: a worker has several children, and shares its
// memory with them.
func stayLean() {
	const percent, usual = 50, 100
	if was := debug.SetGCPercent(percent); was != usual {
		debug.SetGCPercent(was) // GOGC says otherwise
	}
	debug.FreeOSMemory()
}

// removeTemp removes what the parent would, were it still there. The linter
// cannot know that the directory is ours alone.
func removeTemp() {
	dir := os.TempDir()
	if strings.HasPrefix(filepath.Base(dir), tempPrefix) {
		// One by one: a confined process cannot open the directory above. What cannot be
		// removed is for the system's own tidying.
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
		_ = os.Remove(dir)
	}
}

// A server is the child's side of a conversation.
type server struct {
	in  *bufio.Reader
	out *bufio.Writer
}

func newServer(in io.Reader, out io.Writer) *server {
	return &server{bufio.NewReaderSize(in, 64<<10), bufio.NewWriterSize(out, 64<<10)}
}

func (s *server) greeting() (l limits, signatures []byte, err error) {
	for {
		f, err := readFrame(s.in)
		if err != nil {
			return limits{}, nil, fmt.Errorf("format: read the parent's greeting: %w", err)
		}
		switch {
		case f.kind == kindSigs && len(signatures)+len(f.payload) <= maxSignatures:
			signatures = append(signatures, f.payload...)
			continue
		case f.kind != kindHello:
			return limits{}, nil, fmt.Errorf("format: %w: greeting of kind %q", errProtocol, f.kind)
		}
		l, err = parseLimits(f.payload)
		return l, signatures, err
	}
}

func (s *server) run(sf *siegfried.Siegfried, budget int64) error {
	if err := writeFrame(s.out, kindReady, []byte(version(sf))); err != nil {
		return fmt.Errorf("format: answer the parent's greeting: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	frames := make(chan frame)
	ended := make(chan error, 1)
	// its own goroutine, so that the end of in is seen while a file is in progress;
	// it ends with in or, at its next frame, with done
	go func() {
		defer close(frames)
		ended <- s.receive(frames, done)
	}()
	for f := range frames {
		if f.kind != kindFile {
			return fmt.Errorf("format: %w: kind %q between files", errProtocol, f.kind)
		}
		file, err := parseSubject(f.payload)
		if err != nil {
			return err
		}
		if err := s.identify(sf, file, budget, frames); err != nil {
			return fmt.Errorf("format: identify %q: %w", file.name, err)
		}
	}
	return <-ended
}

func (s *server) receive(frames chan<- frame, done <-chan struct{}) error {
	for {
		f, err := readFrame(s.in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("format: read from the parent: %w", err)
		}
		select {
		case frames <- f:
		case <-done:
			return nil
		}
	}
}

// identify answers for one file. It alone talks to the parent; Siegfried's
// goroutines hand it their wishes, and those that live on after the answer
// get nothing more.
func (s *server) identify(
	sf *siegfried.Siegfried, file subject, budget int64, frames <-chan frame,
) error {
	wishes, replies, done := make(chan span), make(chan []byte), make(chan struct{})
	defer close(done)
	src := newSource(file, budget, func(want span) []byte {
		// the source's lock lets one goroutine in here at a time
		select {
		case wishes <- want:
		case <-done:
			return nil
		}
		select {
		case p := <-replies:
			return p
		case <-done:
			return nil
		}
	})
	answers := make(chan answer, 1)
	go func() { answers <- ask(sf, src, file.name) }()

	for {
		select {
		case a := <-answers:
			p, err := json.Marshal(a)
			if err != nil {
				return err
			}
			return writeFrame(s.out, kindAnswer, p)
		case want := <-wishes:
			p, err := s.fetch(want, frames)
			if err != nil {
				return err
			}
			// who wished waits for the reply, whatever else happens
			replies <- p
		case f, ok := <-frames:
			if !ok {
				return io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: unexpected kind %q", errProtocol, f.kind)
		}
	}
}

func (s *server) fetch(want span, frames <-chan frame) ([]byte, error) {
	if err := writeFrame(s.out, kindRead, want.encode()); err != nil {
		return nil, err
	}
	f, ok := <-frames
	switch {
	case !ok:
		return nil, io.ErrUnexpectedEOF
	case f.kind == kindFail:
		return nil, nil
	case f.kind != kindData || len(f.payload) != want.n:
		return nil, fmt.Errorf("%w: kind %q with %d of %d bytes", errProtocol, f.kind, len(f.payload), want.n)
	}
	return f.payload, nil
}

func ask(sf *siegfried.Siegfried, src *source, name string) answer {
	var a answer
	ids, err := sf.Identify(src, name, "")
	if err != nil {
		a.Error = err.Error()
	}
	for _, id := range ids {
		var m match
		for _, label := range sf.Label(id) {
			switch label[0] {
			case "id":
				m.ID = label[1]
			case "format":
				m.Format = label[1]
			case "mime":
				m.MIME = label[1]
			case "basis":
				m.Basis = label[1]
			case "warning":
				m.Warning = label[1]
			}
		}
		a.Matches = append(a.Matches, m)
	}
	return a
}

// version names what identifies: the library and its signature files.
func version(sf *siegfried.Siegfried) string {
	v := config.Version()
	s := fmt.Sprintf("siegfried %d.%d.%d", v[0], v[1], v[2])
	for _, id := range sf.Identifiers() {
		s += ", " + id[1]
	}
	return s
}
