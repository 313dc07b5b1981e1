package nsqcompat

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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
	topic, channel string
	maxReady       int
	msgTimeout     time.Duration
	maxMsgTimeout  time.Duration

	conn   net.Conn
	mu     sync.Mutex // guards w
	w      *bufio.Writer
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
	dialer := net.Dialer{Timeout: answerTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", o.addr)
	if err != nil {
		return nil, fmt.Errorf("consume %s/%s: %w", o.topic, o.channel, err)
	}
	c := &consumer{topic: o.topic, channel: o.channel, conn: conn, w: bufio.NewWriterSize(conn, 16<<10), done: make(chan struct{})}
	r := bufio.NewReaderSize(timedConn{conn}, 64<<10)
	if err := c.handshake(o, r); err != nil {
		conn.Close() //nolint:errcheck // nothing was begun
		return nil, fmt.Errorf("consume %s/%s at %s: %w", o.topic, o.channel, o.addr, err)
	}
	c.wg.Add(1)
	go c.listen(r, arrivals)
	return c, nil
}

// timedConn gives each read as long as nsqd may be silent.
type timedConn struct{ net.Conn }

func (p timedConn) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(3 * heartbeat)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (c *consumer) handshake(o consumerOptions, r io.Reader) error {
	host, _ := os.Hostname() // nsqadmin shows it
	identity, err := nsq.Identify(map[string]any{
		"client_id": o.client, "hostname": host, "user_agent": "farol", "feature_negotiation": true,
		"heartbeat_interval": heartbeat.Milliseconds(), "msg_timeout": o.msgTimeout.Milliseconds(),
		"output_buffer_timeout": 25, // messages are to come at once; this is the least that nsqd allows by default
	})
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(nsq.MagicV2); err != nil {
		return fmt.Errorf("send the magic bytes: %w", err)
	}
	answer, err := c.ask(identity, r)
	if err != nil {
		return err
	}
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
	if answer, err := c.ask(nsq.Subscribe(o.topic, o.channel), r); err != nil || string(answer) != "OK" {
		return errors.Join(fmt.Errorf("the server answered SUB with %q", answer), err)
	}
	return nil
}

// ask sends a command of the handshake and returns nsqd's answer.
func (c *consumer) ask(command *nsq.Command, r io.Reader) ([]byte, error) {
	if err := c.send(command); err != nil {
		return nil, err
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	for {
		kind, answer, err := readAnswer(r)
		switch {
		case err != nil:
			return nil, fmt.Errorf("no answer: %w", err)
		case kind == nsq.FrameTypeError:
			return nil, nsq.ErrProtocol{Reason: string(answer)}
		case string(answer) != "_heartbeat_":
			return answer, nil
		}
	}
}

// listen reads until the connection ends; that is the last arrival.
func (c *consumer) listen(r *bufio.Reader, arrivals chan<- arrival) {
	defer c.wg.Done()
	for {
		a, err := c.next(r)
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
func (c *consumer) next(r *bufio.Reader) (a arrival, err error) {
	var head struct{ Size, Kind int32 }
	if err := binary.Read(r, binary.BigEndian, &head); err != nil {
		return a, err
	}
	n := int64(head.Size) - 4
	if head.Kind == nsq.FrameTypeMessage {
		a.message, err = readMessage(r, n)
		return a, err
	}
	if n < 0 || n > maxAnswer {
		return a, fmt.Errorf("a frame of %d bytes; this is not nsqd", head.Size)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return a, err
	}
	switch {
	case head.Kind == nsq.FrameTypeError:
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

func (c *consumer) send(command *nsq.Command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := command.WriteTo(c.w)
	return err
}

func (c *consumer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return c.w.Flush()
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
