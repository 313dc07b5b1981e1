package main

import (
	"net"
	"net/http"
	"sync"
)

// mostConnections is how many connections each API has at once. A server has memory for all
// of them.
const mostConnections = 10_000

// crowd is a listener that has a number of connections at most. When all are taken, one that
// is idle makes way for the next; if none is, the next waits until one ends.
type crowd struct {
	net.Listener

	most int

	mu   sync.Mutex
	left *sync.Cond
	open map[net.Conn]bool // whether it is idle
	done bool
}

func newCrowd(l net.Listener, most int) *crowd {
	c := &crowd{Listener: l, most: most, open: map[net.Conn]bool{}}
	c.left = sync.NewCond(&c.mu)
	return c
}

// Accept is of net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	if err := c.place(); err != nil {
		return nil, err
	}
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	c.mu.Lock()
	c.open[conn] = false
	c.mu.Unlock()
	return conn, nil
}

// place waits until there is a place for one more.
func (c *crowd) place() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) >= c.most && !c.done {
		if conn := c.idle(); conn != nil {
			delete(c.open, conn)
			go conn.Close() //nolint:errcheck // nothing is sent over it; TLS says goodbye, which may take long
		} else {
			c.left.Wait()
		}
	}
	if c.done {
		return net.ErrClosed
	}
	return nil
}

// idle is any connection over which no request is under way; nil: there is none.
func (c *crowd) idle() net.Conn {
	for conn, idle := range c.open {
		if idle {
			return conn
		}
	}
	return nil
}

// Close is of net.Listener.
func (c *crowd) Close() error {
	c.mu.Lock()
	c.done = true
	c.left.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close() //nolint:wrapcheck // as it is
}

// changed is for the server to report what becomes of a connection.
func (c *crowd) changed(conn net.Conn, to http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch to {
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	case http.StateNew, http.StateActive, http.StateIdle:
		if _, known := c.open[conn]; known {
			c.open[conn] = to == http.StateIdle
		}
	}
	c.left.Broadcast()
}
