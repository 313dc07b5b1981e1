// Package oidc asks OpenID providers who a person is: by the authorization code flow with
// PKCE (RFC 7636), a state and a nonce.
//
// What belongs to a sign-in in progress is in a sealed cookie of the browser that has begun
// it, so any process can finish it, and no other browser. A provider is looked up when the
// first person wants to sign in there: one that is down keeps nothing from starting.
package oidc

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/auth"
)

// Errors of a sign-in, in words for the person.
var (
	ErrAway = errors.New("this sign-in service does not answer; try again in a while, or sign in with your password")
	ErrVain = errors.New("the sign-in was not completed, or took longer than ten minutes; begin again")
)

// Config is an OpenID provider, and the client that Farol is there.
type Config struct {
	auth.Provider

	Issuer   string
	ClientID string
	Secret   func() string // of each exchange, since it may be replaced; nil: the client is a public one
	TrustMFA bool          // a second factor there counts as one here
}

// Options of signing in at OpenID providers.
type Options struct {
	Keys *auth.Keys
	Base string           // URL of this server, without a slash at its end
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger

	Patience time.Duration // how long a provider is waited for; 0: ten seconds
}

// Providers are OpenID providers. They are safe for concurrent use.
type Providers struct {
	options Options
	list    []*provider
	http    *http.Client
}

const (
	purpose = "oidc sign-in"

	// Lifetime is how long a sign-in may be in progress.
	Lifetime = 10 * time.Minute
	freshFor = 10 * time.Minute
	mostText = 16 << 10 // bytes of a cookie or a code
)

// New returns providers that have not been looked up yet.
func New(configs []Config, o Options) *Providers {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	p := &Providers{options: o, http: newClient(o.Patience)}
	for _, c := range configs {
		p.list = append(p.list, &provider{Config: c})
	}
	return p
}

// Button is a provider as people see it.
type Button struct{ Name, Host string }

// Buttons are all providers, in their order.
func (p *Providers) Buttons() (list []Button) {
	if p == nil {
		return nil
	}
	for _, c := range p.list {
		u, err := url.Parse(c.Issuer)
		if err == nil {
			list = append(list, Button{c.Name, u.Hostname()})
		}
	}
	return list
}

// Named returns the settings of a provider; false: there is none of that name.
func (p *Providers) Named(name string) (Config, bool) {
	c := p.named(name)
	if c == nil {
		return Config{}, false
	}
	return c.Config, true
}

func (p *Providers) named(name string) *provider {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.list, func(c *provider) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return p.list[i]
}

// started is what the cookie of a browser holds, sealed, while a person is at a provider.
type started struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Until    time.Time `json:"u"`
}

// Begin returns where a browser goes to sign in at a provider, and what its cookie holds
// until it comes back. again has the provider ask for everything once more, which makes a
// fresh proof. A provider that cannot be reached is [ErrAway].
func (p *Providers) Begin(ctx context.Context, name string, again bool) (to, cookie string, err error) {
	c := p.named(name)
	if c == nil {
		return "", "", ErrAway
	}
	config, _, err := p.client(ctx, c)
	if err != nil {
		return "", "", err
	}
	s := started{State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(), Until: p.options.Now().Add(Lifetime)}
	text, err := json.Marshal(s)
	if err != nil {
		return "", "", fmt.Errorf("begin a sign-in: %w", err)
	}
	sealed, err := p.options.Keys.SealText(purpose, name, text)
	if err != nil {
		return "", "", err
	}
	with := []oauth2.AuthCodeOption{oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)}
	if again {
		with = append(with, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return config.AuthCodeURL(s.State, with...), sealed, nil
}

// End returns what a provider says of the person, whom it has sent back with a query.
// cookie is what [Providers.Begin] gave the browser. Whatever is not as it was begun is
// [ErrVain].
func (p *Providers) End(ctx context.Context, name, cookie string, query url.Values) (auth.Said, error) {
	c := p.named(name)
	if c == nil {
		return auth.Said{}, ErrVain
	}
	s, err := p.opened(name, cookie)
	switch {
	case err != nil:
		return p.vain(ctx, name, err)
	case subtle.ConstantTimeCompare([]byte(s.State), []byte(query.Get("state"))) != 1:
		return p.vain(ctx, name, errors.New("the state is of another sign-in"))
	case query.Has("iss") && query.Get("iss") != c.Issuer: // RFC 9207
		return p.vain(ctx, name, errors.New("the answer is of another provider"))
	case query.Get("code") == "" || len(query.Get("code")) > mostText:
		return p.vain(ctx, name, errors.New("the provider has sent no code"))
	}
	config, provided, err := p.client(ctx, c)
	if err != nil {
		return auth.Said{}, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), p.options.Patience)
	defer cancel()
	token, err := config.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return p.vain(ctx, name, fmt.Errorf("exchange the code: %w", withoutBody(err)))
	}
	text, ok := token.Extra("id_token").(string)
	if !ok {
		return p.vain(ctx, name, errors.New("the provider has sent no ID token"))
	}
	id, err := provided.Verifier(&oidc.Config{ClientID: c.ClientID, SupportedSigningAlgs: algorithms(), Now: p.options.Now}).Verify(ctx, text)
	if err != nil {
		return p.vain(ctx, name, fmt.Errorf("verify the ID token: %w", err))
	}
	if subtle.ConstantTimeCompare([]byte(s.Nonce), []byte(id.Nonce)) != 1 {
		return p.vain(ctx, name, errors.New("the ID token is of another sign-in"))
	}
	said, err := p.said(ctx, c, provided, id, token)
	if err != nil {
		return p.vain(ctx, name, err)
	}
	return said, nil
}

// vain logs why a sign-in is worth nothing, and returns what the person is told.
func (p *Providers) vain(ctx context.Context, name string, why error) (auth.Said, error) {
	p.options.Log.InfoContext(ctx, "a sign-in at an OpenID provider was refused", "provider", name, "err", why)
	return auth.Said{}, ErrVain
}

// withoutBody is an error of a token endpoint without what it has answered, which may have
// secrets in it.
func withoutBody(err error) error {
	var answered *oauth2.RetrieveError
	if errors.As(err, &answered) && answered.Response != nil {
		return fmt.Errorf("the provider answered %s %q", answered.Response.Status, answered.ErrorCode)
	}
	return err
}

func (p *Providers) opened(name, cookie string) (s started, err error) {
	if cookie == "" || len(cookie) > mostText*4/3 {
		return s, errors.New("the browser has begun no sign-in")
	}
	text, err := p.options.Keys.OpenText(purpose, name, cookie)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the cookie: %w", err)
	}
	if !p.options.Now().Before(s.Until) || s.State == "" || s.Nonce == "" {
		return s, errors.New("the sign-in began more than ten minutes ago")
	}
	return s, nil
}

// claims are those of an ID token that count here.
type claims struct {
	Email    string    `json:"email"`
	Verified truth     `json:"email_verified"`
	ACR      string    `json:"acr"`
	AMR      []string  `json:"amr"`
	AZP      string    `json:"azp"`
	AuthTime *unixTime `json:"auth_time"`
}

// said is what a verified ID token says. An e-mail address that it lacks is asked for.
func (p *Providers) said(ctx context.Context, c *provider, provided *oidc.Provider, id *oidc.IDToken, token *oauth2.Token) (auth.Said, error) {
	var v claims
	if err := id.Claims(&v); err != nil {
		return auth.Said{}, fmt.Errorf("read the ID token: %w", err)
	}
	if id.Subject == "" || (len(id.Audience) > 1 || v.AZP != "") && v.AZP != c.ClientID {
		return auth.Said{}, errors.New("the ID token has no subject, or was made for another client")
	}
	if v.Email == "" && provided.UserInfoEndpoint() != "" {
		info, err := provided.UserInfo(ctx, oauth2.StaticTokenSource(token))
		switch {
		case err != nil:
			return auth.Said{}, fmt.Errorf("ask for the e-mail address: %w", err)
		case info.Subject != id.Subject:
			return auth.Said{}, errors.New("the e-mail address is of another subject")
		}
		v.Email, v.Verified = info.Email, truth(info.EmailVerified)
	}
	s := auth.Said{Identity: people.Identity{Issuer: c.Issuer, Subject: id.Subject}, Email: v.Email, Verified: bool(v.Verified)}
	s.Factor = c.TrustMFA && v.factor()
	if v.AuthTime != nil {
		age := p.options.Now().Sub(time.Time(*v.AuthTime))
		s.Fresh = age < freshFor && age > -time.Minute
	}
	return s, nil
}

// factor reports whether a second factor was used (RFC 8176, REFEDS).
func (v claims) factor() bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(v.AMR, n) })
	}
	return has("mfa") || has("pwd", "pin") && has("otp", "hwk", "swk", "sc") ||
		v.ACR == "https://refeds.org/profile/mfa" || v.ACR == "http://schemas.openid.net/pape/policies/2007/06/multi-factor"
}

// truth is a boolean, also as some providers write it: "true".
type truth bool

// UnmarshalJSON reads it; what is neither is false.
func (t *truth) UnmarshalJSON(text []byte) error {
	*t = truth(strings.Trim(string(text), `"`) == "true")
	return nil
}

// unixTime is a number of seconds since 1970.
type unixTime time.Time

// UnmarshalJSON reads it.
func (t *unixTime) UnmarshalJSON(text []byte) error {
	var n float64
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	*t = unixTime(time.Unix(int64(n), 0))
	return nil
}

// algorithms are those by which a provider may sign: never none, and none whose key is the
// client's secret.
func algorithms() []string {
	return []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}
}
