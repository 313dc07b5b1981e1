// Package signin has the pages on which people sign in.
package signin

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
)

//go:embed *.html
var files embed.FS

// mostForm is how large a form may be. How long it may take is bounded for every request.
const mostForm = 16 << 10

// Pages are those of a server for people.
type Pages struct {
	Auth *auth.Auth
	Web  *access.Web
	Log  *slog.Logger

	Providers *oidc.Providers // nil: people sign in with a password only
	Style     string          // address of the stylesheet

	templates *template.Template
}

// page is what a template shows.
type page struct {
	Title  string
	Error  string // a sentence for the person; "": none
	Person people.Person
	SetUp  auth.SetUp
	QR     template.HTML
	Codes  []string // recovery codes

	Style     string
	Providers []oidc.Button // that sign people in
	Provider  string        // that has signed this person in
	Note      string        // what was done
}

// Routes adds the pages to a mux.
func (p *Pages) Routes(mux *http.ServeMux) {
	p.templates = template.Must(template.ParseFS(files, "*.html"))
	mux.HandleFunc("GET /sign-in", func(w http.ResponseWriter, r *http.Request) {
		p.show(w, r, http.StatusOK, "sign-in.html", page{Title: "Sign in"})
	})
	p.provided(mux)
	mux.HandleFunc("GET /forgot", func(w http.ResponseWriter, r *http.Request) {
		p.show(w, r, http.StatusOK, "forgot.html", page{Title: "Forgot your password?"})
	})
	mux.HandleFunc("POST /forgot", p.forgot)
	mux.HandleFunc("POST /sign-in", p.signIn)
	mux.HandleFunc("GET /sign-in/{secret}", func(w http.ResponseWriter, r *http.Request) {
		p.show(w, r, http.StatusOK, "link.html", page{Title: "Sign in"})
	})
	mux.HandleFunc("POST /sign-in/{secret}", p.signInByLink)
	mux.HandleFunc("GET /password/{secret}", p.password)
	mux.HandleFunc("POST /password/{secret}", p.setPassword)
	mux.HandleFunc("GET /second-factor", p.factor)
	mux.HandleFunc("POST /second-factor", p.giveCode)
	mux.HandleFunc("POST /second-factor/set-up", p.setUpFactor)
	mux.HandleFunc("POST /sign-out", p.signOut)
	mux.HandleFunc("GET /second-factor/set-up", p.newFactor)
	mux.HandleFunc("POST /second-factor/proof", p.prove)
	mux.HandleFunc("GET /accessibility", func(w http.ResponseWriter, r *http.Request) {
		p.show(w, r, http.StatusOK, "accessibility.html", page{Title: "Accessibility", Person: p.caller(r).Person})
	})
}

// show writes a page. It is made whole before, so that a page is never cut by an error.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, status int, name string, v page) {
	var b bytes.Buffer
	v.Providers, v.Style = p.Providers.Buttons(), p.Style
	if err := p.templates.ExecuteTemplate(&b, name, v); err != nil {
		p.Log.ErrorContext(r.Context(), "cannot make a page", "page", name, "err", err)
		http.Error(w, "Farol cannot show this page now. Try again in a moment.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := b.WriteTo(w); err != nil {
		p.Log.DebugContext(r.Context(), "a page was not read to its end", "err", err)
	}
}

// form reads a form, or answers that it cannot be read.
func (p *Pages) form(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form could not be read. Go back and send it again.", http.StatusBadRequest)
		return false
	}
	return true
}

// caller is who asks; nobody if that cannot be found out.
func (p *Pages) caller(r *http.Request) access.Caller {
	if r.Header.Get("Authorization") != "" {
		return access.Caller{IP: p.Web.IP(r)} // pages are for browsers
	}
	c, err := p.Web.Caller(r)
	if err != nil {
		p.Log.WarnContext(r.Context(), "cannot find out who asks for a page; the person has to sign in", "err", err)
	}
	return c
}

func (p *Pages) from(r *http.Request) auth.From {
	return auth.From{IP: p.Web.IP(r), Agent: r.UserAgent(), Device: p.Web.Device(r), Session: p.caller(r).Session}
}

// entered gives a browser its session, and leads on.
func (p *Pages) entered(w http.ResponseWriter, r *http.Request, s auth.SignedIn) {
	p.cookies(w, s)
	next := p.Web.Next(r)
	if s.Next != "" {
		next = "/second-factor"
	}
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // to a path of this server: access.Local
}

func (p *Pages) cookies(w http.ResponseWriter, s auth.SignedIn) {
	http.SetCookie(w, p.Web.Cookie(s.Secret))
	if s.Device != "" {
		http.SetCookie(w, p.Web.DeviceCookie(s.Device))
	}
}

var errLater = errors.New("you cannot sign in now; try again in a moment")

// refused shows a form again with what was wrong.
func (p *Pages) refused(w http.ResponseWriter, r *http.Request, name string, v page, err error) {
	var many *auth.TooMany
	status := http.StatusUnauthorized
	switch {
	case errors.Is(err, auth.ErrNoAccount):
		status = http.StatusForbidden
	case errors.Is(err, oidc.ErrVain):
		status = http.StatusBadRequest
	case errors.Is(err, oidc.ErrAway):
		status = http.StatusServiceUnavailable
	case errors.Is(err, auth.ErrWeak):
		status = http.StatusBadRequest
	case errors.Is(err, auth.ErrLink):
		status = http.StatusGone
	case errors.As(err, &many):
		status = http.StatusTooManyRequests
	case errors.Is(err, auth.ErrBusy):
		status = http.StatusServiceUnavailable
	case !errors.Is(err, auth.ErrWrong):
		p.Log.WarnContext(r.Context(), "cannot sign a person in", "err", err)
		status, err = http.StatusServiceUnavailable, errLater
	}
	v.Error = strings.ToUpper(err.Error()[:1]) + err.Error()[1:] + "."
	p.show(w, r, status, name, v)
}

func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	s, err := p.Auth.SignIn(r.Context(), r.PostForm.Get("email"), r.PostForm.Get("password"), p.from(r))
	if err != nil {
		p.refused(w, r, "sign-in.html", page{Title: "Sign in"}, err)
		return
	}
	p.entered(w, r, s)
}

func (p *Pages) signInByLink(w http.ResponseWriter, r *http.Request) {
	s, err := p.Auth.SignInByLink(r.Context(), r.PathValue("secret"), p.from(r))
	if err != nil {
		p.refused(w, r, "sign-in.html", page{Title: "Sign in"}, err)
		return
	}
	p.entered(w, r, s)
}

// password shows whom a link is for, and leaves the link as it is.
func (p *Pages) password(w http.ResponseWriter, r *http.Request) {
	person, err := p.Auth.PersonOfLink(r.Context(), r.PathValue("secret"))
	if err != nil {
		p.refused(w, r, "sign-in.html", page{Title: "Sign in"}, err)
		return
	}
	p.show(w, r, http.StatusOK, "password.html", page{Title: "Set a password", Person: person})
}

func (p *Pages) setPassword(w http.ResponseWriter, r *http.Request) {
	if !p.form(w, r) {
		return
	}
	v, secret := page{Title: "Set a password"}, r.PathValue("secret")
	s, err := p.Auth.SetPasswordByLink(r.Context(), secret, r.PostForm.Get("password"), p.from(r))
	if err == nil {
		p.entered(w, r, s)
		return
	}
	name := "sign-in.html"
	if person, found := p.Auth.PersonOfLink(r.Context(), secret); found == nil {
		v.Person, name = person, "password.html"
	}
	p.refused(w, r, name, v, err)
}

// factor asks for a code, or offers a second factor to a person who has none.
func (p *Pages) factor(w http.ResponseWriter, r *http.Request) {
	c := p.caller(r)
	if c.Session.ID == 0 {
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		return
	}
	p.askForCode(r.Context(), w, r, c, nil)
}

func (p *Pages) giveCode(w http.ResponseWriter, r *http.Request) {
	c := p.caller(r)
	if c.Session.ID == 0 {
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		return
	}
	if !p.form(w, r) {
		return
	}
	s, err := p.Auth.Factor(r.Context(), c.Session, r.PostForm.Get("code"), p.from(r))
	if err != nil {
		p.askForCode(r.Context(), w, r, c, err)
		return
	}
	p.entered(w, r, s)
}

func (p *Pages) setUpFactor(w http.ResponseWriter, r *http.Request) {
	c := p.caller(r)
	if c.Session.ID == 0 {
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		return
	}
	if !p.form(w, r) {
		return
	}
	s, codes, err := p.Auth.ConfirmFactor(r.Context(), c.Session, r.PostForm.Get("pending"), r.PostForm.Get("code"), p.from(r))
	switch {
	case err != nil && c.Full():
		p.offerFactor(r.Context(), w, r, c, err)
		return
	case err != nil:
		p.askForCode(r.Context(), w, r, c, err)
		return
	}
	p.cookies(w, s)
	p.show(w, r, http.StatusOK, "codes.html", page{Title: "Recovery codes", Person: c.Person, Codes: codes})
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	if c := p.caller(r); c.Session.ID != 0 {
		if err := p.Auth.SignOut(r.Context(), c.Session); err != nil {
			p.Log.WarnContext(r.Context(), "cannot end a session; its cookie is deleted", "err", err)
		}
	}
	http.SetCookie(w, p.Web.NoCookie())
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}
