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
	for route, v := range map[string]struct{ name, title string }{
		"GET /sign-in":          {"sign-in.html", "Sign in"},
		"GET /sign-in/{secret}": {"link.html", "Sign in"},
		"GET /forgot":           {"forgot.html", "Forgot your password?"},
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			p.show(w, r, http.StatusOK, v.name, page{Title: v.title})
		})
	}
	p.provided(mux)
	mux.HandleFunc("POST /forgot", p.posted(p.forgot))
	mux.HandleFunc("POST /sign-in", p.posted(p.signIn))
	mux.HandleFunc("POST /sign-in/{secret}", p.signInByLink)
	mux.HandleFunc("GET /password/{secret}", p.password)
	mux.HandleFunc("POST /password/{secret}", p.posted(p.setPassword))
	mux.HandleFunc("GET /second-factor", p.signedIn(p.factor))
	mux.HandleFunc("POST /second-factor", p.signedIn(p.giveCode))
	mux.HandleFunc("POST /second-factor/set-up", p.signedIn(p.setUpFactor))
	mux.HandleFunc("POST /sign-out", p.signOut)
	mux.HandleFunc("GET /second-factor/set-up", p.signedIn(p.newFactor))
	mux.HandleFunc("POST /second-factor/proof", p.signedIn(p.prove))
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

// posted reads the form for a handler, or answers that it cannot be read.
func (p *Pages) posted(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "The form could not be read. Go back and send it again.", http.StatusBadRequest)
			return
		}
		handle(w, r)
	}
}

// signedIn has a handler answer people who have a session, and sends others to sign in. It reads
// the form of a POST.
func (p *Pages) signedIn(handle func(http.ResponseWriter, *http.Request, access.Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := p.caller(r)
		if c.Session.ID == 0 {
			http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
			return
		}
		answer := func(w http.ResponseWriter, r *http.Request) { handle(w, r, c) }
		if r.Method == http.MethodPost {
			answer = p.posted(answer)
		}
		answer(w, r)
	}
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

// entered gives a browser its session and leads on, or shows what was wrong.
func (p *Pages) entered(w http.ResponseWriter, r *http.Request, s auth.SignedIn, wrong error) {
	if wrong != nil {
		p.judged(w, r, "sign-in.html", page{Title: "Sign in"}, wrong)
		return
	}
	p.cookies(w, s)
	next := p.Web.Next(r)
	if s.Next != "" {
		next = "/second-factor"
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (p *Pages) cookies(w http.ResponseWriter, s auth.SignedIn) {
	http.SetCookie(w, p.Web.Cookie(s.Secret))
	if s.Device != "" {
		http.SetCookie(w, p.Web.DeviceCookie(s.Device))
	}
}

var errLater = errors.New("you cannot sign in now; try again in a moment")

// judged shows a form, with what was wrong if anything was.
func (p *Pages) judged(w http.ResponseWriter, r *http.Request, name string, v page, err error) {
	if err == nil {
		p.show(w, r, http.StatusOK, name, v)
		return
	}
	var many *auth.TooMany
	status := http.StatusUnauthorized
	switch {
	case errors.Is(err, auth.ErrNoAccount):
		status = http.StatusForbidden
	case errors.Is(err, oidc.ErrVain), errors.Is(err, auth.ErrWeak):
		status = http.StatusBadRequest
	case errors.Is(err, oidc.ErrAway), errors.Is(err, auth.ErrBusy):
		status = http.StatusServiceUnavailable
	case errors.Is(err, auth.ErrLink):
		status = http.StatusGone
	case errors.As(err, &many):
		status = http.StatusTooManyRequests
	case !errors.Is(err, auth.ErrWrong):
		p.Log.WarnContext(r.Context(), "cannot sign a person in", "err", err)
		status, err = http.StatusServiceUnavailable, errLater
	}
	v.Error = strings.ToUpper(err.Error()[:1]) + err.Error()[1:] + "."
	p.show(w, r, status, name, v)
}

func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	s, err := p.Auth.SignIn(r.Context(), r.PostForm.Get("email"), r.PostForm.Get("password"), p.from(r))
	p.entered(w, r, s, err)
}

func (p *Pages) signInByLink(w http.ResponseWriter, r *http.Request) {
	s, err := p.Auth.SignInByLink(r.Context(), r.PathValue("secret"), p.from(r))
	p.entered(w, r, s, err)
}

// password shows whom a link is for, and leaves the link as it is.
func (p *Pages) password(w http.ResponseWriter, r *http.Request) {
	person, err := p.Auth.PersonOfLink(r.Context(), r.PathValue("secret"))
	if err != nil {
		p.entered(w, r, auth.SignedIn{}, err)
		return
	}
	p.show(w, r, http.StatusOK, "password.html", page{Title: "Set a password", Person: person})
}

func (p *Pages) setPassword(w http.ResponseWriter, r *http.Request) {
	v, secret := page{Title: "Set a password"}, r.PathValue("secret")
	s, err := p.Auth.SetPasswordByLink(r.Context(), secret, r.PostForm.Get("password"), p.from(r))
	if err == nil {
		p.entered(w, r, s, nil)
		return
	}
	name := "sign-in.html"
	if person, found := p.Auth.PersonOfLink(r.Context(), secret); found == nil {
		v.Person, name = person, "password.html"
	}
	p.judged(w, r, name, v, err)
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
