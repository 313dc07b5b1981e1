package nsqcompat

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// heartbeat is the interval of heartbeats, by which nsqd and a consumer know that the
	// other is alive.
	heartbeat = 5 * time.Second
	// maxKept is how much is kept of a body, in bytes: an id is shorter, and other
	// bodies need only be distinguished.
	maxKept = 64
)

// consumer is a connection to one channel. What arrives goes to a Go channel that several
// consumers share. Its methods are safe for concurrent use; flush sends what they
// write.
//
// go-nsq's Consumer is not used, because it decides by itself how many messages are in
// flight, which is what the mirror has to control: see decision 9 in docs/decisions.md.
type consumer struct {
	*wire

	topic, channel string
	maxReady       int
	msgTimeout     time.Duration
	maxMsgTimeout  time.Duration

	done   chan struct{} // closed by close
	closed sync.Once
	wg     sync.WaitGroup
}

// delivery is a message as it came.
type delivery struct {
	id       nsq.MessageID
	at       time.Time // when it was published, by nsqd's clock
	attempts uint16
	body     string // its first maxKept bytes
	size     int64  // of all of it
}

// arrival is what a consumer received: a message, a command that nsqd refused, or the end
// of the connection.
type arrival struct {
	from    *consumer
	message *delivery
	refused string // FIN, REQ or TOUCH
	id      nsq.MessageID
	err     error // the connection has ended
}

// consumerOptions say how to consume.
type consumerOptions struct {
	addr           string
	topic, channel string
	client         string        // distinguishes our connections from others in nsqd's stats
	msgTimeout     time.Duration // 0 leaves it to nsqd
}

func consume(ctx context.Context, o consumerOptions, arrivals chan<- arrival) (*consumer, error) {
	conn, answer, err := dial(ctx, o.addr, 3*heartbeat, map[string]any{
		"client_id": o.client, "feature_negotiation": true,
		"heartbeat_interval": heartbeat.Milliseconds(), "msg_timeout": o.msgTimeout.Milliseconds(),
		"output_buffer_timeout": 25, // messages are to come at once; this is the least that nsqd allows by default
	})
	if err != nil {
		return nil, fmt.Errorf("consume %s/%s at %s: %w", o.topic, o.channel, o.addr, err)
	}
	c := &consumer{topic: o.topic, channel: o.channel, wire: conn, done: make(chan struct{})}
	if err := c.begin(answer); err != nil {
		conn.conn.Close() //nolint:errcheck // nothing was begun
		return nil, fmt.Errorf("consume %s/%s at %s: %w", o.topic, o.channel, o.addr, err)
	}
	c.wg.Go(func() { c.listen(arrivals) })
	return c, nil
}

// begin takes over nsqd's terms, and subscribes.
func (c *consumer) begin(answer []byte) error {
	var terms struct {
		MaxRdyCount   int   `json:"max_rdy_count"`
		MaxMsgTimeout int64 `json:"max_msg_timeout"`
		MsgTimeout    int64 `json:"msg_timeout"`
	}
	if err := json.Unmarshal(answer, &terms); err != nil {
		return fmt.Errorf("the server answered IDENTIFY with %q: %w", answer, err)
	}
	c.maxReady = max(terms.MaxRdyCount, 1)
	c.msgTimeout, c.maxMsgTimeout = time.Duration(terms.MsgTimeout)*time.Millisecond, time.Duration(terms.MaxMsgTimeout)*time.Millisecond
	if c.msgTimeout <= 0 || c.maxMsgTimeout <= 0 {
		return fmt.Errorf("the server answered IDENTIFY with %q", answer)
	}
	if answer, err := c.ask(nsq.Subscribe(c.topic, c.channel)); err != nil || string(answer) != "OK" {
		return errors.Join(fmt.Errorf("the server answered SUB with %q", answer), err)
	}
	return nil
}

// listen reads until the connection ends; that is the last arrival.
func (c *consumer) listen(arrivals chan<- arrival) {
	for {
		a, err := c.next()
		if err != nil {
			a = arrival{err: fmt.Errorf("consume %s/%s: %w", c.topic, c.channel, err)}
		}
		a.from = c
		if a.message != nil || a.refused != "" || a.err != nil {
			select {
			case arrivals <- a:
			case <-c.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// next reads a frame. It keeps a bounded part of a message of any size.
func (c *consumer) next() (a arrival, err error) {
	kind, size, err := c.head()
	if err != nil {
		return a, err
	}
	if kind == nsq.FrameTypeMessage {
		a.message, err = readMessage(c.r, size)
		return a, err
	}
	text, err := c.text(size)
	switch {
	case err != nil:
		return a, err
	case kind == nsq.FrameTypeError:
		return c.refusal(string(text))
	case string(text) == "_heartbeat_":
		if err := c.send(nsq.Nop()); err != nil {
			return a, err
		}
		return a, c.flush()
	}
	return a, nil
}

// messageHead is what comes before the body: a time, attempts and an id.
const messageHead = 8 + 2 + nsq.MsgIDLength

func readMessage(r *bufio.Reader, n int64) (*delivery, error) {
	if n < messageHead {
		return nil, fmt.Errorf("a message of %d bytes; this is not nsqd", n)
	}
	var head struct {
		At       int64
		Attempts uint16
		ID       nsq.MessageID
	}
	if err := binary.Read(r, binary.BigEndian, &head); err != nil {
		return nil, err
	}
	d := &delivery{id: head.ID, at: time.Unix(0, head.At), attempts: head.Attempts, size: n - messageHead}
	body := make([]byte, min(d.size, maxKept))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	d.body = string(body)
	_, err := io.CopyN(io.Discard, r, d.size-int64(len(body)))
	return d, err
}

// refusal reads an error such as "E_FIN_FAILED FIN 0a1b… failed ID not in
// flight", after which the connection stays open. Other errors end it.
func (c *consumer) refusal(text string) (a arrival, err error) {
	words := strings.Fields(text)
	if len(words) >= 3 && len(words[2]) == nsq.MsgIDLength {
		switch words[0] {
		case "E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED":
			a.refused = words[1]
			copy(a.id[:], words[2])
			return a, nil
		}
	}
	return a, nsq.ErrProtocol{Reason: text}
}

func (c *consumer) ready(n int) error             { return c.send(nsq.Ready(n)) }
func (c *consumer) finish(id nsq.MessageID) error { return c.send(nsq.Finish(id)) }
func (c *consumer) touch(id nsq.MessageID) error  { return c.send(nsq.Touch(id)) }
func (c *consumer) requeue(id nsq.MessageID, after time.Duration) error {
	return c.send(nsq.Requeue(id, after))
}

// close ends the connection and waits for its reader. Messages in flight return to the
// channel when they time out.
func (c *consumer) close() {
	c.closed.Do(func() {
		close(c.done)
		c.conn.Close() //nolint:errcheck // all commands have been flushed
	})
	c.wg.Wait()
}
