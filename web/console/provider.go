package console

import (
	"net/http"
	"time"

	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
)

// startedCookie is what a browser keeps while a person is at an OpenID provider.
const startedCookie = "farol-provider"

// provided are the pages of signing in by an OpenID provider.
func (p *Pages) provided(mux *http.ServeMux) {
	mux.HandleFunc("GET "+oidc.Path("{name}"), p.toProvider)
	mux.HandleFunc("GET "+oidc.Path("{name}")+"/callback", p.fromProvider)
}

// toProvider sends a browser to an OpenID provider. It changes nothing here, and is a link
// since the policy of the pages lets forms lead to this server only.
func (p *Pages) toProvider(w http.ResponseWriter, r *http.Request) {
	to, cookie, err := p.Providers.Begin(r.Context(), r.PathValue("name"), r.URL.Query().Has("again"))
	if err != nil {
		p.refused(w, r, "sign-in.html", page{Title: "Sign in"}, err)
		return
	}
	http.SetCookie(w, p.started(r, cookie, oidc.Lifetime))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // to the provider that is set up
}

// fromProvider signs in a person whom an OpenID provider has sent back. It leads to a page
// of its own choice: no parameter says where.
func (p *Pages) fromProvider(w http.ResponseWriter, r *http.Request) {
	name, from := r.PathValue("name"), p.from(r)
	cookie, err := r.Cookie(startedCookie)
	if err != nil {
		cookie = &http.Cookie{}
	}
	http.SetCookie(w, p.started(r, "", -time.Second))
	s, err := p.signInBy(r, name, cookie.Value, from)
	if err != nil {
		p.refused(w, r, "sign-in.html", page{Title: "Sign in"}, err)
		return
	}
	p.entered(w, r, s)
}

func (p *Pages) signInBy(r *http.Request, name, cookie string, from auth.From) (auth.SignedIn, error) {
	if err := p.Auth.Attempt(from.IP); err != nil {
		return auth.SignedIn{}, err
	}
	said, err := p.Providers.End(r.Context(), name, cookie, r.URL.Query())
	if err != nil {
		return auth.SignedIn{}, err
	}
	c, _ := p.Providers.Named(name)
	return p.Auth.SignInByProvider(r.Context(), c.Provider, said, from)
}

// started is the cookie of a sign-in in progress. It comes back from another site, by a link.
func (p *Pages) started(r *http.Request, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure wherever browsers come by TLS; on loopback they would not send it
		Name: startedCookie, Value: value, Path: oidc.Path(r.PathValue("name")), MaxAge: int(lasts.Seconds()), HttpOnly: true,
		Secure: p.Web.Secure, SameSite: http.SameSiteLaxMode,
	}
}
