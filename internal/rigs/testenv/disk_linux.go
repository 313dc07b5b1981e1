package testenv

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Fill has nsqd's disk full, so that every write to a file fails, until Free. It
// must write all messages to disk; see [NewNSQWith].
func (n *NSQServer) Fill(t testing.TB) {
	t.Helper()
	n.limit(t, 0)
}

// Free has nsqd's disk take writes again.
func (n *NSQServer) Free(t testing.TB) {
	t.Helper()
	n.limit(t, unix.RLIM_INFINITY)
}

func (n *NSQServer) limit(t testing.TB, bytes uint64) {
	t.Helper()
	var was unix.Rlimit
	err := unix.Prlimit(n.own.stack.NSQPID, unix.RLIMIT_FSIZE, nil, &was)
	if err == nil {
		err = unix.Prlimit(n.own.stack.NSQPID, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(bytes, was.Max), Max: was.Max}, nil)
	}
	must(t, err)
}
