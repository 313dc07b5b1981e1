package accounts

import (
	"context"
	"net/http"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/ops"
)

// sessionView is a session as its browser sees it.
type sessionView struct {
	Email string `json:"email"`
	Level string `json:"level" enum:"password,full" doc:"password: a second factor is due"`
	Next  string `json:"next" enum:",second-factor,set-up-second-factor" doc:"What is due before anything else"`
}

// signedIn is an answer that gives a browser its cookies.
type signedIn struct {
	SetCookie []http.Cookie `header:"Set-Cookie"`
	Body      sessionView
}

func (a *handlers) signedIn(s auth.SignedIn) *signedIn {
	out := &signedIn{Body: sessionView{s.Person.Email, s.Level, s.Next}}
	out.SetCookie = a.cookies(s)
	return out
}

// signs is a handler of what begins a session, or gives it another secret.
func signs[B any](a *handlers, sign func(context.Context, access.Caller, B) (auth.SignedIn, error)) func(context.Context, access.Caller, *answer.Body[B]) (*signedIn, error) {
	return func(ctx context.Context, c access.Caller, in *answer.Body[B]) (*signedIn, error) {
		s, err := sign(ctx, c, in.Body)
		if err != nil {
			return nil, err
		}
		return a.signedIn(s), nil
	}
}

func (a *handlers) cookies(s auth.SignedIn) []http.Cookie {
	list := []http.Cookie{*a.Web.Cookie(s.Secret)}
	if s.Device != "" {
		list = append(list, *a.Web.DeviceCookie(s.Device))
	}
	return list
}

// ended is an answer that takes the cookie from a browser.
type ended struct {
	SetCookie []http.Cookie `header:"Set-Cookie"`
}

// secret is a text that is neither logged nor shown.
type (
	credentials struct {
		Email    string `json:"email" maxLength:"254"`
		Password string `json:"password" maxLength:"1024"`
	}
	codeBody struct {
		Code string `json:"code" maxLength:"100" doc:"Six digits of the second factor, or a recovery code"`
	}
	proofBody struct {
		Proof string `json:"proof" maxLength:"1024" doc:"A code of the second factor; without one, the password"`
	}
	linkBody struct {
		Secret string `json:"secret" maxLength:"200" doc:"Last part of the link"`
	}
	linkPassword struct {
		Secret   string `json:"secret" maxLength:"200" doc:"Last part of the link"`
		Password string `json:"password" maxLength:"1024" doc:"New password, 12 to 128 characters"`
	}
	linkView struct {
		Email string `json:"email"`
		Name  string `json:"name"`
	}
)

// sessions are signing in and out.
func (a *handlers) sessions(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "session.begin", Secret: true, Method: http.MethodPost, Path: "/api/v1/session", Summary: "Sign in with a password", Access: ops.Anyone,
		About: "Sets the cookie of a session. With a second factor the session may do nothing until its code is given.",
	},
		signs(a, func(ctx context.Context, c access.Caller, in credentials) (auth.SignedIn, error) {
			return a.Auth.SignIn(ctx, in.Email, in.Password, a.From(ctx, c))
		}))
	ops.Register(t, ops.Operation{ID: "session.show", Method: http.MethodGet, Path: "/api/v1/session", Summary: "Show this session", Access: ops.Half, Session: true},
		func(_ context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[sessionView], error) {
			return answer.Of(viewOf(c)), nil
		})
	ops.Register(t, ops.Operation{ID: "session.end", Method: http.MethodDelete, Path: "/api/v1/session", Summary: "Sign out", Access: ops.Half, Session: true, Status: http.StatusNoContent},
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*ended, error) {
			_, err := a.People().EndSession(ctx, c.Person.ID, c.Session.ID)
			return &ended{[]http.Cookie{*a.Web.NoCookie()}}, err
		})
	ops.Register(t, ops.Operation{
		ID: "session.factor", Secret: true, Method: http.MethodPost, Path: "/api/v1/session/factor", Summary: "Give a code of the second factor", Access: ops.Half, Session: true,
		About: "A code is good once. The session gets another cookie.",
	},
		signs(a, func(ctx context.Context, c access.Caller, in codeBody) (auth.SignedIn, error) {
			return a.Auth.Factor(ctx, c.Session, in.Code, a.From(ctx, c))
		}))
	ops.Register(t, ops.Operation{
		ID: "session.proof", Secret: true, Method: http.MethodPost, Path: "/api/v1/session/proof", Summary: "Prove once more who you are", Access: ops.SignedIn, Session: true,
		About: "Some operations need a proof of the last ten minutes. The session gets another cookie.",
	},
		signs(a, func(ctx context.Context, c access.Caller, in proofBody) (auth.SignedIn, error) {
			return a.Auth.Prove(ctx, c.Session, in.Proof, a.From(ctx, c))
		}))
	a.links(t)
}

func (a *handlers) links(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "link.show", Secret: true, Method: http.MethodPost, Path: "/api/v1/password-links/show", Summary: "Show whom a link to set a password is for", Access: ops.Anyone, Answers: []int{http.StatusGone},
		About: "The link stays as it is.",
	},
		func(ctx context.Context, _ access.Caller, in *answer.Body[linkBody]) (*answer.Body[linkView], error) {
			p, err := a.Auth.PersonOfLink(ctx, in.Body.Secret)
			return answer.Of(linkView{p.Email, p.Name}), err
		})
	ops.Register(t, ops.Operation{
		ID: "link.use", Secret: true, Method: http.MethodPost, Path: "/api/v1/password-links/use", Summary: "Set a password by a link", Access: ops.Anyone, Answers: []int{http.StatusGone},
		About: "The link is good once. A session begins, in which a second factor may still be due.",
	},
		signs(a, func(ctx context.Context, c access.Caller, in linkPassword) (auth.SignedIn, error) {
			return a.Auth.SetPasswordByLink(ctx, in.Secret, in.Password, a.From(ctx, c))
		}))
	ops.Register(t, ops.Operation{
		ID: "link.sign_in", Secret: true, Method: http.MethodPost, Path: "/api/v1/sign-in-links/use", Summary: "Sign in by a link of this machine", Access: ops.Anyone, Answers: []int{http.StatusGone},
		About: "Only the one-machine stack makes such links.",
	},
		signs(a, func(ctx context.Context, c access.Caller, in linkBody) (auth.SignedIn, error) {
			return a.Auth.SignInByLink(ctx, in.Secret, a.From(ctx, c))
		}))
}

func viewOf(c access.Caller) sessionView {
	v := sessionView{Email: c.Person.Email, Level: c.Session.Level}
	switch {
	case c.Full():
	case c.Person.Strong():
		v.Next = auth.NextFactor
	default:
		v.Next = auth.NextSetUp
	}
	return v
}
