package progress

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// lines are the connections to Redis that are open. One that answers READONLY leads
// to a primary that has become a replica. go-redis drops that one, and not those of
// which a pipeline says so; the others that are idle would each cost a failed call
// before the name is asked where the new primary is.
type lines struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	open map[net.Conn]time.Time // since when
}

func (l *lines) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if isClosed(c) {
			delete(l.open, c)
		}
	}
	l.open[c] = time.Now()
	return c, nil
}

// hangUp closes the connections that were open at a time. Calls under way on them fail
// as they would have anyway.
func (l *lines) hangUp(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, since := range l.open {
		if since.Before(before) {
			c.Close() //nolint:errcheck // it may be closed
			delete(l.open, c)
		}
	}
}

// isClosed reports whether go-redis has closed a connection.
func isClosed(c net.Conn) bool {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = t.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}
