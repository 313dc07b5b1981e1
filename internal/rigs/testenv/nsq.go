package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// NSQServer is an nsqd with its nsqadmin.
type NSQServer struct {
	TCPAddr  string // host:port
	HTTPAddr string // host:port
	AdminURL string
	// LookupAddr is the HTTP API of the nsqlookupd that knows it, host:port; "" if
	// there is none.
	LookupAddr string

	own *ownServer // nil for the one that tests share
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
	own := newOwn(t, devstack.NSQ, change)
	own.start(t)
	n := serverOf(own.stack)
	n.own = own
	return n
}

func serverOf(s *devstack.Stack) *NSQServer {
	return &NSQServer{TCPAddr: s.NSQDTCPAddr, HTTPAddr: s.NSQDHTTPAddr, AdminURL: s.NSQAdminURL, LookupAddr: s.NSQLookupdHTTPAddr}
}

// Stop stops an nsqd of [NewNSQ], which writes its messages to disk first. It
// does nothing to one that is stopped.
func (n *NSQServer) Stop(t testing.TB) {
	t.Helper()
	if n.own == nil {
		t.Fatal("testenv: this nsqd is shared: take one from NewNSQ to stop it")
	}
	n.own.stop(t)
}

// Kill ends an nsqd of [NewNSQ] at once. What it had in memory is lost; its topics
// and channels are not.
func (n *NSQServer) Kill(t testing.TB) {
	t.Helper()
	n.own.end(t, n.own.stack.NSQPID, syscall.SIGKILL)
}

// Start starts a stopped nsqd again, at the same addresses and with the
// messages that it had.
func (n *NSQServer) Start(t testing.TB) {
	t.Helper()
	n.own.start(t)
	if s := n.own.stack; s.NSQDTCPAddr != n.TCPAddr || s.NSQDHTTPAddr != n.HTTPAddr {
		t.Fatalf("testenv: another process took the port of nsqd: it is at %s now, and was at %s", s.NSQDTCPAddr, n.TCPAddr)
	}
}

// Wipe deletes all that a stopped nsqd has kept.
func (n *NSQServer) Wipe(t testing.TB) {
	t.Helper()
	if n.own.stack != nil {
		t.Fatal("testenv: stop nsqd before its messages are deleted")
	}
	kept, err := filepath.Glob(filepath.Join(n.own.dir, "nsq", "*"))
	if err == nil && len(kept) == 0 {
		t.Fatal("testenv: nsqd has kept nothing in", n.own.dir)
	}
	for _, file := range kept {
		err = errors.Join(err, os.RemoveAll(file))
	}
	must(t, err)
}
