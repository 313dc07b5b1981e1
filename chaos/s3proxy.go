package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// A rule is what an S3 proxy does to some requests or their answers.
type rule struct {
	name  string
	match func(*http.Request) bool // nil: every request
	share float64                  // of those that match; 0: all
	once  bool                     // only to the first request of a method and path
	// answer answers in the place of the gateway; false passes the request on.
	answer func(http.ResponseWriter, *http.Request) bool
	// change changes the answer of the gateway.
	change func(*http.Response) error

	hits atomic.Int64
	seen sync.Map
	over atomic.Bool // its fault has ended
}

func (r *rule) applies(req *http.Request) bool {
	if r.match != nil && !r.match(req) || r.share > 0 && mrand.Float64() >= r.share {
		return false
	}
	if r.once {
		if _, before := r.seen.LoadOrStore(req.Method+" "+req.URL.Path, true); before {
			return false
		}
	}
	return true
}

// An s3Proxy stands between one process and the gateway. It speaks TLS to both, so
// that it can answer in the gateway's place and change what that says.
type s3Proxy struct {
	*injure.Proxy

	server *http.Server
	mu     sync.Mutex
	rules  []*rule
}

type changes struct{}

func newS3Proxy(gateway devstack.Gateway, a *rig.Authority) (*s3Proxy, error) {
	var lc net.ListenConfig
	inner, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &s3Proxy{}
	if p.Proxy, err = injure.NewProxy(inner.Addr().String()); err != nil {
		return nil, err //nolint:wrapcheck // it says where it could not listen
	}
	transport, err := gateway.Transport()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it could not read
	}
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 64, 20*time.Second
	pass, err := passTo(gateway, transport)
	if err != nil {
		return nil, err
	}
	p.server = &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{a.Cert}, MinVersion: tls.VersionTLS12},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1, as the gateway
		Handler:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, pass) }),
	}
	go func() {
		err := p.server.ServeTLS(inner, "", "")
		if !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "an S3 proxy ended:", err)
		}
		transport.CloseIdleConnections()
	}()
	return p, nil
}

// passTo passes requests on to the gateway, and its answers back as the rules change them.
func passTo(gateway devstack.Gateway, transport *http.Transport) (*httputil.ReverseProxy, error) {
	pass, err := gateway.Proxy(transport)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it could not read
	}
	pass.ErrorLog = log.New(io.Discard, "", 0)
	pass.ModifyResponse = func(r *http.Response) error {
		list, _ := r.Request.Context().Value(changes{}).([]*rule)
		for _, c := range list {
			if err := c.change(r); err != nil {
				return err
			}
		}
		return nil
	}
	pass.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // the client sees a broken connection
	return pass, nil
}

// answer answers a request by the rules that apply to it, and passes it on unless one of them has.
func (p *s3Proxy) answer(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	var list []*rule
	for _, rule := range p.current() {
		if !rule.applies(r) {
			continue
		}
		rule.hits.Add(1)
		if rule.answer != nil && rule.answer(w, r) {
			return
		}
		if rule.change != nil {
			list = append(list, rule)
		}
	}
	pass.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), changes{}, list)))
}

func (p *s3Proxy) current() []*rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules
}

// add has a rule apply from now on.
func (p *s3Proxy) add(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules[:len(p.rules):len(p.rules)], r)
}

// remove ends add.
func (p *s3Proxy) remove(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rest []*rule
	for _, other := range p.rules {
		if other != r {
			rest = append(rest, other)
		}
	}
	p.rules = rest
}

func (p *s3Proxy) stop() {
	p.Close()
	p.server.Close() //nolint:errcheck // it only listened
}

// bucketOf is the bucket of a path-style request.
func bucketOf(r *http.Request) string {
	bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return bucket
}

func keyOf(r *http.Request) string {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return key
}
