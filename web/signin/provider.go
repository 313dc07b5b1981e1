package signin

import (
	"net/http"
	"time"

	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
)

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
		p.entered(w, r, auth.SignedIn{}, err)
		return
	}
	http.SetCookie(w, p.Web.ProviderCookie(cookie, oidc.Lifetime))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // to the provider that is set up
}

// fromProvider signs in a person whom an OpenID provider has sent back. It leads to a page
// of its own choice: no parameter says where.
func (p *Pages) fromProvider(w http.ResponseWriter, r *http.Request) {
	name, from := r.PathValue("name"), p.from(r)
	http.SetCookie(w, p.Web.ProviderCookie("", -time.Second))
	s, err := p.signInBy(r, name, p.Web.Provider(r), from)
	p.entered(w, r, s, err)
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
