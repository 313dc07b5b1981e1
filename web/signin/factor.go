package signin

import (
	"net/http"

	"github.com/farol-preservation/farol/web/access"
)

// factor asks for a code, or offers a second factor to a person who has none.
func (p *Pages) factor(w http.ResponseWriter, r *http.Request, c access.Caller) {
	p.askForCode(w, r, c, nil)
}

func (p *Pages) giveCode(w http.ResponseWriter, r *http.Request, c access.Caller) {
	s, err := p.Auth.Factor(r.Context(), c.Session, r.PostForm.Get("code"), p.from(r))
	if err != nil {
		p.askForCode(w, r, c, err)
		return
	}
	p.entered(w, r, s, nil)
}

func (p *Pages) setUpFactor(w http.ResponseWriter, r *http.Request, c access.Caller) {
	s, codes, err := p.Auth.ConfirmFactor(r.Context(), c.Session, r.PostForm.Get("pending"), r.PostForm.Get("code"), p.from(r))
	switch {
	case err != nil && c.Full():
		p.offerFactor(w, r, c, err)
		return
	case err != nil:
		p.askForCode(w, r, c, err)
		return
	}
	p.cookies(w, s)
	p.show(w, r, http.StatusOK, "codes.html", page{Title: "Recovery codes", Person: c.Person, Codes: codes})
}

// askForCode asks for what is due: a code, or to set up the second factor that it is of.
func (p *Pages) askForCode(w http.ResponseWriter, r *http.Request, c access.Caller, wrong error) {
	if !c.Person.Strong() {
		p.offerFactor(w, r, c, wrong)
		return
	}
	p.judged(w, r, "code.html", page{Title: "Second factor", Person: c.Person}, wrong)
}

// offerFactor offers a second factor. Nothing is changed before a code of it is sent.
func (p *Pages) offerFactor(w http.ResponseWriter, r *http.Request, c access.Caller, wrong error) {
	v := page{Title: "Second factor", Person: c.Person}
	offer, err := p.Auth.SetUpFactor(c.Person)
	if err == nil {
		v.SetUp = offer
		v.QR, err = qrSVG(offer.URL)
	}
	if err != nil {
		p.Log.ErrorContext(r.Context(), "cannot offer a second factor", "err", err)
	}
	p.judged(w, r, "set-up.html", v, wrong)
}

// newFactor offers a person who has signed in another second factor, after a fresh proof.
func (p *Pages) newFactor(w http.ResponseWriter, r *http.Request, c access.Caller) {
	switch {
	case !c.Full():
		http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
	case !c.Session.Fresh:
		p.show(w, r, http.StatusOK, "prove.html", page{Title: "Prove once more who you are", Person: c.Person})
	default:
		p.offerFactor(w, r, c, nil)
	}
}

// prove takes the fresh proof for another second factor.
func (p *Pages) prove(w http.ResponseWriter, r *http.Request, c access.Caller) {
	s, err := p.Auth.Prove(r.Context(), c.Session, r.PostForm.Get("proof"), p.from(r))
	if err != nil {
		p.judged(w, r, "prove.html", page{Title: "Prove once more who you are", Person: c.Person}, err)
		return
	}
	p.cookies(w, s)
	http.Redirect(w, r, "/second-factor/set-up", http.StatusSeeOther)
}
