package testenv

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy that breaks connections on demand. All methods are safe
// for concurrent use.
type Proxy struct {
	addr string

	mu          sync.Mutex
	target      string
	conns       map[net.Conn]struct{} // both sides of all that are open
	cut         bool
	delay       time.Duration
	remaining   int64 // bytes that may still pass; -1 for any number
	connections int
	refused     int
	bytes       int64
	changed     chan struct{} // closed and renewed when the delay changes
	wg          sync.WaitGroup
}

// NewProxy returns a proxy in front of addr (host:port), on 127.0.0.1. It ends
// with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("testenv: start a proxy:", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		addr: l.Addr().String(), target: addr,
		conns: map[net.Conn]struct{}{}, remaining: -1, changed: make(chan struct{}),
	}
	p.wg.Add(1)
	go p.serve(ctx, l)
	t.Cleanup(func() {
		cancel()
		p.Cut()
		l.Close() //nolint:errcheck // it only listens
		p.wg.Wait()
	})
	return p
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Cut drops all connections and every later one at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	p.cut = true
	for c := range p.conns {
		reset(c)
	}
}

// Resume lets connections through again, without delay and without a limit.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.remaining = false, -1
	p.setDelayLocked(0)
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
	p.setDelayLocked(d)
}

func (p *Proxy) setDelayLocked(d time.Duration) {
	p.delay = d
	close(p.changed)
	p.changed = make(chan struct{})
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

func (p *Proxy) serve(ctx context.Context, l net.Listener) {
	defer p.wg.Done()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.connect(ctx, client)
	}
}

// connect carries one connection in both directions until it ends.
func (p *Proxy) connect(ctx context.Context, client net.Conn) {
	defer p.wg.Done()
	if !p.admit(client) {
		return
	}
	defer p.drop(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return // the client sees the server refuse, as a closed connection
	}
	if !p.admit(server) {
		return
	}
	defer p.drop(server)
	p.mu.Lock()
	p.connections++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(ctx, server, client) })
	both.Go(func() { p.carry(ctx, client, server) })
	both.Wait()
}

// admit remembers an open connection, or drops it if the proxy is cut.
func (p *Proxy) admit(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		p.refused++
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close() //nolint:errcheck // it may be closed
}

// carry copies from src to dst, and hands on the end of one direction while the
// other may go on.
func (p *Proxy) carry(ctx context.Context, dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && p.hold(ctx) {
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

// hold waits for the delay and reports whether the proxy still runs.
func (p *Proxy) hold(ctx context.Context) bool {
	began := time.Now()
	for {
		p.mu.Lock()
		delay, changed := p.delay, p.changed
		p.mu.Unlock()
		left := delay - time.Since(began)
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
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
