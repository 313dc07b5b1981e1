package accounts

import (
	"context"
	"net/http"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/outbox"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
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
func (a *handlers) mails(t *ops.API) {
	ops.Register(t, ops.Operation{
		ID: "session.forgot", Secret: true, Method: http.MethodPost, Path: "/api/v1/forgotten-passwords", Summary: "Have a link mailed to set a new password", Access: ops.Anyone,
		Status: http.StatusAccepted, About: "The answer is the same, after the same time, whether or not a person has the e-mail address. Sessions stay until the link is used.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[forgotBody]) (*answer.Body[forgotView], error) {
			err := a.Auth.Forgot(ctx, in.Body.Email, a.From(ctx, c))
			return answer.Of(forgotView{"if an account has this e-mail address, a mail with a link to set a new password is on its way"}), err
		})
	ops.Register(t, ops.Operation{ID: "me.mail", Method: http.MethodGet, Path: "/api/v1/me/mail", Summary: "Show when you get mail", Access: ops.SignedIn, Session: true},
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[record.MailSettings], error) {
			s, err := a.People().Mail(ctx, c.Person.ID)
			return answer.Of(s), err
		})
	ops.Register(t, ops.Operation{
		ID: "me.set_mail", Method: http.MethodPatch, Path: "/api/v1/me/mail", Summary: "Change when you get mail", Access: ops.SignedIn, Session: true, Audit: true,
		About: "Alerts about the own account are always mailed at once.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[mailPatch]) (*answer.Body[record.MailSettings], error) {
			s, err := a.Auth.SetMail(ctx, c.Person, record.MailSettings(in.Body), a.From(ctx, c))
			return answer.Of(s), err
		})
	a.mailsOfOthers(t)
}

type (
	userMail struct {
		answer.ByID
		Body mailPatch
	}
	mailQuery struct {
		GaveUp bool `query:"given_up" doc:"Only mail that was given up"`
		Limit  int  `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"How many at most"`
	}
)

// mailsOfOthers are what commands with the registry's own URL know of people's mail.
func (a *handlers) mailsOfOthers(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "users.mail", Method: http.MethodGet, Path: "/api/v1/users/{id}/mail", Summary: "Show when a person gets mail", Access: ops.Here},
		func(ctx context.Context, _ access.Caller, in *answer.ByID) (*answer.Body[record.MailSettings], error) {
			s, err := a.People().Mail(ctx, in.ID)
			return answer.Of(s), err
		})
	ops.Register(t, ops.Operation{
		ID: "users.set_mail", Method: http.MethodPatch, Path: "/api/v1/users/{id}/mail", Summary: "Change when a person gets mail", Access: ops.Here, Audit: true,
	},
		func(ctx context.Context, c access.Caller, in *userMail) (*answer.Body[record.MailSettings], error) {
			return onUser(ctx, a, c, "users.set_mail", in.ID, map[string]any{"set": in.Body}, func(ctx context.Context) (*answer.Body[record.MailSettings], error) {
				s, err := a.People().SetMail(ctx, in.ID, record.MailSettings(in.Body))
				return answer.Of(s), err
			})
		})
	ops.Register(t, ops.Operation{ID: "mails.list", Method: http.MethodGet, Path: "/api/v1/mails", Summary: "List mail that waits", Access: ops.Here},
		func(ctx context.Context, _ access.Caller, in *mailQuery) (*answer.Body[answer.List[outbox.Waiting]], error) {
			found, err := outbox.In(a.Registry).Queue(ctx, in.Limit, in.GaveUp)
			return answer.All(found), err
		})
}
