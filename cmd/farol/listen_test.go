package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// At the most connections, those over which nothing goes make way for others; if there is
// none, others wait, and come in when one ends.
func TestIdleConnectionsMakeWay(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	waits, release := make(chan struct{}, 2), make(chan struct{})
	c := newCrowd(l, 2)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ConnState: c.changed, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			waits <- struct{}{}
			<-release
		}
	})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- monitor.ServeUntil(ctx, server, c) }()

	connect := func(path string) (net.Conn, func() error) {
		t.Helper()
		conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may be closed
		must.Get(io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"))(t)
		r := bufio.NewReader(conn)
		return conn, func() error {
			answer, err := http.ReadResponse(r, nil)
			if err == nil {
				err = answer.Body.Close()
			}
			return err
		}
	}
	var idle []net.Conn
	for range 5 { // each takes the place of one before
		conn, answered := connect("/")
		must.Do(t, answered())
		idle = append(idle, conn)
	}
	testenv.Eventually(t, "three to be closed", func() bool { return c.count() <= 2 })
	_, first := connect("/waits")
	<-waits
	_, second := connect("/waits")
	<-waits
	for _, conn := range idle {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("an idle connection is open and sends %d bytes", n)
		}
	}
	_, third := connect("/") // it is in the queue of the kernel
	if n := c.count(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	close(release)
	for _, answered := range []func() error{first, second, third} {
		if err := answered(); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A server whose places are all taken can be stopped.
func TestFullServerStops(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	c := newCrowd(l, 1)
	ended := make(chan error, 1)
	go func() {
		server := &http.Server{ReadHeaderTimeout: time.Hour, ConnState: c.changed, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
		ended <- monitor.ServeUntil(ctx, server, c)
	}()
	conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	defer conn.Close() //nolint:errcheck // the server closes it
	must.Get(io.Copy(conn, strings.NewReader("GET / HTTP/1.1\r\n")))(t)
	testenv.Eventually(t, "the place to be taken", func() bool { return c.count() == 1 })
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.AtOnce):
		t.Error("it waits for a connection that does not end")
	}
}

func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
