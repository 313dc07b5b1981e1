package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/handlers"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/registry/plans"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/front"
	"github.com/farol-preservation/farol/web/oidc"
)

// serveWeb serves the REST API.
func (v *server) serveWeb(ctx context.Context) error {
	c := &v.config.Web
	keys, err := auth.KeysOf(c.CurrentKey)
	if err != nil {
		return cli.Usage(fmt.Errorf("FAROL_WEB_KEY: %w", err), "set FAROL_WEB_KEY")
	}
	if err := v.believed(ctx); err != nil {
		return err
	}
	listener, open, err := listen(ctx, "the REST API", "FAROL_WEB_ADDR", c.Addr, v.log)
	if err != nil {
		return err
	}
	if c.Cert != "" {
		cert := &certificate{cert: c.Cert, key: c.CertKey}
		if err := cert.read(); err != nil {
			return errors.Join(cli.Usage(fmt.Errorf("read the certificate: %w", err), "check FAROL_WEB_TLS_CERT and FAROL_WEB_TLS_KEY"), listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: cert.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	tokens := access.NewTokens(v.Registry, false)
	tokens.Costs = c.Costs == "on"
	web := &access.Web{Tokens: tokens, Registry: v.Registry, Secure: c.Secure(), Proxies: c.Trusted(), Costs: tokens.Costs}
	offered := handlers.Of(ctx, v.Services, *v.config.API, v.log, handlers.All)
	offered.Web, offered.Stops = web, ctx.Done()
	offered.Auth = auth.New(v.Registry, auth.Options{Keys: keys, Issuer: issuerOf(c.Base())})
	offered.Providers = oidc.New(providersOf(c), oidc.Options{Keys: keys, Base: c.Base(), Log: v.log})
	guard := access.Guard{}
	if name := c.Host(); name != "" {
		guard.Hosts = []string{name}
	} else if host, _, err := net.SplitHostPort(c.Addr); err == nil {
		guard.Hosts, guard.AnyHost = []string{host}, !open // TLS with a name that the certificate has
	}
	v.group.Go(func() error {
		plans.In(v.Registry).CarryAll(ctx, v.log)
		return nil
	})
	handler, _ := front.Handler(offered, guard, v.requests.Observed)
	v.group.Go(func() error { return serveUntil(ctx, handler, listener, v.log) })
	return nil
}

// A certificate is read again when its file was replaced. While that cannot be read, the one of before is
// shown.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	of   time.Time // of the file
	pair *tls.Certificate
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if info, err := os.Stat(c.cert); err == nil && !info.ModTime().Equal(c.of) {
		_ = c.read()
	}
	return c.pair, nil
}

func (c *certificate) read() error {
	info, err := os.Stat(c.cert)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.of, c.pair = info.ModTime(), &pair
	return nil
}

func providersOf(c *settings.Web) (list []oidc.Config) {
	for _, p := range c.Providers() {
		list = append(list, oidc.Config{
			Provider: auth.Provider{Name: p.Name, Institution: p.Institution, Domains: p.DomainList()},
			Issuer:   p.Issuer, ClientID: p.ClientID, Secret: p.CurrentSecret, TrustMFA: p.TrustMFA == "on",
		})
	}
	return list
}

// believed refuses to serve people as a role that the database does not believe: each of
// their changes would be on record as this role's.
func (v *server) believed(ctx context.Context) error {
	role, member, err := v.Registry.ActsForPeople(ctx)
	if err != nil {
		return err
	}
	if !member {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("the database role %s is no member of farol_web, so its records could not name the people who sign in", role),
			Next: "GRANT farol_web TO " + role + ", as docs/operators.md describes",
		}
	}
	return nil
}

// issuerOf is what apps for second factors show.
func issuerOf(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return "Farol"
	}
	return "Farol (" + u.Hostname() + ")"
}
