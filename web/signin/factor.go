package signin

import (
	"context"
	"net/http"

	"github.com/farol-preservation/farol/web/access"
)

// askForCode asks for what is due: a code, or to set up the second factor that it is of.
func (p *Pages) askForCode(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller, wrong error) {
	if !c.Person.Strong() {
		p.offerFactor(ctx, w, r, c, wrong)
		return
	}
	v := page{Title: "Second factor", Person: c.Person}
	if wrong != nil {
		p.refused(w, r, "code.html", v, wrong)
		return
	}
	p.show(w, r, http.StatusOK, "code.html", v)
}

// offerFactor offers a second factor. Nothing is changed before a code of it is sent.
func (p *Pages) offerFactor(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller, wrong error) {
	v := page{Title: "Second factor", Person: c.Person}
	offer, err := p.Auth.SetUpFactor(c.Person)
	if err == nil {
		v.SetUp = offer
		v.QR, err = qrSVG(offer.URL)
	}
	if err != nil {
		p.Log.ErrorContext(ctx, "cannot offer a second factor", "err", err)
	}
	if wrong != nil {
		p.refused(w, r, "set-up.html", v, wrong)
		return
	}
	p.show(w, r, http.StatusOK, "set-up.html", v)
}

// newFactor offers a person who has signed in another second factor, after a fresh proof.
func (p *Pages) newFactor(w http.ResponseWriter, r *http.Request) {
	switch c := p.caller(r); {
	case c.Session.ID == 0:
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	case !c.Full():
		http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
	case !c.Session.Fresh:
		p.show(w, r, http.StatusOK, "prove.html", page{Title: "Prove once more who you are", Person: c.Person})
	default:
		p.offerFactor(r.Context(), w, r, c, nil)
	}
}

// prove takes the fresh proof for another second factor.
func (p *Pages) prove(w http.ResponseWriter, r *http.Request) {
	c := p.caller(r)
	if c.Session.ID == 0 {
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		return
	}
	if !p.form(w, r) {
		return
	}
	s, err := p.Auth.Prove(r.Context(), c.Session, r.PostForm.Get("proof"), p.from(r))
	if err != nil {
		p.refused(w, r, "prove.html", page{Title: "Prove once more who you are", Person: c.Person}, err)
		return
	}
	p.cookies(w, s)
	http.Redirect(w, r, "/second-factor/set-up", http.StatusSeeOther)
}
