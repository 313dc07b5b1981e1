package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/farol-preservation/farol/storage/credentials"
)

const (
	mebibyte    = 1 << 20
	dialTimeout = 10 * time.Second // and as much again for TLS
)

// A Pool owns the connections that buckets share, and the clocks of their endpoints. Its methods
// may be called at the same time as any other.
type Pool struct {
	idle              int           // connections kept open to each endpoint
	stall, serverWork time.Duration // of a connection; see [NewPool]
	patience          time.Duration
	tell              func(Spell)

	mu         sync.Mutex
	transports map[route]*http.Transport
	clocks     map[string]*clock // by the host of an endpoint
	keys       map[credentials.Source]*credentials.Provider
	paces      map[string]*pace // by the host of an endpoint and the bucket
}

// A route is what decides whether two requests may share a connection. Work on
// the server has connections of its own, since they may keep silent for longer.
type route struct {
	scheme, host, caFile string
	stall                time.Duration
}

// NewPool returns a pool without connections. It keeps idleConns of them open to each endpoint, and
// gives up one in use that is silent for stall, or for serverWork while the server copies or
// assembles. It repeats requests for the time of patience to which a store answers that they are to come
// later, and calls tell when that begins and when it is over; tell must be quick.
func NewPool(idleConns int, stall, serverWork, patience time.Duration, tell func(Spell)) *Pool {
	return &Pool{
		idle: idleConns, stall: stall, serverWork: serverWork, patience: patience, tell: tell,
		transports: make(map[route]*http.Transport), clocks: make(map[string]*clock), keys: make(map[credentials.Source]*credentials.Provider), paces: make(map[string]*pace),
	}
}

// Close closes the idle connections. Requests under way are not disturbed.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.transports {
		t.CloseIdleConnections()
	}
}

func (p *Pool) clockOf(host string) *clock {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clocks[host] == nil {
		p.clocks[host] = &clock{}
	}
	return p.clocks[host]
}

func (p *Pool) keysOf(s credentials.Source) *credentials.Provider {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[s] == nil {
		p.keys[s] = credentials.New(s)
	}
	return p.keys[s]
}

func (p *Pool) paceOf(bucket, service string) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paces[bucket] == nil {
		p.paces[bucket] = newPace(service, p.patience, p.tell)
	}
	return p.paces[bucket]
}

func (p *Pool) transport(at route) (*http.Transport, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.transports[at]; ok {
		return t, nil
	}
	roots, err := trusted(at.caFile)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &guardedConn{Conn: conn, stall: at.stall}, nil
		},
		TLSClientConfig: &tls.Config{
			RootCAs:            roots,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(p.idle),
		},
		TLSHandshakeTimeout:    dialTimeout,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  at.stall,
		IdleConnTimeout:        min(30*time.Second, at.stall/2),
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    p.idle,
		MaxResponseHeaderBytes: mebibyte,
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         64 << 10,
		DisableCompression:     true, // bytes are to arrive as they are kept
		// HTTP/2 would put all parts on one connection and its one window.
		ForceAttemptHTTP2: false,
	}
	p.transports[at] = t
	return t, nil
}

// trusted is nil, the system's certificates, without a file.
func trusted(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the file may be all that is needed
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("CA file " + caFile + " holds no certificate")
	}
	return pool, nil
}

// A guardedConn gives up when nothing moves for the time of stall. Writing moves
// both directions: while a long body goes out, there is nothing to read.
// A pause of the reader is no stall, since the clock starts with each Read.
type guardedConn struct {
	net.Conn
	stall time.Duration
}

func (c *guardedConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *guardedConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
