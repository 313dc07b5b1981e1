package nsqcompat

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// answerTimeout bounds how long a connection may take, then the sending of a command, and
	// a publisher's wait for each part of the answer.
	answerTimeout = 5 * time.Second
	// maxAnswer is far above what nsqd answers to a command, in bytes.
	maxAnswer = 4 << 10
)

// wire is a connection to nsqd by its protocol. Any goroutine may send; one may read.
type wire struct {
	conn    net.Conn
	silence time.Duration // how long nsqd may be silent
	r       *bufio.Reader
	mu      sync.Mutex // guards w
	w       *bufio.Writer
}

// dial connects to nsqd, and says who we are in addition to the host.
func dial(ctx context.Context, addr string, silence time.Duration, identity map[string]any) (w *wire, answer []byte, err error) {
	dialer := net.Dialer{Timeout: answerTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	w = &wire{conn: conn, silence: silence, w: bufio.NewWriterSize(conn, 16<<10)}
	w.r = bufio.NewReaderSize(w, 64<<10)
	identity["hostname"], _ = os.Hostname() // nsqadmin shows it
	identity["user_agent"] = "farol"
	command, err := nsq.Identify(identity)
	if err == nil {
		_, err = conn.Write(nsq.MagicV2)
	}
	if err == nil {
		answer, err = w.ask(command)
	}
	if err != nil {
		conn.Close() //nolint:errcheck // nothing was begun
		return nil, nil, nsq.ErrIdentify{Reason: err.Error()}
	}
	return w, answer, nil
}

// Read gives each read as long as nsqd may be silent.
func (w *wire) Read(b []byte) (int, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
		return 0, err
	}
	return w.conn.Read(b)
}

// send sends a command, at the next flush at the latest.
func (w *wire) send(command *nsq.Command) error {
	return w.write(func(to *bufio.Writer) error {
		_, err := command.WriteTo(to)
		return err
	})
}

func (w *wire) flush() error { return w.write((*bufio.Writer).Flush) }

func (w *wire) write(do func(*bufio.Writer) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return do(w.w)
}

// ask sends a command and returns nsqd's answer. If that is an error, so is ours: an
// [nsq.ErrProtocol].
func (w *wire) ask(command *nsq.Command) ([]byte, error) {
	if err := w.send(command); err != nil {
		return nil, err
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	for {
		kind, size, err := w.head()
		if err != nil {
			return nil, fmt.Errorf("no answer: %w", err)
		}
		answer, err := w.text(size)
		switch {
		case err != nil:
			return nil, fmt.Errorf("no answer: %w", err)
		case kind == nsq.FrameTypeError:
			return nil, nsq.ErrProtocol{Reason: string(answer)}
		case kind != nsq.FrameTypeResponse:
			return nil, fmt.Errorf("the server answered %q", answer)
		case string(answer) != "_heartbeat_":
			return answer, nil
		}
	}
}

// head reads what comes before a frame: its size, and its kind.
func (w *wire) head() (kind int32, size int64, err error) {
	var head struct{ Size, Kind int32 }
	err = binary.Read(w.r, binary.BigEndian, &head)
	return head.Kind, int64(head.Size) - 4, err
}

// text reads a frame that is no message. A size above maxAnswer is an error: the peer may
// not be nsqd.
func (w *wire) text(size int64) ([]byte, error) {
	if size < 0 || size+4 > maxAnswer {
		return nil, fmt.Errorf("a frame of %d bytes; this is not nsqd", size+4)
	}
	text := make([]byte, size)
	_, err := io.ReadFull(w.r, text)
	return text, err
}
