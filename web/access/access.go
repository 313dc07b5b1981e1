// Package access finds out who sends an HTTP request, and what they may do.
package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/limit"
	"github.com/farol-preservation/farol/web/permission"
)

// Caller is who sends a request, and what they may do.
type Caller struct {
	Name        string           // of the token; "" without one
	TokenID     int64            // 0: without one
	Institution string           // identifier; "": all
	Rights      []string         // post, pull and lease; nil: all
	Stages      []registry.Stage // that may be leased; nil: all that are processed over HTTP

	// For the REST API.
	Person      people.Person           // who has signed in, or whose personal token it is; ID 0: none
	Session     record.Session          // ID 0: none
	Permissions []permission.Permission // of the person or the token
	Scope       registry.Scope
	IP          netip.Addr

	// Operator says that this is no request of the network, but a command with the registry's own
	// URL: it may everything, for a person who decided on paper too, and the database knows whose
	// command it is.
	Operator bool
	OnPaper  string // where and when the person decided
}

// Operator is the caller of a command. of is the person for whom it acts; the zero Person is
// nobody.
func Operator(of people.Person, onPaper string) Caller {
	return Caller{Person: of, Permissions: permission.All(), Scope: registry.Everything(), Operator: true, OnPaper: onPaper}
}

// ID names the caller among all others: the person or service, or else the address. Who has
// shown a password only is not yet the person, and uses up nothing of what the person has.
func (c Caller) ID() string {
	switch {
	case c.Operator:
		return "operator"
	case c.TokenID != 0:
		return "token " + strconv.FormatInt(c.TokenID, 10)
	case c.Full():
		return "user " + strconv.FormatInt(c.Person.ID, 10)
	}
	return limit.Address(c.IP)
}

// Holds reports whether the caller has a permission.
func (c Caller) Holds(p permission.Permission) bool { return slices.Contains(c.Permissions, p) }

// Operates reports whether the caller sees of all institutions only what concerns the staff
// and the machinery.
func (c Caller) Operates() bool { return c.Person.Role == registry.RoleOperator }

// Browser reports whether a person asks with a browser, and no program with a token.
func (c Caller) Browser() bool { return c.Session.ID != 0 }

// Full reports whether the session of the caller may do everything that the person may.
func (c Caller) Full() bool { return c.Session.Level == people.LevelFull }

// Known reports whether the REST API knows the caller: a person, or a service with
// permissions.
func (c Caller) Known() bool { return c.Person.ID != 0 || len(c.Permissions) > 0 }

// Actor is the caller as the registry records who acts.
func (c Caller) Actor() registry.Actor {
	if c.Operator {
		return registry.Actor{}
	}
	a := registry.Actor{Name: c.Person.Email, UserID: c.Person.ID, TokenID: c.TokenID, IP: c.IP}
	if a.UserID == 0 && c.Name != "" {
		a.Name = "token " + c.Name
	}
	return a
}

// Share names who shares in a limited resource: the token, or without one the address.
func (c Caller) Share(r *http.Request) string {
	if c.Name != "" {
		return "token " + c.Name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// May reports whether the caller has a right.
func (c Caller) May(right string) bool { return c.Rights == nil || slices.Contains(c.Rights, right) }

// MayProcess reports whether the caller may have items at a stage.
func (c Caller) MayProcess(stage registry.Stage) bool {
	return c.Stages == nil || slices.Contains(c.Stages, stage)
}

// MaySee reports whether the caller may know of an institution's items.
func (c Caller) MaySee(institution string) bool {
	return c.Institution == "" || c.Institution == institution
}

// Error says why a request is refused.
type Error struct {
	Status int // of HTTP: 401 or 403
	Reason string
}

// Error is the reason.
func (e *Error) Error() string { return e.Reason }

// Tokens identifies callers by their bearer tokens (RFC 6750). It is safe for
// concurrent use.
type Tokens struct {
	Costs bool // admins of institutions see their own costs

	registry *registry.Registry
	open     bool // without a token, programs of this machine may do everything

	mu     sync.Mutex
	cached map[string]cachedCaller // by secret
}

type cachedCaller struct {
	caller Caller
	until  time.Time
}

const (
	// cacheTime is how long a revoked token still works in a process that has just
	// seen it.
	cacheTime  = 2 * time.Second
	mostCached = 1000

	callTimeout = 10 * time.Second
)

//nolint:errname // it is a value, but for Go
var errInvalid = &Error{http.StatusUnauthorized, "the token is not valid or has expired"}

// NewTokens identifies callers by the tokens in the registry. With open, a request
// without a token may do everything if it looks as if a program of this machine sent
// it on purpose; that is for servers that listen on loopback only.
func NewTokens(r *registry.Registry, open bool) *Tokens {
	return &Tokens{registry: r, open: open, cached: map[string]cachedCaller{}}
}

// Caller identifies who sends a request. A caller who is refused gets an [*Error].
func (a *Tokens) Caller(r *http.Request) (Caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return a.anonymous(r)
	}
	scheme, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > 200 {
		return Caller{}, &Error{http.StatusUnauthorized, "the header Authorization must be: Bearer and a token"}
	}
	a.mu.Lock()
	k, ok := a.cached[secret]
	a.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.caller, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	t, err := a.registry.TokenOf(ctx, secret)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return Caller{}, errInvalid
	case err != nil:
		return Caller{}, fmt.Errorf("look up the token: %w", err)
	}
	c, err := a.callerOf(ctx, t)
	if err != nil {
		return Caller{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cached) >= mostCached {
		clear(a.cached)
	}
	until := time.Now().Add(cacheTime)
	if t.ExpiresAt != nil && t.ExpiresAt.Before(until) {
		until = *t.ExpiresAt
	}
	a.cached[secret] = cachedCaller{c, until}
	return c, nil
}

// callerOf is whom a token stands for. A personal token may what it names and its person
// still may; with the person it ends. That of a service may nothing with the REST API while
// its institution is deactivated.
func (a *Tokens) callerOf(ctx context.Context, t record.Token) (Caller, error) {
	c := Caller{Name: t.Name, TokenID: t.ID, Institution: t.Institution, Rights: append([]string{}, t.Rights...), Scope: registry.Everything()}
	if len(t.Stages) > 0 {
		c.Stages = t.Stages
	}
	may, admin := permission.All(), t.Institution != ""
	switch {
	case t.UserID != 0:
		p, err := people.In(a.registry).ByID(ctx, t.UserID)
		if errors.Is(err, registry.ErrNotFound) || err == nil && !p.Active {
			return Caller{}, errInvalid
		}
		if err != nil {
			return Caller{}, err
		}
		c.Person, c.Scope, may = p, p.Scope(), permission.Of(p.Role, p.InstitutionID != 0)
		admin = p.Role == registry.RoleInstitutionalAdmin
	case t.Institution != "":
		in, err := a.registry.Institution(ctx, t.Institution)
		if err != nil {
			return Caller{}, err
		}
		if in.State == "D" {
			c.Scope = registry.Scope{}
			return c, nil
		}
		c.Scope, may = registry.Only(in), permission.Of(registry.RoleInstitutionalAdmin, true)
	}
	if a.Costs && admin {
		may = append(may, permission.ReportsCosts)
	}
	for _, p := range may {
		if slices.Contains(t.Permissions, string(p)) {
			c.Permissions = append(c.Permissions, p)
		}
	}
	return c, nil
}

// anonymous identifies a caller without a token. A page in a browser on this machine
// can send requests to loopback too, but those name their origin, or another host.
func (a *Tokens) anonymous(r *http.Request) (Caller, error) {
	if !a.open {
		return Caller{}, &Error{http.StatusUnauthorized, "a token is needed: send the header Authorization: Bearer TOKEN; people make their own on the page Account, and staff makes those of services"}
	}
	if from := r.Header.Get("Origin"); from != "" && !isLoopback(hostOf(from)) || r.Header.Get("Sec-Fetch-Site") == "cross-site" || !isLoopback(r.Host) {
		return Caller{}, &Error{http.StatusForbidden, "without a token only programs on this machine are allowed, under a name such as localhost"}
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

// isLoopback reports whether a host, with or without a port, is a loopback address
// or localhost.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
