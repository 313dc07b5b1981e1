package signin

import (
	"errors"
	"net/http"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
)

// account are the pages of the own account, and of a forgotten password.
func (p *Pages) account(mux *http.ServeMux) {
	mux.HandleFunc("GET /forgot", func(w http.ResponseWriter, r *http.Request) {
		p.show(w, r, http.StatusOK, "forgot.html", page{Title: "Forgot your password?"})
	})
	mux.HandleFunc("POST /forgot", p.forgot)
	mux.HandleFunc("GET /account", p.showAccount)
	mux.HandleFunc("GET /account/mail", p.showAccount) // where mails lead
	mux.HandleFunc("POST /account/mail", p.setMail)
}

// mailOnItsWay is shown whether or not a person has the address.
const mailOnItsWay = "If an account has this e-mail address, a mail with a link to set a new password is on its way. The link is good for an hour. " +
	"If no mail comes, ask an administrator of your institution, or the archive's staff."

func (p *Pages) forgot(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	v := page{Title: "Forgot your password?"}
	if err := p.Auth.Forgot(r.Context(), r.PostForm.Get("email"), p.from(r)); err != nil {
		p.refused(w, r, "forgot.html", v, err)
		return
	}
	v.Note = mailOnItsWay
	p.show(w, r, http.StatusOK, "forgot.html", v)
}

// signedIn is the person who asks for a page; others are led to sign in.
func (p *Pages) signedIn(w http.ResponseWriter, r *http.Request) (access.Caller, bool) {
	c := p.caller(r)
	switch {
	case c.Session.ID == 0:
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	case !c.Full():
		http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
	default:
		return c, true
	}
	return c, false
}

func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request) {
	if c, ok := p.signedIn(w, r); ok {
		p.accountPage(w, r, c, "")
	}
}

func (p *Pages) accountPage(w http.ResponseWriter, r *http.Request, c access.Caller, note string) {
	v := page{Title: "Your account", Person: c.Person, Note: note}
	var err error
	if v.Mail, err = p.People.Mail(r.Context(), c.Person.ID); err != nil {
		p.Log.WarnContext(r.Context(), "cannot read the mail settings of a person", "err", err)
		v.Error = "Your mail settings cannot be shown now. Try again in a moment."
	}
	p.show(w, r, http.StatusOK, "account.html", v)
}

func (p *Pages) setMail(w http.ResponseWriter, r *http.Request) {
	c, ok := p.signedIn(w, r)
	if !ok || !p.form(w, r) {
		return
	}
	wanted := people.MailSettings{
		Deletions: r.PostForm.Get("deletions"), Restorations: r.PostForm.Get("restorations"), Fixity: r.PostForm.Get("fixity"), Problems: r.PostForm.Get("problems"),
	}
	if _, err := p.Auth.SetMail(r.Context(), c.Person, wanted, p.from(r)); err != nil {
		status := http.StatusBadRequest
		if !errors.Is(err, registry.ErrRefused) {
			p.Log.WarnContext(r.Context(), "cannot change the mail settings of a person", "err", err)
			status = http.StatusServiceUnavailable
		}
		http.Error(w, "Your mail settings were not changed. Go back and send them again.", status)
		return
	}
	p.accountPage(w, r, c, "Your mail settings are changed.")
}

// choice is a kind of mail with what a person has chosen.
type choice struct {
	Field, About, Value string
	Values              []string
}

// Choices are the kinds of mail, for the template.
func (v page) Choices() []choice {
	var list []choice
	for _, k := range []struct{ field, about, value string }{
		{"deletions", "Deletions", v.Mail.Deletions},
		{"restorations", "Restorations", v.Mail.Restorations},
		{"fixity", "Fixity checks", v.Mail.Fixity},
		{"problems", "Problems with items and the archive", v.Mail.Problems},
	} {
		list = append(list, choice{k.field, k.about, k.value, people.MailTimes()})
	}
	return list
}
