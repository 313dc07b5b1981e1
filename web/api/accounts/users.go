package accounts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// UserFilter narrows the list of people.
type UserFilter struct {
	Role        string `query:"role" enum:"admin,operator,auditor,institutional_admin,institutional_user" doc:"Only people with this role"`
	Institution string `query:"institution" maxLength:"255" doc:"Only people of this institution, by its identifier"`
	Active      string `query:"active" enum:"true,false" doc:"Only people who are active, or deactivated"`
}

type userQuery struct {
	UserFilter
	answer.Paging
}

type userBody struct {
	Email       string `json:"email" maxLength:"254"`
	Name        string `json:"name" minLength:"2" maxLength:"200"`
	Role        string `json:"role" enum:"admin,operator,auditor,institutional_admin,institutional_user"`
	Institution string `json:"institution_identifier,omitempty" maxLength:"255"`
}

type userPatch struct {
	answer.ByID
	answer.Condition
	Body struct {
		Email          *string `json:"email,omitempty" maxLength:"254"`
		Name           *string `json:"name,omitempty" minLength:"2" maxLength:"200"`
		Role           *string `json:"role,omitempty" enum:"admin,operator,auditor,institutional_admin,institutional_user"`
		Institution    *string `json:"institution_identifier,omitempty" maxLength:"255"`
		FactorRequired *bool   `json:"second_factor_required,omitempty"`
		TimeZone       *string `json:"time_zone,omitempty" maxLength:"64"`
	}
}

type invite struct {
	answer.ByID
	Mail bool `query:"mail" doc:"Send the link to the person, and answer without it; for commands with the registry's own URL"`
}

// invitation is a link for a person. It is shown once, to hand it on.
type invitation struct {
	Kind string `json:"kind" enum:"invite,reset"`
	Path string `json:"path" doc:"Path of the link at this server; hand it to the person"`
}

type endedSessions struct {
	Ended int64 `json:"ended"`
}

// users are people, as those see them who may look after them.
func (a *handlers) users(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "users.list", Method: http.MethodGet, Path: "/api/v1/users", Summary: "List people", Access: ops.Holders, Needs: permission.UsersRead}, a.listUsers)
	ops.Register(t, ops.Operation{ID: "users.show", Method: http.MethodGet, Path: "/api/v1/users/{id}", Summary: "Show a person", Access: ops.Holders, Needs: permission.UsersRead},
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Tagged[record.Profile], error) {
			p, err := a.People().Profile(ctx, c.Scope, in.ID)
			return answer.WithTag(p, p.Version), err
		})
	ops.Register(t, ops.Operation{
		ID: "users.add", Method: http.MethodPost, Path: "/api/v1/users", Summary: "Register a person", Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true,
		Audit: true, Status: http.StatusCreated, About: "An institutional admin registers people of the own institution, with addresses of its domain. " +
			"Anyone who registers a person, or gives a role or means to sign in, counts as the same person for seven days, where two people have to decide.",
	}, a.addUser)
	ops.Register(t, ops.Operation{
		ID: "users.set", Method: http.MethodPatch, Path: "/api/v1/users/{id}", Summary: "Change a person", Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true,
		Audit: true, About: "A change of role, institution or e-mail ends all sessions of the person; of role or institution, all tokens too.",
	}, a.setUser)
	for _, active := range []bool{true, false} {
		verb, summary := "deactivate", "Deactivate a person"
		if active {
			verb, summary = "activate", "Activate a person again"
		}
		ops.Register(t, ops.Operation{
			ID: "users." + verb, Method: http.MethodPost, Path: "/api/v1/users/{id}/" + verb, Summary: summary, Access: ops.Holders, Needs: permission.UsersWrite,
			Fresh: true, Audit: true,
		},
			func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Tagged[record.Profile], error) {
				return a.changeUser(ctx, c, "users."+verb, in.ID, 0, people.Changes{Active: &active}, nil)
			})
	}
	for _, kind := range []string{people.Invite, people.Reset} {
		summary := "Make a link with which a person without a password sets a first one"
		if kind == people.Reset {
			summary = "Make a link with which a person sets a new password"
		}
		ops.Register(t, ops.Operation{
			ID: "users." + kind, Secret: true, Method: http.MethodPost, Path: "/api/v1/users/{id}/" + kind, Summary: summary, Access: ops.Holders, Needs: permission.UsersWrite,
			Fresh: true, Audit: true, Status: http.StatusCreated,
		},
			func(ctx context.Context, c access.Caller, in *invite) (*answer.Body[invitation], error) {
				return a.invite(ctx, c, in, kind)
			})
	}
	ops.Register(t, ops.Operation{
		ID: "users.reset_factor", Method: http.MethodPost, Path: "/api/v1/users/{id}/reset-factor", Summary: "Remove the second factor of a person who has lost it",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent, About: "All sessions of the person end.",
	}, a.resetFactor)
	ops.Register(t, ops.Operation{
		ID: "users.unlock", Method: http.MethodPost, Path: "/api/v1/users/{id}/unlock", Summary: "Forget the failed attempts to sign in as a person",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent,
		About: "A person who is locked out after wrong passwords or codes can try again at once. Find out first whether it was that person who tried.",
	}, a.unlock)
	ops.Register(t, ops.Operation{
		ID: "users.unlink", Method: http.MethodPost, Path: "/api/v1/users/{id}/unlink", Summary: "Remove the link of a person to an OpenID provider",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent,
		About: "All sessions of the person end. The next sign-in there links the person again, by the e-mail address.",
	}, a.unlink)
	a.userSessions(t)
}

// userSessions are the sessions of a person, for commands with the registry's own URL.
func (a *handlers) userSessions(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "users.sessions", Method: http.MethodGet, Path: "/api/v1/users/{id}/sessions", Summary: "List the sessions of a person", Access: ops.Here},
		func(ctx context.Context, _ access.Caller, in *answer.ByID) (*answer.Body[answer.List[record.Session]], error) {
			found, err := a.People().Sessions(ctx, in.ID)
			return answer.All(found), err
		})
	ops.Register(t, ops.Operation{
		ID: "users.end_sessions", Method: http.MethodDelete, Path: "/api/v1/users/{id}/sessions", Summary: "End all sessions of a person", Access: ops.Here, Audit: true,
	},
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[endedSessions], error) {
			return onUser(ctx, a, c, "users.end_sessions", in.ID, nil, func(ctx context.Context) (*answer.Body[endedSessions], error) {
				n, err := a.People().EndSession(ctx, in.ID, 0)
				return answer.Of(endedSessions{n}), err
			})
		})
}

func (a *handlers) listUsers(ctx context.Context, c access.Caller, in *userQuery) (*answer.Body[answer.List[record.Profile]], error) {
	if c.Operator && in.Role == "" && in.Active == "" {
		return a.namesOfUsers(ctx, in.Institution)
	}
	var active *bool
	if in.Active != "" {
		only := in.Active == "true"
		active = &only
	}
	after, err := answer.DecodeCursor[int64]("users", in.UserFilter, in.After)
	if err != nil {
		return nil, err
	}
	found, err := a.People().Profiles(ctx, c.Scope, people.ProfileFilter{Role: in.Role, Institution: in.Institution, Active: active, After: after, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	return answer.PageOf(ctx, found, in.Limit, func(p record.Profile) string { return answer.EncodeCursor("users", in.UserFilter, p.ID) }), nil
}

// namesOfUsers lists people for a command, by e-mail: its role in the database may not be one
// that reads how people sign in.
func (a *handlers) namesOfUsers(ctx context.Context, institution string) (*answer.Body[answer.List[record.Profile]], error) {
	found, err := a.Registry.Users(ctx, institution)
	rows := []record.Profile{}
	for _, u := range found {
		rows = append(rows, record.Profile{
			ID: u.ID, Email: u.Email, Name: u.Name, Role: u.Role, InstitutionID: u.InstitutionID, Institution: u.Institution, DeactivatedAt: u.DeactivatedAt, CreatedAt: u.CreatedAt,
		})
	}
	return answer.All(rows), err
}

func (a *handlers) addUser(ctx context.Context, c access.Caller, in *answer.Body[userBody]) (*answer.Tagged[record.Profile], error) {
	u := record.User{Email: in.Body.Email, Name: in.Body.Name, Role: in.Body.Role, Institution: in.Body.Institution}
	if id, identifier := c.Scope.Institution(); id != 0 {
		u.Institution = cmp.Or(u.Institution, identifier)
		if u.Institution != identifier {
			return nil, ops.NotFound()
		}
	}
	if err := cmp.Or(mayGive(c, u.Role), mayName(c, u.Email)); err != nil {
		return nil, err
	}
	entry := registry.AuditEntry{Operation: "users.add", SubjectType: "user", Detail: map[string]any{"email": u.Email, "role": u.Role}}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Tagged[record.Profile], error) {
		added, err := a.Registry.AddUser(ctx, u)
		if err != nil {
			return nil, err
		}
		entry.SubjectID, entry.Institution = fmt.Sprint(added.ID), added.InstitutionID
		p, err := a.People().Profile(ctx, c.Scope, added.ID)
		return answer.WithTag(p, p.Version), err
	})
}

// mayGive refuses to give a role that is above the caller's own: only staff has staff.
func mayGive(c access.Caller, role string) error {
	if c.Scope.All() || role == registry.RoleInstitutionalAdmin || role == registry.RoleInstitutionalUser {
		return nil
	}
	return ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "you can give the roles institutional_admin and institutional_user")
}

// mayName refuses an institutional admin an address that is of another domain than the
// institution, before anything is looked up: the answer would say whether another institution,
// or the archive, has a person with that address.
func mayName(c access.Caller, email string) error {
	_, own := c.Scope.Institution()
	_, domain, found := strings.Cut(strings.ToLower(email), "@")
	if own == "" || !found || domain == own || strings.HasSuffix(domain, "."+own) {
		return nil
	}
	return ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "you can register addresses of "+own+"; ask the archive's staff to register a person with another")
}

func (a *handlers) setUser(ctx context.Context, c access.Caller, in *userPatch) (*answer.Tagged[record.Profile], error) {
	version, err := in.Version()
	if err != nil {
		return nil, err
	}
	b := in.Body
	if b.Role != nil {
		if err := mayGive(c, *b.Role); err != nil {
			return nil, err
		}
	}
	if _, own := c.Scope.Institution(); own != "" && b.Institution != nil && *b.Institution != own {
		return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "only staff moves people to another institution")
	}
	return a.changeUser(ctx, c, "users.set", in.ID, version, people.Changes{
		Email: b.Email, Name: b.Name, Role: b.Role, Institution: b.Institution, FactorRequired: b.FactorRequired, TimeZone: b.TimeZone,
	}, map[string]any{"set": b})
}

func (a *handlers) changeUser(ctx context.Context, c access.Caller, operation string, id, version int64, changes people.Changes, detail map[string]any) (*answer.Tagged[record.Profile], error) {
	return onUser(ctx, a, c, operation, id, detail, func(ctx context.Context) (*answer.Tagged[record.Profile], error) {
		if changes.Email != nil {
			if p, err := a.People().Profile(ctx, c.Scope, id); err != nil {
				return nil, err
			} else if err := mayName(c, *changes.Email); err != nil && !strings.EqualFold(p.Email, *changes.Email) {
				return nil, err
			}
		}
		p, err := a.People().Change(ctx, c.Scope, id, version, changes)
		return answer.WithTag(p, p.Version), err
	})
}

// onUser does something to a person, unless only staff gives the person's role. The database
// puts it on the record of the person's institution.
func onUser[T any](ctx context.Context, a *handlers, c access.Caller, operation string, id int64, detail map[string]any, do func(context.Context) (T, error)) (T, error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "user", SubjectID: fmt.Sprint(id), Detail: detail}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (none T, err error) {
		p, err := a.People().Profile(ctx, c.Scope, id)
		if err != nil {
			return none, err
		}
		if err := mayGive(c, p.Role); err != nil {
			return none, err
		}
		return do(ctx)
	})
}

func (a *handlers) invite(ctx context.Context, c access.Caller, in *invite, kind string) (*answer.Body[invitation], error) {
	var detail map[string]any
	if in.Mail {
		if !c.Operator {
			return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "mail is for commands with the registry's own URL; hand the link to the person")
		}
		detail = map[string]any{"mail": true}
	}
	return onUser(ctx, a, c, "users."+kind, in.ID, detail, func(ctx context.Context) (*answer.Body[invitation], error) {
		if in.Mail {
			return answer.Of(invitation{Kind: kind}), a.People().MailLink(ctx, in.ID, kind)
		}
		secret, err := a.People().MakeLink(ctx, in.ID, kind)
		return answer.Of(invitation{kind, people.LinkPath(kind, secret)}), err
	})
}

func (a *handlers) resetFactor(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
	return onUser(ctx, a, c, "users.reset_factor", in.ID, nil, func(ctx context.Context) (*answer.Empty, error) {
		return &answer.Empty{}, a.People().RemoveTOTP(ctx, in.ID, cmp.Or(c.Actor().Name, "the archive's staff"))
	})
}

func (a *handlers) unlink(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
	return onUser(ctx, a, c, "users.unlink", in.ID, nil, func(ctx context.Context) (*answer.Empty, error) {
		return &answer.Empty{}, a.People().Unbind(ctx, in.ID)
	})
}

func (a *handlers) unlock(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
	return onUser(ctx, a, c, "users.unlock", in.ID, nil, func(ctx context.Context) (*answer.Empty, error) {
		return &answer.Empty{}, a.People().Unlock(ctx, in.ID)
	})
}
