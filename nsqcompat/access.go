package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// Caller is who sends a request, and what they may do.
type Caller struct {
	Name        string   // of the token; "" without one
	Institution string   // identifier; "": all
	Rights      []string // post, pull and lease; nil: all
	Stages      []string // that may be leased; nil: all that are worked on over HTTP
}

// May tells whether the caller has a right.
func (c Caller) May(right string) bool { return c.Rights == nil || slices.Contains(c.Rights, right) }

// mayWork tells whether the caller may have items at a stage.
func (c Caller) mayWork(stage string) bool {
	return c.Stages == nil || slices.Contains(c.Stages, stage)
}

// maySee tells whether the caller may know of an institution's items.
func (c Caller) maySee(institution string) bool {
	return c.Institution == "" || c.Institution == institution
}

// AccessError says why a request is not let in.
type AccessError struct {
	Status int // of HTTP: 401 or 403
	Reason string
}

// Error is the reason.
func (e *AccessError) Error() string { return e.Reason }

// Access finds out who sends a request, by its bearer token (RFC 6750). It is safe
// for concurrent use.
type Access struct {
	tokens *registry.Registry
	open   bool // without a token, programs of this machine may do all

	mu    sync.Mutex
	known map[string]knownCaller // by secret, for a moment
}

type knownCaller struct {
	caller Caller
	until  time.Time
}

// A token that was removed is good for so long in a process that has just seen it.
const (
	knownFor  = 2 * time.Second
	mostKnown = 1000
)

// NewAccess goes by the tokens in the registry. With open, requests without a token
// may do all, if they look as if a program of this machine sent them on purpose:
// that is for servers that listen on loopback only.
func NewAccess(tokens *registry.Registry, open bool) *Access {
	return &Access{tokens: tokens, open: open, known: map[string]knownCaller{}}
}

// Caller tells who sends a request. Who is not let in is an [*AccessError].
func (a *Access) Caller(r *http.Request) (Caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return a.nameless(r)
	}
	scheme, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > 200 {
		return Caller{}, &AccessError{http.StatusUnauthorized, "the header Authorization must be: Bearer and a token"}
	}
	a.mu.Lock()
	k, ok := a.known[secret]
	a.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.caller, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	t, err := a.tokens.TokenOf(ctx, secret)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return Caller{}, &AccessError{http.StatusUnauthorized, "the token is not valid, or no longer"}
	case err != nil:
		return Caller{}, fmt.Errorf("find out who asks: %w", err)
	}
	c := Caller{Name: t.Name, Institution: t.Institution, Rights: t.Rights}
	if len(t.Stages) > 0 {
		c.Stages = t.Stages
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= mostKnown {
		clear(a.known)
	}
	until := time.Now().Add(knownFor)
	if t.ExpiresAt != nil && t.ExpiresAt.Before(until) {
		until = *t.ExpiresAt
	}
	a.known[secret] = knownCaller{c, until}
	return c, nil
}

// nameless is who has no token. A page in a browser of this machine can send requests
// to loopback too: it names where it comes from, or a host that is not this one.
func (a *Access) nameless(r *http.Request) (Caller, error) {
	if !a.open {
		return Caller{}, &AccessError{http.StatusUnauthorized, "a token is needed: send the header Authorization: Bearer TOKEN; farol token add makes one"}
	}
	if from := r.Header.Get("Origin"); from != "" && !ofThisMachine(hostOf(from)) || r.Header.Get("Sec-Fetch-Site") == "cross-site" || !ofThisMachine(r.Host) {
		return Caller{}, &AccessError{http.StatusForbidden, "without a token only programs of this machine are let in, under a name of it such as localhost"}
	}
	return Caller{}, nil
}

func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Host
}

// ofThisMachine tells whether a host, with a port or without, is a loopback address
// or localhost.
func ofThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
