package nsqcompat

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nsqio/go-nsq"
)

// errUnsent says that no message was sent to nsqd.
var errUnsent = errors.New("nothing was sent")

// publisher sends to one nsqd, over a connection that it makes when needed, and
// waits for each answer. It is not safe for concurrent use.
//
// It uses go-nsq's commands but not its Producer, which has a data race when it
// reconnects: see decision 9 in docs/decisions.md.
type publisher struct {
	addr string
	conn net.Conn // nil until needed, and after an error
}

const (
	// answerTimeout bounds how long a connection may take, and then a command and its
	// answer.
	answerTimeout = 5 * time.Second
	// maxAnswer is far above what nsqd answers to a publisher, in bytes.
	maxAnswer = 4 << 10
)

// send publishes bodies to a topic, all or none unless the connection breaks, and waits
// for nsqd's answer. ctx ends only the wait for a connection: without the answer, the
// bodies would be published again, and the wait for it is bounded. If nsqd refuses the
// topic or the bodies, the error is an [nsq.ErrProtocol]; if it refuses us, it is not.
func (p *publisher) send(ctx context.Context, topic string, bodies [][]byte) error {
	command, err := nsq.MultiPublish(topic, bodies)
	if err == nil {
		err = p.connect(ctx)
	}
	if err != nil {
		err = errors.Join(errUnsent, err)
	} else {
		err = p.ask(command)
	}
	if err != nil {
		// nsqd closes the connection after most errors, and on one that still waits for
		// an answer the next answer would be mistaken for it.
		p.drop()
		return fmt.Errorf("publish to %s at %s: %w", topic, p.addr, err)
	}
	return nil
}

func (p *publisher) connect(ctx context.Context) error {
	if p.conn != nil {
		return nil
	}
	dialer := net.Dialer{Timeout: answerTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	p.conn = conn
	if _, err := conn.Write(nsq.MagicV2); err != nil {
		return fmt.Errorf("send the magic bytes: %w", err)
	}
	host, _ := os.Hostname() // nsqadmin shows it
	command, err := nsq.Identify(map[string]any{
		"client_id": host, "hostname": host, "user_agent": "farol",
		// Heartbeats would have to be answered while there is nothing to send. TCP's
		// keep-alive finds a peer that vanished.
		"heartbeat_interval": -1,
	})
	if err != nil {
		return err
	}
	if err := p.ask(command); err != nil {
		return nsq.ErrIdentify{Reason: err.Error()}
	}
	return nil
}

// ask sends a command and waits until nsqd says OK.
func (p *publisher) ask(command *nsq.Command) error {
	if err := p.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	w := bufio.NewWriter(p.conn)
	if _, err := command.WriteTo(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	kind, answer, err := readAnswer(p.conn)
	switch {
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case kind == nsq.FrameTypeError:
		return nsq.ErrProtocol{Reason: string(answer)}
	case kind != nsq.FrameTypeResponse || string(answer) != "OK":
		return fmt.Errorf("the server answered %q", answer)
	}
	return nil
}

// readAnswer reads a frame: its size, its kind, and the rest of that size. A size above
// maxAnswer is an error: the peer may not be nsqd.
func readAnswer(r io.Reader) (kind int32, answer []byte, err error) {
	var head struct{ Size, Kind int32 }
	if err := binary.Read(r, binary.BigEndian, &head); err != nil {
		return 0, nil, err
	}
	if head.Size < 4 || head.Size > maxAnswer {
		return 0, nil, fmt.Errorf("a frame of %d bytes; this is not nsqd", head.Size)
	}
	answer = make([]byte, head.Size-4)
	_, err = io.ReadFull(r, answer)
	return head.Kind, answer, err
}

func (p *publisher) drop() {
	if p.conn != nil {
		p.conn.Close() //nolint:errcheck // nothing is lost: each answer was read
		p.conn = nil
	}
}

// isRefusal reports whether nsqd would answer the same forever: it said that the topic or
// the body is bad.
func isRefusal(err error) bool {
	var answer nsq.ErrProtocol
	return errors.As(err, &answer) && strings.HasPrefix(answer.Reason, "E_BAD_")
}
