package main

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

// A gate is a listener on a loopback port that can refuse connections, cut them
// and let nothing through for a while. It keeps its port while it refuses.
type gate struct {
	addr  string
	conns chan net.Conn
	done  chan struct{} // closed by Close

	mu      sync.Mutex
	inner   net.Listener // nil while it refuses
	refuses int          // faults that have it refuse; they may overlap
	server  string       // where connections are passed on to
	open    map[net.Conn]struct{}
	stalled chan struct{} // closed when nothing is held back any more
	stalls  int           // faults that hold it back
	closed  bool
	refused int // times that it began to refuse or cut
}

// newGate takes a port below those that the kernel gives to outgoing
// connections, so that none of them can take it while the gate refuses.
func newGate() (*gate, error) {
	free := make(chan struct{})
	close(free)
	g := &gate{conns: make(chan net.Conn), done: make(chan struct{}), open: map[net.Conn]struct{}{}, stalled: free}
	var err error
	for range 50 {
		g.addr = fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(10000))
		if err = g.listen(); err == nil {
			return g, nil
		}
	}
	return nil, err
}

func (g *gate) listen() error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", g.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", g.addr, err)
	}
	g.mu.Lock()
	g.inner = l
	g.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if held := g.admit(c); held != nil {
				select {
				case g.conns <- held:
				case <-g.done:
					reset(c)
				}
			}
		}
	}()
	return nil
}

func (g *gate) admit(c net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner == nil || g.closed {
		reset(c)
		return nil
	}
	g.open[c] = struct{}{}
	return &gateConn{Conn: c, gate: g}
}

// Accept is a listener's.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Addr is a listener's.
func (g *gate) Addr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", g.addr) // which was listened on
	return a
}

// Close is a listener's. Nothing is accepted any more, and nothing is left open.
func (g *gate) Close() error {
	g.refuse()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stalls > 0 {
		g.stalls = 0
		close(g.stalled)
	}
	if !g.closed {
		g.closed = true
		close(g.done)
	}
	return nil
}

// refuse has the kernel refuse connections, and cuts those that are open.
func (g *gate) refuse() {
	g.mu.Lock()
	l := g.inner
	g.inner = nil
	g.refuses++
	g.mu.Unlock()
	if l != nil {
		l.Close() //nolint:errcheck // it only listened
	}
	g.cut()
}

// serve ends a refuse. Connections are accepted when all are ended.
func (g *gate) serve() error {
	g.mu.Lock()
	g.refuses--
	still := g.refuses > 0
	g.mu.Unlock()
	if still {
		return nil
	}
	var err error
	for range 100 {
		if err = g.listen(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// cut resets all connections that are open.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused++
	for c := range g.open {
		reset(c)
	}
}

// stall lets nothing through, in either direction, until flow.
func (g *gate) stall() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stalls++; g.stalls == 1 {
		g.stalled = make(chan struct{})
	}
}

// flow ends a stall. All goes through when all are ended.
func (g *gate) flow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stalls--; g.stalls == 0 {
		close(g.stalled)
	}
}

func (g *gate) hold() {
	g.mu.Lock()
	stalled := g.stalled
	g.mu.Unlock()
	<-stalled
}

// gateConn is a connection that a gate can hold back.
type gateConn struct {
	net.Conn

	gate *gate
}

func (c *gateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.hold()
	return n, err //nolint:wrapcheck // it stands for the connection
}

func (c *gateConn) Write(p []byte) (int, error) {
	c.gate.hold()
	return c.Conn.Write(p) //nolint:wrapcheck // it stands for the connection
}

func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.open, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // it stands for the connection
}

// reset closes a connection the hard way: the peer's next read is an error.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it closes softly
	}
	c.Close() //nolint:errcheck // it may be closed
}

// forward makes the gate a proxy in front of a server. It ends with the gate. Called
// again, it leads later connections to another server.
func (g *gate) forward(server string) {
	g.mu.Lock()
	running := g.server != ""
	g.server = server
	g.mu.Unlock()
	if running {
		return
	}
	go func() {
		for {
			client, err := g.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			server := g.server
			g.mu.Unlock()
			go carry(client, server)
		}
	}()
}

func carry(client net.Conn, server string) {
	defer client.Close() //nolint:errcheck // it may be closed
	d := net.Dialer{Timeout: 10 * time.Second}
	up, err := d.DialContext(context.Background(), "tcp", server)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // it may be closed
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{up, client}, {client, up}} {
		go func() {
			_, err := io.Copy(way[0], way[1])
			if err != nil && !errors.Is(err, io.EOF) {
				reset(up)
			}
			done <- struct{}{}
		}()
	}
	<-done // one direction is enough: our protocols have no half-closed connections
}
