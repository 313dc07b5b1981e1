package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/permission"
)

// Names of the cookies. A browser sends a cookie whose name begins with __Host- only over
// TLS, and only to the host that has set it. Over HTTP on loopback there is no such thing.
const (
	CookieName = hostPrefix + sessionCookie

	hostPrefix     = "__Host-"
	sessionCookie  = "farol"
	deviceCookie   = "farol-device"
	providerCookie = "farol-provider"
)

// Web identifies who asks a server for people: by a token, or else by the cookie of a
// session. It is safe for concurrent use.
type Web struct {
	Tokens   *Tokens
	Registry *registry.Registry
	Secure   bool           // browsers come by TLS, here or at a proxy
	Proxies  []netip.Prefix // whose X-Forwarded-For is believed
	Costs    bool           // admins of institutions see their own costs
}

// Caller identifies who sends a request. One who is unknown is a [Caller] who may nothing;
// one whose token is not valid gets an [*Error]. With a token the cookie does not count.
func (w *Web) Caller(r *http.Request) (Caller, error) {
	var c Caller
	var err error
	if r.Header.Get("Authorization") != "" {
		c, err = w.Tokens.Caller(r)
	} else if secret := w.opened(r, sessionCookie, 200); secret != "" {
		c, err = w.session(r.Context(), secret)
	}
	c.IP = w.IP(r)
	return c, err
}

func (w *Web) session(ctx context.Context, secret string) (Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, p, err := people.In(w.Registry).SessionOf(ctx, secret)
	if errors.Is(err, registry.ErrNotFound) {
		return Caller{}, nil // it has ended; the person signs in again
	}
	if err != nil {
		return Caller{}, fmt.Errorf("look up the session: %w", err)
	}
	c := Caller{Person: p, Session: s, Rights: []string{}}
	if c.Full() {
		c.Scope, c.Permissions = p.Scope(), permission.Of(p.Role, p.InstitutionID != 0)
		if w.Costs && p.Role == registry.RoleInstitutionalAdmin {
			c.Permissions = append(c.Permissions, permission.ReportsCosts)
		}
	}
	return c, nil
}

// Cookie is what gives a browser its session.
func (w *Web) Cookie(secret string) *http.Cookie {
	return w.sealed(sessionCookie, secret, people.SessionTime)
}

// NoCookie takes a session from a browser.
func (w *Web) NoCookie() *http.Cookie { return w.sealed(sessionCookie, "", -time.Second) }

// DeviceCookie has a browser known that has signed in a person.
func (w *Web) DeviceCookie(value string) *http.Cookie {
	return w.sealed(deviceCookie, value, 180*24*time.Hour)
}

// Device is what a browser that has signed in a person shows; "": none.
func (w *Web) Device(r *http.Request) string { return w.opened(r, deviceCookie, 400) }

// ProviderCookie has a browser keep what belongs to a sign-in at an OpenID provider, while the
// person is there.
func (w *Web) ProviderCookie(value string, lasts time.Duration) *http.Cookie {
	return w.sealed(providerCookie, value, lasts)
}

// Provider is what a browser has kept of a sign-in at an OpenID provider; "": nothing.
func (w *Web) Provider(r *http.Request) string { return w.opened(r, providerCookie, 4<<10) }

// opened is the value of a cookie that has so many bytes at most; "": there is none.
func (w *Web) opened(r *http.Request, name string, most int) string {
	c, err := r.Cookie(w.named(name))
	if err != nil || len(c.Value) > most {
		return ""
	}
	return c.Value
}

// named is the name of a cookie. No other host of the domain can plant one with the prefix.
func (w *Web) named(name string) string {
	if w.Secure {
		return hostPrefix + name
	}
	return name
}

func (w *Web) sealed(name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure wherever browsers come by TLS; on loopback they would not send it
		Name: w.named(name), Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: w.Secure, SameSite: http.SameSiteLaxMode,
	}
}

// IP is the address of who sends a request. What a header says of it counts only where a
// proxy that is believed has sent it: the last address that is no such proxy.
func (w *Web) IP(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	hops := forwarded(r)
	for i := len(hops) - 1; i >= 0 && w.trusted(ip); i-- {
		before, err := netip.ParseAddr(hops[i])
		if err != nil {
			break
		}
		ip = before
	}
	return ip.Unmap().WithZone("")
}

func (w *Web) trusted(ip netip.Addr) bool {
	return slices.ContainsFunc(w.Proxies, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
}

// nextCookie has the page that a browser was led away from, to sign in.
const nextCookie = "farol-next"

// NextCookie has a browser keep the page that it asked for, until the person has signed in.
func (w *Web) NextCookie(page string) *http.Cookie {
	if len(page) > 1000 {
		page = "/"
	}
	return w.sealed(nextCookie, url.QueryEscape(page), 15*time.Minute)
}

// Next is the page that a browser asked for before the person signed in; "/" if there is
// none. It is of this server, whatever the cookie says.
func (w *Web) Next(r *http.Request) string {
	page, err := url.QueryUnescape(w.opened(r, nextCookie, 4000))
	if err != nil || !Local(page) {
		return "/"
	}
	return page
}

// Local reports whether an address is a path of this server, and leads nowhere else.
func Local(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(address, "/") &&
		!strings.HasPrefix(address, "//") && !strings.ContainsAny(address, "\\\r\n\t")
}

// SessionKey is a fingerprint of what gives a browser its session, by which a process can
// recognise it while the database does not answer; "": the browser has none.
func (w *Web) SessionKey(r *http.Request) string {
	secret := w.opened(r, sessionCookie, 200)
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:])
}
