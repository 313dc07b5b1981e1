package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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
	conn *wire // nil until needed, and after an error
}

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

func (p *publisher) connect(ctx context.Context) (err error) {
	if p.conn != nil {
		return nil
	}
	host, _ := os.Hostname()
	// Heartbeats would have to be answered while there is nothing to send. TCP's keep-alive
	// finds a peer that vanished.
	p.conn, _, err = dial(ctx, p.addr, answerTimeout, map[string]any{"client_id": host, "heartbeat_interval": -1})
	return err
}

// ask sends a command and waits until nsqd says OK.
func (p *publisher) ask(command *nsq.Command) error {
	answer, err := p.conn.ask(command)
	if err == nil && string(answer) != "OK" {
		err = fmt.Errorf("the server answered %q", answer)
	}
	return err
}

func (p *publisher) drop() {
	if p.conn != nil {
		p.conn.conn.Close() //nolint:errcheck // nothing is lost: each answer was read
		p.conn = nil
	}
}

// isRefusal reports whether nsqd would answer the same forever: it said that the topic or
// the body is bad.
func isRefusal(err error) bool {
	var answer nsq.ErrProtocol
	return errors.As(err, &answer) && strings.HasPrefix(answer.Reason, "E_BAD_")
}
