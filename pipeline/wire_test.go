package pipeline

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A wire is the way to S3 of all that the stages ask for, on which answers can be
// spoilt. The test itself keeps its own way.
type wire struct {
	mu      sync.Mutex
	spoilt  []*spoilt
	answers func(*http.Response) // changes any answer; may be nil
	asked   []string             // method, path and range of each request
	firsts  string               // what happens to the first answer with bytes of each object; "" for nothing
	seen    map[string]bool      // objects of which there was one
	hit     int                  // answers that were spoilt so
}

// spoilt is what happens to the next answers that have the byte at an offset of an
// object, one of a kind to each: it is flipped, the connection is cut before it, or the answer is short.
type spoilt struct {
	object string // the end of its path
	at     int64
	how    string // flip, cut or short
	times  int    // that are left
}

// wired puts a wire between the stages and S3.
func (a *archive) wired() *wire {
	a.t.Helper()
	w := &wire{}
	server, err := url.Parse(a.s3.Endpoint)
	if err != nil {
		a.t.Fatal(err)
	}
	authority, err := os.ReadFile(a.s3.CAFile)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, MaxIdleConnsPerHost: 32}
	a.t.Cleanup(transport.CloseIdleConnections)
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = server.Scheme, server.Host
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: w.spoil,
		ErrorLog:       nil,
	}
	gate := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Range")))
		w.mu.Unlock()
		forward.ServeHTTP(out, r)
	}))
	a.t.Cleanup(gate.Close)
	direct := a.s3
	a.s3.Endpoint, a.s3.CAFile = gate.URL, filepath.Join(a.t.TempDir(), "ca.pem")
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: gate.Certificate().Raw})
	if err := os.WriteFile(a.s3.CAFile, own, 0o600); err != nil {
		a.t.Fatal(err)
	}
	a.rewire()
	a.s3 = direct
	return w
}

// next spoils the next answers with a byte of an object.
func (w *wire) next(s spoilt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spoilt = append(w.spoilt, &s)
}

// spoilFirsts has the first answer with bytes of each object spoilt, from now on, and
// returns how many were since it was called last.
func (w *wire) spoilFirsts(how string) (hit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hit, w.hit = w.hit, 0
	w.firsts, w.seen = how, map[string]bool{}
	return hit
}

// left counts the answers that were to be spoilt and have not been.
func (w *wire) left() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spoilt {
		n += s.times
	}
	return n
}

// count counts the requests that begin like one and go to an object.
func (w *wire) count(method, object string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.asked {
		m, rest, _ := strings.Cut(r, " ")
		path, _, _ := strings.Cut(rest, " ")
		if m == method && strings.HasSuffix(path, object) {
			n++
		}
	}
	return n
}

func (w *wire) spoil(r *http.Response) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answers != nil {
		w.answers(r)
	}
	if r.Request.Method != http.MethodGet || r.StatusCode/100 != 2 || r.ContentLength <= 0 {
		return nil
	}
	var start int64
	if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-", &start); err != nil {
		start = 0
	}
	if path := r.Request.URL.Path; w.firsts != "" && !w.seen[path] && strings.Count(path, "/") > 1 {
		w.seen[path] = true
		w.hit++
		w.spoilt = append(w.spoilt, &spoilt{object: path, at: start + r.ContentLength/2, how: w.firsts, times: 1})
	}
	done := map[string]bool{}
	for _, s := range w.spoilt {
		if done[s.how] || s.times == 0 || !strings.HasSuffix(r.Request.URL.Path, s.object) || s.at < start || s.at >= start+r.ContentLength {
			continue
		}
		s.times--
		before := s.at - start
		switch s.how {
		case "flip":
			r.Body = &flipped{r.Body, before}
		case "cut":
			r.Body = &struct {
				io.Reader
				io.Closer
			}{io.LimitReader(r.Body, before), r.Body}
		case "short":
			head, err := io.ReadAll(io.LimitReader(r.Body, before))
			if err != nil {
				return err
			}
			_ = r.Body.Close()
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(head)), before
			r.Header.Set("Content-Length", strconv.FormatInt(before, 10))
		}
		done[s.how] = true
	}
	return nil
}

// flipped changes a bit of one byte.
type flipped struct {
	io.ReadCloser

	left int64 // bytes before it; negative when it has passed
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.left >= 0 && f.left < int64(n) {
		p[f.left] ^= 0x10
	}
	f.left -= int64(n)
	return n, err
}

// The wire itself does what it is told to, and nothing else.
func TestWire(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	content := bytes.Repeat([]byte("0123456789"), 10_000)
	a.putRaw("object", content)
	w := a.wired()
	bucket, err := a.deps.Receiving(a.in.ReceivingBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"flip", "cut", "short"} {
		w.next(spoilt{object: "/object", at: 77_777, how: how, times: 1})
		if got, err := a.tryContent(bucket, "object"); err == nil && (bytes.Equal(got, content) || how == "cut") {
			t.Errorf("%s: %d bytes are as they were, %v", how, len(got), err)
		}
		if got, err := a.tryContent(bucket, "object"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("after %s: %d bytes, %v", how, len(got), err)
		}
	}
	if n := w.count("GET", "/object"); n != 6 || w.left() != 0 {
		t.Errorf("%d requests, %d answers left to be spoilt", n, w.left())
	}
}
