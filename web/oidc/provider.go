package oidc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// provider is an OpenID provider, with what it has said of itself.
type provider struct {
	Config

	mu    sync.Mutex
	found *oidc.Provider // nil: it could not be reached
	until time.Time      // when it is asked again
}

// How long what a provider has said of itself is believed. One that is away is not asked for
// a while, so that people do not queue for it.
const (
	believed  = time.Hour
	awayFor   = 5 * time.Second
	mostReply = 1 << 20 // bytes
)

// newClient makes what asks providers: it waits no longer than it has patience, reads no more than
// a provider has to say, and is not led elsewhere.
func newClient(patience time.Duration) *http.Client {
	return &http.Client{
		Timeout: patience, Transport: bounded{http.DefaultTransport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a provider may not redirect") },
	}
}

type bounded struct{ http.RoundTripper }

// RoundTrip cuts an answer that is too long.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		a.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(a.Body, mostReply), a.Body}
	}
	return a, err
}

// client returns what Farol is at a provider, which is looked up if it has to be.
func (p *Providers) client(ctx context.Context, c *provider) (oauth2.Config, *oidc.Provider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !now.Before(c.until) {
		// The one who asks may go; others wait for the same answer.
		asks, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.options.Patience)
		defer cancel()
		found, err := oidc.NewProvider(asks, c.Issuer)
		c.found, c.until = found, time.Now().Add(believed)
		if err != nil {
			c.found, c.until = nil, time.Now().Add(awayFor)
			p.options.Log.WarnContext(ctx, "an OpenID provider cannot be reached; people cannot sign in by it", "provider", c.Name, "err", err)
		}
	}
	if c.found == nil {
		return oauth2.Config{}, nil, ErrAway
	}
	secret := ""
	if c.Secret != nil {
		secret = c.Secret()
	}
	return oauth2.Config{
		ClientID: c.ClientID, ClientSecret: secret, Endpoint: c.found.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email"},
		RedirectURL: p.options.Base + Path(c.Name) + "/callback",
	}, c.found, nil
}

// Path is where signing in by a provider begins.
func Path(name string) string { return "/oidc/" + name }
