package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/devstack"
)

// NSQServer is an nsqd with its nsqadmin.
type NSQServer struct {
	TCPAddr  string // host:port
	HTTPAddr string // host:port
	AdminURL string
	// LookupAddr is the HTTP API of the nsqlookupd that knows it, host:port; "" if
	// there is none.
	LookupAddr string

	dir   string          // "" for the one that tests share
	stack *devstack.Stack // nil while stopped

	change func(*devstack.Options)
}

// NSQ returns the nsqd that the tests of this process share: name topics after
// the test.
func NSQ(t testing.TB) *NSQServer {
	t.Helper()
	return serverOf(stack(t, devstack.NSQ))
}

// NewNSQ returns an nsqd that only this test uses and may stop. It and its
// messages go when the test ends.
func NewNSQ(t testing.TB) *NSQServer {
	t.Helper()
	return newNSQ(t, func(*devstack.Options) {})
}

// NewNSQWith is NewNSQ with settings.
func NewNSQWith(t testing.TB, settings devstack.NSQDOptions) *NSQServer {
	t.Helper()
	return newNSQ(t, func(o *devstack.Options) { o.NSQD = settings })
}

// NewNSQLookup is NewNSQ with an nsqlookupd beside it, which stops and starts
// with it.
func NewNSQLookup(t testing.TB) *NSQServer {
	t.Helper()
	return newNSQ(t, func(o *devstack.Options) { o.Lookupd = true })
}

func newNSQ(t testing.TB, change func(*devstack.Options)) *NSQServer {
	t.Helper()
	dir := t.TempDir()
	s, err := startStack(dir, devstack.NSQ, change)
	if err != nil {
		t.Fatal("testenv:", err)
	}
	n := serverOf(s)
	n.dir, n.change = dir, change
	t.Cleanup(func() { n.Stop(t) })
	return n
}

func serverOf(s *devstack.Stack) *NSQServer {
	return &NSQServer{TCPAddr: s.NSQDTCPAddr, HTTPAddr: s.NSQDHTTPAddr, AdminURL: s.NSQAdminURL, LookupAddr: s.NSQLookupdHTTPAddr, stack: s}
}

// Stop stops an nsqd of [NewNSQ], which writes its messages to disk first. It
// does nothing to one that is stopped.
func (n *NSQServer) Stop(t testing.TB) {
	t.Helper()
	if n.dir == "" {
		t.Fatal("testenv: this nsqd is shared: take one from NewNSQ to stop it")
	}
	if n.stack == nil {
		return
	}
	stopStack(t, n.stack)
	n.stack = nil
}

// Kill ends an nsqd of [NewNSQ] at once. What it had in memory is lost; its topics
// and channels are not.
func (n *NSQServer) Kill(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(n.stack.NSQPID, syscall.SIGKILL); err != nil {
		t.Fatal("testenv:", err)
	}
	select {
	case <-n.stack.Died(): //nolint:errcheck // that it has died is what was wanted
	case <-time.After(30 * time.Second):
		t.Fatal("testenv: nsqd does not end")
	}
	n.Stop(t)
}

// Start starts a stopped nsqd again, at the same addresses and with the
// messages that it had.
func (n *NSQServer) Start(t testing.TB) {
	t.Helper()
	if n.stack != nil {
		return
	}
	s, err := startStack(n.dir, devstack.NSQ, n.change)
	if err != nil {
		t.Fatal("testenv:", err)
	}
	n.stack = s
	if s.NSQDTCPAddr != n.TCPAddr || s.NSQDHTTPAddr != n.HTTPAddr {
		t.Fatalf("testenv: another process took the port of nsqd: it is at %s now, and was at %s", s.NSQDTCPAddr, n.TCPAddr)
	}
}

// Wipe deletes all that a stopped nsqd has kept.
func (n *NSQServer) Wipe(t testing.TB) {
	t.Helper()
	if n.stack != nil {
		t.Fatal("testenv: stop nsqd before its messages are deleted")
	}
	kept, err := filepath.Glob(filepath.Join(n.dir, "nsq", "*"))
	if err == nil && len(kept) == 0 {
		t.Fatal("testenv: nsqd has kept nothing in", n.dir)
	}
	for _, file := range kept {
		err = errors.Join(err, os.RemoveAll(file))
	}
	if err != nil {
		t.Fatal("testenv:", err)
	}
}
