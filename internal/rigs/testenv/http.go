package testenv

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// NewProxy returns a proxy in front of addr (host:port), which ends with the test.
func NewProxy(t testing.TB, addr string) *injure.Proxy {
	t.Helper()
	p, err := injure.NewProxy(addr)
	if err != nil {
		t.Fatal("testenv: start a proxy:", err)
	}
	t.Cleanup(p.Close)
	return p
}

// LossyServer returns the URL of a server in front of another, of which every third
// answer is lost.
func LossyServer(t testing.TB, to string) string {
	t.Helper()
	proxy := reverseProxy(t, to)
	var calls atomic.Int64
	proxy.ModifyResponse = func(*http.Response) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	return Serve(t, proxy)
}

// SilentServer returns the URL of a server in front of another that never answers the
// first calls to a path.
func SilentServer(t testing.TB, to, path string, calls int64) string {
	t.Helper()
	proxy := reverseProxy(t, to)
	var came atomic.Int64
	return Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path && came.Add(1) <= calls {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // so that the server notices when the client goes
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

func reverseProxy(t testing.TB, to string) *httputil.ReverseProxy {
	t.Helper()
	u, err := url.Parse(to)
	must(t, err)
	return httputil.NewSingleHostReverseProxy(u)
}

// Serve serves a handler until the test ends, and returns the URL of it.
func Serve(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		server = nil // a test's cleanups are in memory until all tests of the package have ended
	})
	return server.URL
}

// CAFile writes the certificate of a TLS server to a file, for a client to trust.
func CAFile(t testing.TB, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// Call is an HTTP request, and the status that its answer must have.
type Call struct {
	Method, Path, Body string
	Status             int
}

// CallLate makes calls over connections whose write deadline, set for an earlier answer,
// is over: a handler must set its own.
func CallLate(t testing.TB, handler http.Handler, calls ...Call) {
	t.Helper()
	to := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Minute)); err != nil {
			t.Error(err)
		}
		handler.ServeHTTP(w, r)
	}))
	for _, c := range calls {
		r, err := http.NewRequestWithContext(t.Context(), c.Method, to+c.Path, strings.NewReader(c.Body))
		must(t, err)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", c.Path, c.Body, err)
			continue
		}
		response.Body.Close() //nolint:errcheck // only its status counts
		if response.StatusCode != c.Status {
			t.Errorf("%s %s = %s, want %d", c.Path, c.Body, response.Status, c.Status)
		}
	}
}
