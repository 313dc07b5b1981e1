package api

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
	Paging
}

type userBody struct {
	Email       string `json:"email" maxLength:"254"`
	Name        string `json:"name" minLength:"2" maxLength:"200"`
	Role        string `json:"role" enum:"admin,operator,auditor,institutional_admin,institutional_user"`
	Institution string `json:"institution_identifier,omitempty" maxLength:"255"`
}

type userPatch struct {
	ByID
	Condition
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
	ByID
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
func (a *API) users(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "users.list", Method: get, Path: "/api/v1/users", Summary: "List people", Access: ops.Holders, Needs: permission.UsersRead}, a.listUsers)
	ops.Register(t, ops.Operation{ID: "users.show", Method: get, Path: "/api/v1/users/{id}", Summary: "Show a person", Access: ops.Holders, Needs: permission.UsersRead},
		func(ctx context.Context, c access.Caller, in *ByID) (*tagged[record.Profile], error) {
			p, err := a.people().Profile(ctx, c.Scope, in.ID)
			return withTag(p, p.Version), err
		})
	ops.Register(t, ops.Operation{
		ID: "users.add", Method: post, Path: "/api/v1/users", Summary: "Register a person", Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true,
		Audit: true, Status: http.StatusCreated, About: "An institutional admin registers people of the own institution, with addresses of its domain. " +
			"Anyone who registers a person, or gives a role or means to sign in, counts as the same person for seven days, where two people have to decide.",
	}, a.addUser)
	ops.Register(t, ops.Operation{
		ID: "users.set", Method: patch, Path: "/api/v1/users/{id}", Summary: "Change a person", Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true,
		Audit: true, About: "A change of role, institution or e-mail ends all sessions of the person; of role or institution, all tokens too.",
	}, a.setUser)
	for _, active := range []bool{true, false} {
		verb, summary := "deactivate", "Deactivate a person"
		if active {
			verb, summary = "activate", "Activate a person again"
		}
		ops.Register(t, ops.Operation{
			ID: "users." + verb, Method: post, Path: "/api/v1/users/{id}/" + verb, Summary: summary, Access: ops.Holders, Needs: permission.UsersWrite,
			Fresh: true, Audit: true,
		},
			func(ctx context.Context, c access.Caller, in *ByID) (*tagged[record.Profile], error) {
				return a.changeUser(ctx, c, "users."+verb, in.ID, 0, people.Changes{Active: &active}, nil)
			})
	}
	for _, kind := range []string{people.Invite, people.Reset} {
		summary := "Make a link with which a person without a password sets a first one"
		if kind == people.Reset {
			summary = "Make a link with which a person sets a new password"
		}
		ops.Register(t, ops.Operation{
			ID: "users." + kind, Secret: true, Method: post, Path: "/api/v1/users/{id}/" + kind, Summary: summary, Access: ops.Holders, Needs: permission.UsersWrite,
			Fresh: true, Audit: true, Status: http.StatusCreated,
		},
			func(ctx context.Context, c access.Caller, in *invite) (*body[invitation], error) {
				return a.invite(ctx, c, in, kind)
			})
	}
	ops.Register(t, ops.Operation{
		ID: "users.reset_factor", Method: post, Path: "/api/v1/users/{id}/reset-factor", Summary: "Remove the second factor of a person who has lost it",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent, About: "All sessions of the person end.",
	}, a.resetFactor)
	ops.Register(t, ops.Operation{
		ID: "users.unlock", Method: post, Path: "/api/v1/users/{id}/unlock", Summary: "Forget the failed attempts to sign in as a person",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent,
		About: "A person who is locked out after wrong passwords or codes can try again at once. Find out first whether it was that person who tried.",
	}, a.unlock)
	ops.Register(t, ops.Operation{
		ID: "users.unlink", Method: post, Path: "/api/v1/users/{id}/unlink", Summary: "Remove the link of a person to an OpenID provider",
		Access: ops.Holders, Needs: permission.UsersWrite, Fresh: true, Audit: true, Status: http.StatusNoContent,
		About: "All sessions of the person end. The next sign-in there links the person again, by the e-mail address.",
	}, a.unlink)
	a.userSessions(t)
}

// userSessions are the sessions of a person, for commands with the registry's own URL.
func (a *API) userSessions(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "users.sessions", Method: get, Path: "/api/v1/users/{id}/sessions", Summary: "List the sessions of a person", Access: ops.Here},
		func(ctx context.Context, _ access.Caller, in *ByID) (*body[list[record.Session]], error) {
			found, err := a.people().Sessions(ctx, in.ID)
			return &body[list[record.Session]]{list[record.Session]{Items: found}}, err
		})
	ops.Register(t, ops.Operation{
		ID: "users.end_sessions", Method: remove, Path: "/api/v1/users/{id}/sessions", Summary: "End all sessions of a person", Access: ops.Here, Audit: true,
	},
		func(ctx context.Context, c access.Caller, in *ByID) (*body[endedSessions], error) {
			return onUser(ctx, a, c, "users.end_sessions", in.ID, nil, func(ctx context.Context) (*body[endedSessions], error) {
				n, err := a.people().EndSession(ctx, in.ID, 0)
				return &body[endedSessions]{endedSessions{n}}, err
			})
		})
}

func (a *API) listUsers(ctx context.Context, c access.Caller, in *userQuery) (*body[list[record.Profile]], error) {
	if c.Operator && in.Role == "" && in.Active == "" {
		return a.namesOfUsers(ctx, in.Institution)
	}
	var active *bool
	if in.Active != "" {
		only := in.Active == "true"
		active = &only
	}
	after, err := decodeCursor[int64]("users", in.UserFilter, in.After)
	if err != nil {
		return nil, err
	}
	found, err := a.people().Profiles(ctx, c.Scope, people.ProfileFilter{Role: in.Role, Institution: in.Institution, Active: active, After: after, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	return pageOf(ctx, found, in.Limit, func(p record.Profile) string { return encodeCursor("users", in.UserFilter, p.ID) }), nil
}

// namesOfUsers lists people for a command, by e-mail: its role in the database may not be one
// that reads how people sign in.
func (a *API) namesOfUsers(ctx context.Context, institution string) (*body[list[record.Profile]], error) {
	found, err := a.Registry.Users(ctx, institution)
	rows := []record.Profile{}
	for _, u := range found {
		rows = append(rows, record.Profile{
			ID: u.ID, Email: u.Email, Name: u.Name, Role: u.Role, InstitutionID: u.InstitutionID, Institution: u.Institution, DeactivatedAt: u.DeactivatedAt, CreatedAt: u.CreatedAt,
		})
	}
	return &body[list[record.Profile]]{list[record.Profile]{Items: rows}}, err
}

func (a *API) addUser(ctx context.Context, c access.Caller, in *body[userBody]) (*tagged[record.Profile], error) {
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
	return act(ctx, a, c, &entry, func(ctx context.Context) (*tagged[record.Profile], error) {
		added, err := a.Registry.AddUser(ctx, u)
		if err != nil {
			return nil, err
		}
		entry.SubjectID, entry.Institution = fmt.Sprint(added.ID), added.InstitutionID
		p, err := a.people().Profile(ctx, c.Scope, added.ID)
		return withTag(p, p.Version), err
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

func (a *API) setUser(ctx context.Context, c access.Caller, in *userPatch) (*tagged[record.Profile], error) {
	version, err := in.version()
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

func (a *API) changeUser(ctx context.Context, c access.Caller, operation string, id, version int64, changes people.Changes, detail map[string]any) (*tagged[record.Profile], error) {
	return onUser(ctx, a, c, operation, id, detail, func(ctx context.Context) (*tagged[record.Profile], error) {
		if changes.Email != nil {
			if p, err := a.people().Profile(ctx, c.Scope, id); err != nil {
				return nil, err
			} else if err := mayName(c, *changes.Email); err != nil && !strings.EqualFold(p.Email, *changes.Email) {
				return nil, err
			}
		}
		p, err := a.people().Change(ctx, c.Scope, id, version, changes)
		return withTag(p, p.Version), err
	})
}

// onUser does something to a person, unless only staff gives the person's role. The database
// puts it on the record of the person's institution.
func onUser[T any](ctx context.Context, a *API, c access.Caller, operation string, id int64, detail map[string]any, do func(context.Context) (T, error)) (T, error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "user", SubjectID: fmt.Sprint(id), Detail: detail}
	return act(ctx, a, c, &entry, func(ctx context.Context) (none T, err error) {
		p, err := a.people().Profile(ctx, c.Scope, id)
		if err != nil {
			return none, err
		}
		if err := mayGive(c, p.Role); err != nil {
			return none, err
		}
		return do(ctx)
	})
}

func (a *API) invite(ctx context.Context, c access.Caller, in *invite, kind string) (*body[invitation], error) {
	var detail map[string]any
	if in.Mail {
		if !c.Operator {
			return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "mail is for commands with the registry's own URL; hand the link to the person")
		}
		detail = map[string]any{"mail": true}
	}
	return onUser(ctx, a, c, "users."+kind, in.ID, detail, func(ctx context.Context) (*body[invitation], error) {
		if in.Mail {
			return &body[invitation]{invitation{Kind: kind}}, a.people().MailLink(ctx, in.ID, kind)
		}
		secret, err := a.people().MakeLink(ctx, in.ID, kind)
		return &body[invitation]{invitation{kind, people.LinkPath(kind, secret)}}, err
	})
}

func (a *API) resetFactor(ctx context.Context, c access.Caller, in *ByID) (*empty, error) {
	return onUser(ctx, a, c, "users.reset_factor", in.ID, nil, func(ctx context.Context) (*empty, error) {
		return &empty{}, a.people().RemoveTOTP(ctx, in.ID, cmp.Or(c.Actor().Name, "the archive's staff"))
	})
}

func (a *API) unlink(ctx context.Context, c access.Caller, in *ByID) (*empty, error) {
	return onUser(ctx, a, c, "users.unlink", in.ID, nil, func(ctx context.Context) (*empty, error) {
		return &empty{}, a.people().Unbind(ctx, in.ID)
	})
}

func (a *API) unlock(ctx context.Context, c access.Caller, in *ByID) (*empty, error) {
	return onUser(ctx, a, c, "users.unlock", in.ID, nil, func(ctx context.Context) (*empty, error) {
		return &empty{}, a.people().Unlock(ctx, in.ID)
	})
}
