package injure_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // it only listens
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c) //nolint:errcheck // the client says what it got
				c.Close()     //nolint:errcheck // the same
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // of a test that has ended
	if err := c.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange sends a message and reads its echo.
func exchange(c net.Conn, message string) error {
	if _, err := io.WriteString(c, message); err != nil {
		return err
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != message {
		return errors.New("it came back as " + string(got))
	}
	return nil
}

func TestProxyCarriesAndCounts(t *testing.T) {
	t.Parallel()
	p := testenv.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	if err := exchange(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if p.Connections() != 1 || p.Bytes() != 10 {
		t.Errorf("%d connections and %d bytes, want 1 and 10", p.Connections(), p.Bytes())
	}
	// The end of one direction is handed on; the other goes on.
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		t.Errorf("after the end of the input: %d bytes, %v", n, err)
	}
}

func TestCutProxyDropsAndRefusesUntilItResumes(t *testing.T) {
	t.Parallel()
	p := testenv.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	if err := exchange(c, "hello"); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := exchange(c, "hello"); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("on a connection that was cut: %v, want an error that is not the end of the data", err)
	}
	if refused, err := net.Dial("tcp", p.Addr()); err == nil { // or the reset comes before the connection stands
		if err := exchange(refused, "hello"); err == nil {
			t.Error("a new connection works while the proxy is cut")
		}
		refused.Close() //nolint:errcheck // it was refused
	}
	p.Resume()
	if err := exchange(dial(t, p.Addr()), "hello"); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	if p.Connections() != 2 {
		t.Errorf("%d connections, want the 2 that were let in", p.Connections())
	}
}

func TestProxyCutsAfterSomeBytes(t *testing.T) {
	t.Parallel()
	p := testenv.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	p.CutAfter(2000)
	if err := exchange(c, string(bytes.Repeat([]byte{'x'}, 5000))); err == nil {
		t.Error("5000 bytes and their echo came through")
	}
	if p.Bytes() != 2000 {
		t.Errorf("%d bytes came through, want 2000", p.Bytes())
	}
}

// A test hangs a connection for an hour and goes on; nothing may wait for it.
func TestProxyDelayCanBeTakenBack(t *testing.T) {
	t.Parallel()
	p := testenv.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	p.Delay(50 * time.Millisecond)
	began := time.Now()
	if err := exchange(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("there and back took %s, want 50 ms each way at least", took)
	}
	p.Delay(time.Hour)
	answer := make(chan error, 1)
	go func() { answer <- exchange(c, "again") }()
	select {
	case err := <-answer:
		t.Errorf("it came through within its hour: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Resume()
	if err := <-answer; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

// A name that is moved leads new connections elsewhere, and leaves the old where they are.
func TestProxyMovesLaterConnections(t *testing.T) {
	t.Parallel()
	first := testenv.NewProxy(t, echo(t))
	p := testenv.NewProxy(t, first.Addr())
	c := dial(t, p.Addr())
	if err := exchange(c, "before"); err != nil {
		t.Fatal(err)
	}
	second := testenv.NewProxy(t, echo(t))
	p.MoveTo(second.Addr())
	if err := errors.Join(exchange(c, "still"), exchange(dial(t, p.Addr()), "after")); err != nil {
		t.Fatal(err)
	}
	if first.Connections() != 1 || second.Connections() != 1 {
		t.Errorf("%d connections to the first, %d to the second, want one each", first.Connections(), second.Connections())
	}
}

// Faults overlap: each ends when the last that began it has ended.
func TestProxyStallsRefusesAndServesAgain(t *testing.T) {
	t.Parallel()
	p := testenv.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	if err := exchange(c, "hello"); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	p.Stall()
	p.Flow()
	answer := make(chan error, 1)
	go func() { answer <- exchange(c, "stalled") }()
	select {
	case err := <-answer:
		t.Errorf("it came through a stall: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Flow()
	if err := <-answer; err != nil {
		t.Errorf("after the stalls: %v", err)
	}
	p.Drop()
	if err := exchange(c, "dropped"); err == nil {
		t.Error("an open connection outlived Drop")
	}
	c = dial(t, p.Addr())
	if err := exchange(c, "at once"); err != nil {
		t.Errorf("after Drop: %v", err)
	}
	p.Refuse()
	p.Refuse()
	if err := p.Serve(); err != nil {
		t.Fatal(err)
	}
	if err := exchange(c, "refused"); err == nil {
		t.Error("an open connection outlived Refuse")
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while it refuses: %v", err)
	}
	if err := p.Serve(); err != nil {
		t.Fatal(err)
	}
	if err := exchange(dial(t, p.Addr()), "again"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
