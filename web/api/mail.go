package api

import (
	"context"
	"net/http"

	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
)

type (
	mailPatch struct {
		Deletions    string `json:"deletions,omitempty" enum:"now,daily,never"`
		Restorations string `json:"restorations,omitempty" enum:"now,daily,never"`
		Fixity       string `json:"fixity,omitempty" enum:"now,daily,never" doc:"Fixity checks and repairs"`
		Problems     string `json:"problems,omitempty" enum:"now,daily,never" doc:"Items and the archive itself"`
	}
	forgotBody struct {
		Email string `json:"email" maxLength:"254"`
	}
	forgotView struct {
		Message string `json:"message" doc:"The same for every e-mail address"`
	}
)

// mails are what people are mailed.
func (a *API) mails(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "session.forgot", Secret: true, Method: post, Path: "/api/v1/forgotten-passwords", Summary: "Have a link mailed to set a new password", Access: ops.Anyone,
		Status: http.StatusAccepted, About: "The answer is the same, after the same time, whether or not a person has the e-mail address. Sessions stay until the link is used.",
	},
		func(ctx context.Context, c access.Caller, in *body[forgotBody]) (*body[forgotView], error) {
			err := a.Auth.Forgot(ctx, in.Body.Email, a.from(ctx, c))
			return &body[forgotView]{forgotView{"if an account has this e-mail address, a mail with a link to set a new password is on its way"}}, err
		})
	ops.Register(t, ops.Operation{ID: "me.mail", Method: get, Path: "/api/v1/me/mail", Summary: "Show when you get mail", Access: ops.SignedIn, Session: true},
		func(ctx context.Context, c access.Caller, _ *empty) (*body[people.MailSettings], error) {
			s, err := a.people().Mail(ctx, c.Person.ID)
			return &body[people.MailSettings]{s}, err
		})
	ops.Register(t, ops.Operation{
		ID: "me.set_mail", Method: patch, Path: "/api/v1/me/mail", Summary: "Change when you get mail", Access: ops.SignedIn, Session: true, Audit: true,
		About: "Alerts about the own account are always mailed at once.",
	},
		func(ctx context.Context, c access.Caller, in *body[mailPatch]) (*body[people.MailSettings], error) {
			s, err := a.Auth.SetMail(ctx, c.Person, people.MailSettings(in.Body), a.from(ctx, c))
			return &body[people.MailSettings]{s}, err
		})
}
