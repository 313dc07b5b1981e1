// Package injure stands between clients and servers, and harms what passes on demand.
package injure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Proxy is a TCP proxy that breaks connections on demand. All methods are safe
// for concurrent use. Faults that are begun and ended, with Refuse and Stall, may overlap.
type Proxy struct {
	addr string
	ctx  context.Context //nolint:containedctx // it ends with Close, and everything with it
	end  context.CancelFunc

	mu          sync.Mutex
	target      string
	listener    net.Listener          // nil while it refuses
	conns       map[net.Conn]struct{} // both sides of all that are open
	cut         bool
	refuses     int // faults that have it refuse
	stalls      int // faults that hold everything back
	delay       time.Duration
	remaining   int64 // bytes that may still pass; -1 for any number
	connections int
	refused     int
	bytes       int64
	changed     chan struct{} // closed and renewed when the delay or the stalls change
	wg          sync.WaitGroup
}

// NewProxy returns a proxy in front of addr (host:port), on 127.0.0.1. Its port is below those
// that the kernel gives to outgoing connections, so that none of them can take it while the
// proxy refuses.
func NewProxy(addr string) (*Proxy, error) {
	p := &Proxy{target: addr, conns: map[net.Conn]struct{}{}, remaining: -1, changed: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	var err error
	for range 50 {
		p.addr = fmt.Sprintf("127.0.0.1:%d", 20_000+rand.N(10_000))
		if err = p.listen(); err == nil {
			return p, nil
		}
	}
	p.end()
	return nil, err
}

func (p *Proxy) listen() error {
	var lc net.ListenConfig
	l, err := lc.Listen(p.ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses > 0 { // it was told to while this went on
		return l.Close()
	}
	p.listener = l
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.connect(client) })
		}
	})
	return nil
}

// Close ends the proxy, and all connections.
func (p *Proxy) Close() {
	p.end()
	p.Refuse()
	p.Cut()
	p.wg.Wait()
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Cut drops all connections and every later one at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.dropLocked()
}

// Drop drops all connections, and none that come later.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

func (p *Proxy) dropLocked() {
	for c := range p.conns {
		reset(c)
	}
}

// Resume lets connections through again, without delay and without a limit.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.remaining, p.delay = false, -1, 0
	p.changeLocked()
}

// MoveTo has later connections go to another address, as a name that is moved does;
// those that are open stay where they are.
func (p *Proxy) MoveTo(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// CutAfter lets n more bytes pass, both directions taken together, and then
// does what Cut does.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remaining = n
}

// Delay holds back every chunk of data, in both directions, for d. A new delay
// counts at once, also for what is being held back.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
	p.changeLocked()
}

func (p *Proxy) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Refuse has the kernel refuse connections, and drops those that are open.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses++
	if p.listener != nil {
		p.listener.Close() //nolint:errcheck // it only listens
		p.listener = nil
	}
	p.dropLocked()
}

// Serve ends a Refuse. Connections are accepted when all are ended.
func (p *Proxy) Serve() (err error) {
	p.mu.Lock()
	p.refuses--
	still := p.refuses > 0
	p.mu.Unlock()
	if still {
		return nil
	}
	for range 100 {
		if err = p.listen(); err == nil {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// Stall lets nothing through, in either direction, until Flow.
func (p *Proxy) Stall() { p.stall(1) }

// Flow ends a Stall. Everything goes through when all are ended.
func (p *Proxy) Flow() { p.stall(-1) }

func (p *Proxy) stall(more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalls += more
	p.changeLocked()
}

// Connections is the number of connections taken so far, open or not; those
// refused do not count.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connections
}

// Refused is the number of connections that came while the proxy was cut.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Bytes is the number of bytes passed on so far, both directions taken together.
func (p *Proxy) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// connect carries one connection in both directions until it ends.
func (p *Proxy) connect(client net.Conn) {
	if !p.admit(client) {
		return
	}
	defer p.forget(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	d := net.Dialer{Timeout: 10 * time.Second}
	server, err := d.DialContext(p.ctx, "tcp", target)
	if err != nil {
		return // the client sees the server refuse, as a closed connection
	}
	if !p.admit(server) {
		return
	}
	defer p.forget(server)
	p.mu.Lock()
	p.connections++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(server, client) })
	both.Go(func() { p.carry(client, server) })
	both.Wait()
}

// admit remembers an open connection, or drops it if the proxy is cut.
func (p *Proxy) admit(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.refuses > 0 {
		p.refused++
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close() //nolint:errcheck // it may be closed
}

// carry copies from src to dst, and hands on the end of one direction while the
// other may go on.
func (p *Proxy) carry(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && p.hold() {
			allowed, last := p.allow(n)
			if _, werr := dst.Write(buf[:allowed]); werr != nil {
				err = werr
			}
			if last {
				p.Cut()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if half, ok := dst.(interface{ CloseWrite() error }); ok {
				half.CloseWrite() //nolint:errcheck // it may be closed
			}
			return
		default:
			reset(dst)
			reset(src)
			return
		}
	}
}

// hold waits for the delay, and until nothing stalls, and reports whether the proxy still runs.
func (p *Proxy) hold() bool {
	began := time.Now()
	for p.ctx.Err() == nil {
		p.mu.Lock()
		delay, stalled, changed := p.delay, p.stalls > 0, p.changed
		p.mu.Unlock()
		left := delay - time.Since(began)
		if stalled {
			left = time.Hour
		}
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-p.ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// allow takes n bytes from what may still pass; last means that no more may.
func (p *Proxy) allow(n int) (allowed int, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remaining >= 0 {
		if int64(n) >= p.remaining {
			n, last = int(p.remaining), true
		}
		p.remaining -= int64(n)
	}
	p.bytes += int64(n)
	return n, last
}

// reset closes a connection the hard way: the peer's next read is an error, not
// the end of the data.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it closes softly
	}
	c.Close() //nolint:errcheck // it may be closed
}
