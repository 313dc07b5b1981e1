package accounts

import (
	"context"
	"fmt"
	"net/http"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// MeView is the caller.
type MeView struct {
	Email        string                  `json:"email" doc:"Empty for a token of a service"`
	Name         string                  `json:"name"`
	Role         string                  `json:"role"`
	Institution  string                  `json:"institution_identifier" doc:"Whose records the caller sees; empty: of all institutions"`
	Permissions  []permission.Permission `json:"permissions"`
	SecondFactor bool                    `json:"second_factor" doc:"Whether a second factor is set up"`
	Codes        int                     `json:"recovery_codes" doc:"Recovery codes that are left"`
	TimeZone     string                  `json:"time_zone"`
	Scheme       string                  `json:"color_scheme" doc:"light, dark, or empty: as the system of the browser"`
	Token        string                  `json:"token" doc:"Name of the token that asks; empty: a browser asks"`
}

// recovery is an answer with recovery codes.
type recovery struct {
	SetCookie []http.Cookie `header:"Set-Cookie"`
	Body      struct {
		Codes []string `json:"recovery_codes" doc:"Each replaces the second factor once. They cannot be shown again"`
	}
}

type (
	confirmBody struct {
		Pending string `json:"pending" maxLength:"500" doc:"As it was offered"`
		Code    string `json:"code" maxLength:"20" doc:"Six digits that the app shows"`
	}
	meBody struct {
		Name     *string `json:"name,omitempty" minLength:"2" maxLength:"200"`
		TimeZone *string `json:"time_zone,omitempty" maxLength:"64" doc:"Such as Europe/Lisbon"`
		Scheme   *string `json:"color_scheme,omitempty" enum:"system,light,dark" doc:"Of pages; system: as that of the browser"`
	}
	passwordBody struct {
		Old string `json:"old" maxLength:"1024"`
		New string `json:"new" maxLength:"1024" doc:"12 to 128 characters"`
	}
)

// account is what people may do about themselves.
func (a *handlers) account(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "me.show", Method: http.MethodGet, Path: "/api/v1/me", Summary: "Show who you are and what you may do", Access: ops.SignedIn},
		func(_ context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[MeView], error) {
			return answer.Of(meOf(c)), nil
		})
	ops.Register(t, ops.Operation{
		ID: "me.set", Method: http.MethodPatch, Path: "/api/v1/me", Summary: "Change your name, your time zone, or the colors of pages", Access: ops.SignedIn, Session: true, Audit: true,
	}, a.setMe)
	ops.Register(t, ops.Operation{ID: "me.sessions", Method: http.MethodGet, Path: "/api/v1/me/sessions", Summary: "List your sessions", Access: ops.SignedIn, Session: true},
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.SessionRow]], error) {
			found, err := a.People().Sessions(ctx, c.Person.ID)
			rows := []record.SessionRow{}
			for _, s := range found {
				rows = append(rows, record.SessionRow{Session: s, Current: s.ID == c.Session.ID})
			}
			return answer.All(rows), err
		})
	ops.Register(t, ops.Operation{
		ID: "me.end_session", Method: http.MethodDelete, Path: "/api/v1/me/sessions/{id}", Summary: "End one of your sessions", Access: ops.SignedIn,
		Session: true, Audit: true, Status: http.StatusNoContent,
	},
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
			entry := registry.AuditEntry{Operation: "me.end_session", SubjectType: "session", SubjectID: fmt.Sprint(in.ID), Institution: c.Person.InstitutionID}
			return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Empty, error) {
				_, err := a.People().EndSession(ctx, c.Person.ID, in.ID)
				return &answer.Empty{}, err
			})
		})
	ops.Register(t, ops.Operation{
		ID: "me.offer_factor", Secret: true, Method: http.MethodPost, Path: "/api/v1/me/factor", Summary: "Begin to set up a second factor", Access: ops.Half, Session: true,
		About: "Nothing is changed before a code of the new factor is sent to /api/v1/me/factor/confirm.",
	},
		func(_ context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[auth.SetUp], error) {
			s, err := a.Auth.SetUpFactor(c.Person)
			return answer.Of(s), err
		})
	ops.Register(t, ops.Operation{
		ID: "me.set_factor", Secret: true, Method: http.MethodPost, Path: "/api/v1/me/factor/confirm", Summary: "Set up a second factor", Access: ops.Half, Session: true, Audit: true,
		About: "The answer has the recovery codes, once. All other sessions end. A session that is signed in already needs a fresh proof.",
	},
		a.setFactor)
	ops.Register(t, ops.Operation{
		ID: "me.set_password", Secret: true, Method: http.MethodPost, Path: "/api/v1/me/password", Summary: "Set a new password", Access: ops.SignedIn, Session: true, Audit: true,
		About: "All other sessions end.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[passwordBody]) (*signedIn, error) {
			s, err := a.Auth.ChangePassword(ctx, c.Session, in.Body.Old, in.Body.New, a.From(ctx, c))
			if err != nil {
				return nil, err
			}
			s.Level = people.LevelFull
			return a.signedIn(s), nil
		})
}

func meOf(c access.Caller) MeView {
	_, institution := c.Scope.Institution()
	return MeView{
		Email: c.Person.Email, Name: c.Person.Name, Role: c.Person.Role, Institution: institution, Permissions: append([]permission.Permission{}, c.Permissions...),
		SecondFactor: c.Person.Strong(), Codes: c.Person.RecoveryCodes, TimeZone: c.Person.TimeZone, Scheme: c.Person.Scheme, Token: c.Name,
	}
}

func (a *handlers) setMe(ctx context.Context, c access.Caller, in *answer.Body[meBody]) (*answer.Body[MeView], error) {
	b := in.Body
	changes := people.OwnChanges{Name: b.Name, TimeZone: b.TimeZone, Scheme: b.Scheme}
	if changes == (people.OwnChanges{}) {
		return nil, answer.NothingToSet("name, time_zone or color_scheme")
	}
	if b.Scheme != nil && *b.Scheme == "system" {
		changes.Scheme = new(string)
	}
	entry := registry.AuditEntry{
		Operation: "me.set", SubjectType: "user", SubjectID: fmt.Sprint(c.Person.ID), Institution: c.Person.InstitutionID, Detail: map[string]any{"set": b},
	}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[MeView], error) {
		if err := a.People().ChangeOwn(ctx, c.Person.ID, changes); err != nil {
			return nil, err
		}
		p, err := a.People().ByID(ctx, c.Person.ID)
		c.Person = p
		return answer.Of(meOf(c)), err
	})
}

func (a *handlers) setFactor(ctx context.Context, c access.Caller, in *answer.Body[confirmBody]) (*recovery, error) {
	if c.Full() && !c.Session.Fresh {
		return nil, ops.FreshProof(c)
	}
	s, codes, err := a.Auth.ConfirmFactor(ctx, c.Session, in.Body.Pending, in.Body.Code, a.From(ctx, c))
	if err != nil {
		return nil, err
	}
	out := &recovery{SetCookie: a.cookies(s)}
	out.Body.Codes = codes
	return out, nil
}
