package accounts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type tokenBody struct {
	Name        string   `json:"name" minLength:"1" maxLength:"100"`
	Permissions []string `json:"permissions,omitempty" maxItems:"100" doc:"A part of your own; none: all of your own that only read"`
	Days        int      `json:"days,omitempty" minimum:"1" maximum:"365" default:"90" doc:"For how long it is good"`
}

// mostTokens is how many personal tokens a person has at most.
const mostTokens = 5

func viewOfToken(t record.Token) record.TokenView {
	return record.TokenView{ID: t.ID, Name: t.Name, Permissions: append([]string{}, t.Permissions...), Idle: append([]string{}, permission.Idle(t)...), CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, UsedAt: t.UsedAt}
}

// tokens are the personal ones.
func (a *handlers) tokens(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "me.tokens", Method: http.MethodGet, Path: "/api/v1/me/tokens", Summary: "List your personal tokens", Access: ops.SignedIn, Session: true},
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.TokenView]], error) {
			return tokensOf(ctx, a, c.Person.ID, viewOfToken)
		})
	ops.Register(t, ops.Operation{
		ID: "me.add_token", Secret: true, Method: http.MethodPost, Path: "/api/v1/me/tokens", Summary: "Create a personal token", Access: ops.SignedIn, Session: true, Fresh: true,
		Audit: true, Status: http.StatusCreated, About: "At most five a person. It ends with the person's account, and when role or institution change.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[tokenBody]) (*answer.Body[record.NewToken], error) {
			return a.addToken(ctx, c, in.Body)
		})
	ops.Register(t, ops.Operation{
		ID: "me.remove_token", Method: http.MethodDelete, Path: "/api/v1/me/tokens/{id}", Summary: "Revoke a personal token", Access: ops.SignedIn, Session: true,
		Audit: true, Status: http.StatusNoContent, About: "It is refused within two seconds.",
	},
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
			return a.removeToken(ctx, c, "me.remove_token", c.Person.ID, in.ID)
		})
}

// tokensOf lists the tokens of a person, or with 0 of services.
func tokensOf[T any](ctx context.Context, a *handlers, person int64, view func(record.Token) T) (*answer.Body[answer.List[T]], error) {
	found, err := a.Registry.Tokens(ctx, person)
	rows := []T{}
	for _, t := range found {
		rows = append(rows, view(t))
	}
	return answer.All(rows), err
}

// removeToken revokes a token of a person, or with 0 of a service. It is recorded by its name,
// as that it was made, and as commands record it.
func (a *handlers) removeToken(ctx context.Context, c access.Caller, operation string, person, id int64) (*answer.Empty, error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "token", SubjectID: fmt.Sprint(id), Institution: c.Person.InstitutionID}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Empty, error) {
		list, err := a.Registry.Tokens(ctx, person)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(t record.Token) bool { return t.ID == id })
		if i < 0 {
			return nil, registry.ErrNotFound
		}
		entry.SubjectID = list[i].Name
		if of := list[i].Institution; of != "" {
			in, err := a.Registry.Institution(ctx, of)
			if err != nil {
				return nil, err
			}
			entry.Institution = in.ID
		}
		return &answer.Empty{}, a.Registry.RemoveToken(ctx, person, list[i].Name)
	})
}

// inDays is when a token ends.
func inDays(n int) *time.Time {
	end := time.Now().Add(time.Duration(n) * 24 * time.Hour)
	return &end
}

func (a *handlers) addToken(ctx context.Context, c access.Caller, in tokenBody) (*answer.Body[record.NewToken], error) {
	wanted, err := permissionsOf(c, in.Permissions)
	if err != nil {
		return nil, err
	}
	entry := registry.AuditEntry{
		Operation: "me.add_token", SubjectType: "token", SubjectID: in.Name, Institution: c.Person.InstitutionID, Detail: map[string]any{"permissions": wanted, "days": in.Days},
	}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.NewToken], error) {
		if err := a.People().LockTokens(ctx, c.Person.ID, mostTokens); err != nil {
			return nil, err
		}
		added, secret, err := a.Registry.AddToken(ctx, record.Token{Name: in.Name, UserID: c.Person.ID, Permissions: wanted, ExpiresAt: inDays(in.Days)})
		if err != nil {
			return nil, err
		}
		return answer.Of(record.NewToken{TokenView: viewOfToken(added), Secret: secret}), a.People().Alert(ctx, c.Person.ID, "Token Made", "A personal token was made for you",
			fmt.Sprintf("The token %q was made. Programs that have it may act as you. If it was not you, set a new password and revoke it.", in.Name))
	})
}

// permissionsOf are what a token may: what was asked for, if the caller may it.
func permissionsOf(c access.Caller, names []string) (list []string, err error) {
	if len(names) == 0 {
		for _, p := range c.Permissions {
			if p.Reads() {
				list = append(list, string(p))
			}
		}
		return list, nil
	}
	for _, name := range names {
		if !c.Holds(permission.Permission(name)) {
			return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fmt.Sprintf("you do not have the permission %q; GET /api/v1/me lists yours", name))
		}
		if permission.Permission(name).Browser() {
			return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fmt.Sprintf("no token can use the permission %q: it needs a fresh proof of who you are; sign in with a browser", name))
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list, nil
}
