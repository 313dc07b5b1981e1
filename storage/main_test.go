package storage_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// target is a bucket of the test's own on the real server.
func target(t *testing.T, name string) storage.Target {
	t.Helper()
	s := testenv.S3(t)
	return storage.Target{
		Name:            name,
		Bucket:          s.Prefix + name,
		Endpoint:        s.Endpoint,
		Region:          s.Region,
		AccessKeyID:     s.AccessKeyID,
		SecretAccessKey: storage.Secret(s.SecretAccessKey),
		CAFile:          s.CAFile,
		PathStyle:       true,
	}
}

// open connects to a target, with a client of its own.
func open(t *testing.T, at storage.Target, o storage.Options) *storage.Bucket {
	t.Helper()
	o.Patience = cmp.Or(o.Patience, 1) // most servers of tests say the same each time
	client := storage.NewClient(o)
	t.Cleanup(client.Close)
	return must.Get(client.Bucket(at))(t)
}

// create is open for a bucket that is not there yet.
func create(t *testing.T, at storage.Target) *storage.Bucket {
	t.Helper()
	b := open(t, at, storage.Options{})
	must.Do(t, b.Create(t.Context()))
	return b
}

// noise is content that differs at every offset and is the same every time.
func noise(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// describe is the Upload of some content.
func describe(content []byte) storage.Upload {
	return storage.Upload{
		Size:        int64(len(content)),
		SHA256:      sha256.Sum256(content),
		MD5:         md5.Sum(content),
		ContentType: "text/x-test",
		Metadata:    map[string]string{"institution": "test.edu", "bagpath": "data/a b.txt"},
	}
}

// describeParts adds what an upload in parts needs.
func describeParts(content []byte) storage.Parts {
	const size = 5 << 20
	p := storage.Parts{
		Size: int64(size),
		Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
			return io.NopCloser(onlyReader{bytes.NewReader(content[offset : offset+length])}), nil
		},
	}
	for from := 0; from < len(content); from += size {
		p.SHA256 = append(p.SHA256, sha256.Sum256(content[from:min(from+size, len(content))]))
	}
	return p
}

// onlyReader hides that bytes could be read twice.
type onlyReader struct{ io.Reader }

func put(t *testing.T, b *storage.Bucket, key string, content []byte) storage.Object {
	t.Helper()
	return must.Get(b.Put(t.Context(), key, onlyReader{bytes.NewReader(content)}, describe(content)))(t)
}

func head(t *testing.T, b *storage.Bucket, key string) storage.Object {
	t.Helper()
	return must.Get(b.Head(t.Context(), key))(t)
}

func get(t *testing.T, b *storage.Bucket, key string) []byte {
	t.Helper()
	r := must.Get(b.Get(t.Context(), key, storage.Range{Length: -1}))(t)
	defer r.Close()
	return must.Get(io.ReadAll(r))(t)
}

// A gate is an HTTP server in front of the real one, through which a test sees
// requests, and answers those that the real server would not answer that way.
type gate struct {
	*httptest.Server
	forward *httputil.ReverseProxy
	caFile  string // of a gate over TLS

	mu       sync.Mutex
	requests []*http.Request
}

// newGate answers with intercept first, where it returns true.
func newGate(t *testing.T, at storage.Target, intercept func(http.ResponseWriter, *http.Request) bool) *gate {
	t.Helper()
	g := closedGate(t, at, intercept)
	g.Start()
	return g
}

// newTLSGate is newGate over TLS.
func newTLSGate(t *testing.T, at storage.Target, intercept func(http.ResponseWriter, *http.Request) bool) *gate {
	t.Helper()
	g := closedGate(t, at, intercept)
	g.StartTLS()
	g.caFile = testenv.CAFile(t, g.Server)
	return g
}

func closedGate(t *testing.T, at storage.Target, intercept func(http.ResponseWriter, *http.Request) bool) *gate {
	t.Helper()
	g := &gate{forward: testenv.S3Server{Gateway: devstack.Gateway{Endpoint: at.Endpoint, CAFile: at.CAFile}}.Proxy(t)}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.requests = append(g.requests, r)
		g.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			g.forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// answer is an error in S3's words.
func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
}

// rewrite changes the bodies of the answers to requests that satisfy is.
func (g *gate) rewrite(is func(*http.Request) bool, change func(body string) string) {
	g.forward.ModifyResponse = func(r *http.Response) error {
		if !is(r.Request) {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		body = []byte(change(string(body)))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
}

// count says how many requests satisfied is.
func (g *gate) count(is func(*http.Request) bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, r := range g.requests {
		if is(r) {
			n++
		}
	}
	return n
}

// through is the target as seen through the gate.
func (g *gate) through(at storage.Target) storage.Target {
	at.Endpoint, at.CAFile = g.URL, g.caFile
	return at
}

func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}

func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// eachOf calls f for every key, several at a time.
func eachOf(keys []string, f func(key string) error) error {
	var group errgroup.Group
	group.SetLimit(8)
	for _, key := range keys {
		group.Go(func() error { return f(key) })
	}
	return group.Wait()
}
