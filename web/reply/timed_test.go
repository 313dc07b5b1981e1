package reply

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A client that does not read its answer is left, however long the answer is.
func TestClientsThatDoNotReadAreLeft(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	server := httptest.NewServer(timedBy(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				ended <- err
				return
			}
		}
	}), 100*time.Millisecond))
	t.Cleanup(server.Close)
	conn := asks(t, server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer ended with %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// The deadline of one answer is not that of the next over the same connection, nor of one that
// is long in coming.
func TestEachAnswerHasItsOwnTime(t *testing.T) {
	t.Parallel()
	const long = 50 * time.Millisecond
	server := httptest.NewServer(timedBy(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passes(t, 3*long)
		if r.URL.Path == "/empty" {
			return
		}
		io.WriteString(w, "answer") //nolint:errcheck // the client finds out
	}), long))
	t.Cleanup(server.Close)
	conn := asks(t, server, "")
	read := answers(conn)
	for _, path := range []string{"/", "/empty", "/"} {
		passes(t, 3*long)
		must.Get(io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"))(t)
		if status, _, err := read(); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, status, err)
		}
	}
}

// A body that no handler reads, and the server does, leaves the connection as it should be.
func TestUnreadBodiesArePassedOver(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(Timed(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	conn := asks(t, server, "")
	read := answers(conn)
	for range 3 {
		must.Get(io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"+strings.Repeat("x", 5000)))(t)
		if status, _, err := read(); err != nil || status != http.StatusNotFound {
			t.Fatalf("%d, %v", status, err)
		}
	}
	// A client that asks before it sends a body, and is refused, does not send it.
	must.Get(io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n"))(t)
	if status, ends, err := read(); err != nil || status != http.StatusNotFound || !ends {
		t.Errorf("%d, %v: the connection has to end, since the next bytes may be the body or not", status, err)
	}
}

// answers returns what reads one answer after the other. ends says that the connection ends
// with it.
func answers(conn net.Conn) func() (status int, ends bool, err error) {
	r := bufio.NewReader(conn)
	return func() (int, bool, error) {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, false, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, answer.Close, err
	}
}

func asks(t *testing.T, server *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err == nil {
		_, err = io.WriteString(conn, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may be closed
	return conn
}

func passes(t *testing.T, long time.Duration) {
	t.Helper()
	began := time.Now()
	testenv.Eventually(t, "time to pass", func() bool { return time.Since(began) > long })
}
