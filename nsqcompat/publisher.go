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
	"time"

	"github.com/nsqio/go-nsq"
)

// errUnsent says that nsqd was sent no message.
var errUnsent = errors.New("nothing was sent")

// publisher sends to one nsqd, over a connection that it makes when needed, and
// waits for each answer. It is not safe for concurrent use.
//
// It speaks go-nsq's commands but does without its Producer, which reads the
// connection that it lost while it makes the next (v1.1.0: a data race), and
// answers "not connected" for as long as its goroutines take to end.
type publisher struct {
	addr string
	conn net.Conn // nil until needed, and after an error
}

const (
	// answerTimeout bounds how long nsqd may take to connect, and then to take a
	// command and answer.
	answerTimeout = 5 * time.Second
	// maxAnswer is far above what nsqd answers to a publisher, in bytes.
	maxAnswer = 4 << 10
)

// send publishes bodies to a topic, all or none unless the connection breaks,
// and waits for nsqd's answer. ctx ends only the wait for a connection: to leave
// without the answer would mean to publish again, and it is bounded. What nsqd
// says against topic or bodies is an [nsq.ErrProtocol]; what it says against us is
// not.
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
		// nsqd hangs up after most errors, and on a connection that still waits
		// for an answer the next one would be taken for it.
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
		return fmt.Errorf("greet: %w", err)
	}
	host, _ := os.Hostname() // only shown by nsqadmin
	command, err := nsq.Identify(map[string]any{
		"client_id": host, "hostname": host, "user_agent": "farol",
		// Heartbeats would have to be answered while there is nothing to send.
		// A peer that vanished is found by TCP's own.
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
		return fmt.Errorf("it answers %q", answer)
	}
	return nil
}

// readAnswer reads a frame: its size, its kind, and the rest of that size. It
// believes no size above maxAnswer: not every port is nsqd's.
func readAnswer(r io.Reader) (kind int32, answer []byte, err error) {
	var head struct{ Size, Kind int32 }
	if err := binary.Read(r, binary.BigEndian, &head); err != nil {
		return 0, nil, err
	}
	if head.Size < 4 || head.Size > maxAnswer {
		return 0, nil, fmt.Errorf("a frame of %d bytes, this is not nsqd", head.Size)
	}
	answer = make([]byte, head.Size-4)
	_, err = io.ReadFull(r, answer)
	return head.Kind, answer, err
}

func (p *publisher) drop() {
	if p.conn != nil {
		p.conn.Close() //nolint:errcheck // nothing is lost with it: each answer was read
		p.conn = nil
	}
}
