package pipelinetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/storage"
)

// A wire is the way to S3 of all that the stages ask for, on which answers can be
// spoilt. The test itself keeps its own way.
type wire struct {
	Mu      sync.Mutex
	spoilt  []*Spoilt
	Answers func(*http.Response) // changes any answer; may be nil
	asked   []string             // method, path and range of each request
	moved   Moved
	firsts  string          // what happens to the first answer with bytes of each object; "" for nothing
	seen    map[string]bool // objects that were seen
	hit     int             // answers that were spoilt so
}

// Spoilt is what happens to the next answers that have the byte at an offset of an
// object, one of a kind to each: it is flipped, the connection is cut before it, or the answer is short.
type Spoilt struct {
	Object string // the end of its path
	At     int64
	How    string // flip, cut or short
	Times  int    // that are left
}

// Wired puts a wire between the stages and S3.
func (a *Archive) Wired() *wire {
	a.T.Helper()
	w := &wire{}
	forward := a.S3.Proxy(a.T)
	forward.ModifyResponse = w.spoil
	gate := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.Mu.Lock()
		w.asked = append(w.asked, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Range")))
		w.moved.Written += a.toWrite(r)
		w.Mu.Unlock()
		forward.ServeHTTP(out, r)
	}))
	a.T.Cleanup(gate.Close)
	caFile := testenv.CAFile(a.T, gate)
	a.Deps = a.With(func(t *storage.Target) { t.Endpoint, t.CAFile = gate.URL, caFile })
	return w
}

// Moved are bytes of objects.
type Moved struct {
	Read    int64 // in answers
	Written int64 // that S3 was asked to write: in bodies, and what it copies by itself
}

// Since are the bytes after an earlier moment.
func (m Moved) Since(earlier Moved) Moved {
	return Moved{m.Read - earlier.Read, m.Written - earlier.Written}
}

// Moved are the bytes that have passed so far.
func (w *wire) Moved() Moved {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.moved
}

// toWrite is how many bytes of an object a request has S3 write.
func (a *Archive) toWrite(r *http.Request) int64 {
	from := r.Header.Get("X-Amz-Copy-Source")
	if r.Method != http.MethodPut || from == "" {
		return max(r.ContentLength, 0)
	}
	var first, last int64
	if n, _ := fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &first, &last); n == 2 {
		return last - first + 1
	}
	bucket, key, _ := strings.Cut(from, "/")
	o, err := a.Bucket(bucket).Head(r.Context(), key)
	if err != nil {
		a.T.Errorf("the source of a copy: %v", err)
	}
	return o.Size
}

// Next spoils the next answers with a byte of an object.
func (w *wire) Next(s Spoilt) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.spoilt = append(w.spoilt, &s)
}

// SpoilFirsts has the first answer with bytes of each object spoilt, from now on, and
// returns how many were since it was called last.
func (w *wire) SpoilFirsts(how string) (hit int) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	hit, w.hit = w.hit, 0
	w.firsts, w.seen = how, map[string]bool{}
	return hit
}

// Left counts the answers that were to be spoilt and have not been.
func (w *wire) Left() (n int) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, s := range w.spoilt {
		n += s.Times
	}
	return n
}

// Asked lists the requests so far: method, path and range of each.
func (w *wire) Asked() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.asked)
}

// Count counts the requests that begin like one and go to an object.
func (w *wire) Count(method, object string) (n int) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
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
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.Answers != nil {
		w.Answers(r)
	}
	if r.Request.Method != http.MethodGet || r.StatusCode/100 != 2 || r.ContentLength <= 0 {
		return nil
	}
	w.moved.Read += r.ContentLength
	var start int64
	if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-", &start); err != nil {
		start = 0
	}
	if path := r.Request.URL.Path; w.firsts != "" && !w.seen[path] && strings.Count(path, "/") > 1 {
		w.seen[path] = true
		w.hit++
		w.spoilt = append(w.spoilt, &Spoilt{Object: path, At: start + r.ContentLength/2, How: w.firsts, Times: 1})
	}
	done := map[string]bool{}
	for _, s := range w.spoilt {
		if done[s.How] || !s.hits(r, start) {
			continue
		}
		s.Times--
		s.do(r, s.At-start)
		done[s.How] = true
	}
	return nil
}

// hits tells whether an answer, which begins at an offset of its object, is to be spoilt.
func (s *Spoilt) hits(r *http.Response, start int64) bool {
	return s.Times > 0 && strings.HasSuffix(r.Request.URL.Path, s.Object) && s.At >= start && s.At < start+r.ContentLength
}

// do spoils an answer behind so many bytes.
func (s *Spoilt) do(r *http.Response, before int64) {
	switch s.How {
	case "flip":
		injure.Flip(r, before)
	case "cut":
		injure.Cut(r, before)
	case "short":
		injure.Shorten(r, before)
	}
}

// Through sends the stages' requests to S3 through a proxy. The test's own go directly.
func (a *Archive) Through(proxy *injure.Proxy) {
	a.T.Helper()
	a.Deps = a.With(func(t *storage.Target) { t.Endpoint = "https://" + proxy.Addr() })
}

// With is the test's dependencies with all buckets opened again, each with a change.
func (a *Archive) With(change func(t *storage.Target)) pipeline.Deps {
	a.T.Helper()
	open := func(t storage.Target) *storage.Bucket {
		t = a.onServer(t)
		change(&t)
		return a.open(t)
	}
	d := a.Deps
	d.Staging = open(named(a.Deps.Staging.Name()))
	if d.Kept != nil {
		d.Kept = open(named(d.Kept.Name()))
	}
	d.Targets = map[string]*storage.Bucket{}
	for _, spec := range storage.Targets() {
		d.Targets[spec.Name] = open(a.target(spec))
	}
	others := map[string]*storage.Bucket{}
	for _, name := range []string{a.In.ReceivingBucket, a.In.RestoreBucket} {
		others[name] = open(named(name))
	}
	d.Receiving = func(name string) (*storage.Bucket, error) { return others[name], nil }
	return d
}

// Behind is a bucket whose server is reached by way of another.
func (a *Archive) Behind(b *storage.Bucket, way func(*httputil.ReverseProxy) http.Handler) *storage.Bucket {
	a.T.Helper()
	gate := httptest.NewServer(way(a.S3.Proxy(a.T)))
	a.T.Cleanup(gate.Close)
	t := a.onServer(named(b.Name()))
	t.Endpoint, t.CAFile, t.Checksum = gate.URL, "", storage.ChecksumETag
	return a.open(t)
}
