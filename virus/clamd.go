// Package virus has files looked at by ClamAV's daemon, clamd. What comes in is a file as a
// stream; what goes out is clamd's [Verdict] on it.
//
// It speaks clamd's own protocol (clamd(8), COMMANDS) over TCP or a Unix socket,
// a connection for each question. Files are streamed by INSTREAM in small chunks:
// of no file is more than that in memory, and clamd need not see our disks.
package virus

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// Options bound what is asked of clamd. Zero values take the defaults.
type Options struct {
	MaxSize int64         // bytes of the largest file that clamd looks at as a whole; default 100 MiB, which is ClamAV's
	Idle    time.Duration // for a connection, a chunk to be taken, and the answer to a small question; default 30 s
	Answer  time.Duration // for the verdict on a file that was sent; default 5 min, ClamAV's own bound is 2
	AtOnce  int           // questions; default 8, clamd answers 10
}

// A Scanner asks one clamd. It may be used by many goroutines at once.
type Scanner struct {
	network, address string
	opts             Options
	slots            chan struct{}

	mu      sync.Mutex
	version string    // guarded by mu
	asked   time.Time // guarded by mu; when version was
}

// A Verdict is what clamd said of a file. It is clean if both Signature and
// Unchecked are empty.
type Verdict struct {
	Scanner   string // engine and number of its signatures, such as "ClamAV 1.4.3/27812"; without ClamAV's own signatures no number
	Signature string // what was found
	Unchecked string // why clamd did not look at the whole file
}

// New returns a scanner for tcp://host:port or unix:///path. It connects to
// nothing.
func New(address string, o Options) (*Scanner, error) {
	o.MaxSize, o.Idle = cmp.Or(o.MaxSize, 100<<20), cmp.Or(o.Idle, 30*time.Second)
	o.Answer, o.AtOnce = cmp.Or(o.Answer, 5*time.Minute), cmp.Or(o.AtOnce, 8)
	s := &Scanner{opts: o, slots: make(chan struct{}, o.AtOnce)}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("it cannot be read as an address")
	}
	switch {
	case u.Scheme == "tcp" && u.Hostname() != "" && u.Port() != "" && u.Path == "" && u.User == nil:
		s.network, s.address = "tcp", u.Host
	case u.Scheme == "unix" && u.Host == "" && path.IsAbs(u.Path):
		s.network, s.address = "unix", u.Path
	default:
		return nil, errors.New("it is neither tcp://host:port nor unix:///path")
	}
	return s, nil
}

// versionTime is how long a version is believed: clamd reloads its signatures
// while it runs.
const versionTime = 10 * time.Second

// Version returns what clamd calls itself and its signatures, as in
// [Verdict.Scanner] and as it said within the last ten seconds.
func (s *Scanner) Version(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != "" && time.Since(s.asked) < versionTime {
		return s.version, nil
	}
	version, err := s.ask(ctx, "VERSION", nil, 0)
	if err == nil && !strings.HasPrefix(version, "ClamAV ") {
		err = fmt.Errorf("it answered %q instead of its ClamAV version", version)
	}
	if err != nil {
		return "", fmt.Errorf("ask clamd at %s for its version: %w", s.address, err)
	}
	if parts := strings.Split(version, "/"); len(parts) > 2 { // the time of the signatures, which their number tells too
		version = parts[0] + "/" + parts[1]
	}
	s.version, s.asked = version, time.Now()
	return version, nil
}

// limits is how the names of signatures begin by which clamd says that it has not
// looked at all of a file (AlertExceedsMax in clamd.conf).
const limits = "Heuristics.Limits.Exceeded"

// Scan sends a file to clamd. What clamd does not look at as a whole, because it
// is larger than [Options.MaxSize] or than clamd itself allows, is no error but
// Unchecked; of the former nothing is read. All errors are worth another try.
func (s *Scanner) Scan(ctx context.Context, size int64, content io.Reader) (Verdict, error) {
	version, err := s.Version(ctx)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Scanner: version}
	if size > s.opts.MaxSize {
		v.Unchecked = fmt.Sprintf("the file has %d bytes, and the limit for the scanner is %d", size, s.opts.MaxSize)
		return v, nil
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
	answer, err := s.ask(ctx, "INSTREAM", content, size)
	if err != nil {
		return Verdict{}, fmt.Errorf("scan the file with clamd at %s: %w", s.address, err)
	}
	found, isFound := strings.CutSuffix(strings.TrimPrefix(answer, "stream: "), " FOUND")
	switch {
	case answer == "stream: OK":
	case isFound && strings.HasPrefix(found, limits):
		v.Unchecked = "the scanner reports " + found
	case isFound && found != "":
		v.Signature = found
	case answer == "INSTREAM size limit exceeded. ERROR":
		v.Unchecked = fmt.Sprintf("the file has %d bytes, and the scanner's own limit (StreamMaxLength) is less", size)
	default:
		return Verdict{}, fmt.Errorf("scan the file with clamd at %s: it answered %q", s.address, answer)
	}
	return v, nil
}

// maxAnswer is more than any answer of clamd's has.
const maxAnswer = 4 << 10

// ask opens a connection, sends a command, with a stream of a size behind it if
// there is one, and returns the answer without its end.
func (s *Scanner) ask(ctx context.Context, command string, stream io.Reader, size int64) (string, error) {
	dialer := net.Dialer{Timeout: s.opts.Idle}
	conn, err := dialer.DialContext(ctx, s.network, s.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()                                          //nolint:errcheck // all that was to be said has been, or the error is at hand
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends every read and write
	answer, err := s.talk(conn, command, stream, size)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return answer, err
}

// talk reads the answer from the beginning: clamd may break a stream off with one,
// and what it has said is lost once the other side of a connection is reset.
func (s *Scanner) talk(conn net.Conn, command string, stream io.Reader, size int64) (string, error) {
	type said struct {
		answer string
		err    error
	}
	answered := make(chan said, 1)
	go func() {
		answer, err := readAnswer(conn)
		answered <- said{answer, err}
	}()
	err := s.send(conn, command, stream, size)
	if errors.As(err, new(contentError)) {
		_ = conn.Close()
		<-answered
		return "", err
	}
	most := s.opts.Idle
	if stream != nil {
		most = s.opts.Answer
	}
	if err != nil { // there may be an answer that says why
		most = time.Second
	}
	// The deadline is the reader's too, which may be waiting already.
	if dead := conn.SetReadDeadline(time.Now().Add(most)); dead != nil {
		err = errors.Join(err, dead)
	}
	a := <-answered
	if a.err != nil {
		return "", errors.Join(err, a.err)
	}
	return a.answer, nil
}

// chunkSize is how much of a file is sent at a time.
const chunkSize = 64 << 10

// ErrContent says that the file could not be read to its end, for which clamd is not
// to blame.
var ErrContent = errors.New("virus: the file could not be read")

// A contentError is an error of the caller's reader.
type contentError struct{ error }

func (e contentError) Is(target error) bool { return target == ErrContent }

func (e contentError) Unwrap() error { return e.error }

// send writes a command in the form that ends with a zero byte, and the stream in
// chunks with their length in four bytes before them, of which the last is empty.
func (s *Scanner) send(conn net.Conn, command string, stream io.Reader, size int64) error {
	if err := s.write(conn, []byte("z"+command+"\x00")); err != nil || stream == nil {
		return err
	}
	chunk := make([]byte, 4+chunkSize)
	for sent := int64(0); ; {
		n, err := io.ReadFull(stream, chunk[4:])
		sent += int64(n)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case ended && sent != size: // what was sent is not the file, and no verdict on it counts
			return contentError{fmt.Errorf("read the file: it ends after %d of its %d bytes: %w", sent, size, err)}
		case err != nil && !ended:
			return contentError{fmt.Errorf("read the file: %w", err)}
		}
		if n > 0 {
			binary.BigEndian.PutUint32(chunk, uint32(n)) //nolint:gosec // n is chunkSize at most
			if err := s.write(conn, chunk[:4+n]); err != nil {
				return err
			}
		}
		if ended {
			return s.write(conn, []byte{0, 0, 0, 0})
		}
	}
}

func (s *Scanner) write(conn net.Conn, p []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(s.opts.Idle)); err != nil {
		return err
	}
	_, err := conn.Write(p)
	return err
}

func readAnswer(conn net.Conn) (string, error) {
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	answer, err := r.ReadString(0)
	switch {
	case err == nil:
		return strings.ToValidUTF8(strings.TrimSpace(strings.TrimSuffix(answer, "\x00")), "\uFFFD"), nil
	case errors.Is(err, io.EOF) && len(answer) == maxAnswer:
		return "", fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	case errors.Is(err, io.EOF):
		return "", fmt.Errorf("the connection ended after %d bytes of an answer: %w", len(answer), io.ErrUnexpectedEOF)
	}
	return "", fmt.Errorf("read the answer: %w", err)
}
