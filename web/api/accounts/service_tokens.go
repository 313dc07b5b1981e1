package accounts

import (
	"context"
	"errors"
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

type serviceTokenBody struct {
	Name        string   `json:"name" minLength:"1" maxLength:"100"`
	Institution string   `json:"institution_identifier,omitempty" maxLength:"255" doc:"Whose records it reaches; without it, those of all institutions"`
	Rights      []string `json:"rights,omitempty" enum:"post,pull,lease" doc:"Messages to queues, messages from queues and topics, items at stages that are processed over HTTP"`
	Stages      []string `json:"stages,omitempty" maxItems:"50" doc:"Stages that may be leased; without them, all that are processed over HTTP"`
	Permissions []string `json:"permissions,omitempty" maxItems:"100" doc:"What it may do with the REST API"`
	Days        int      `json:"days,omitempty" minimum:"1" maximum:"3650" doc:"For how long it is good; without it, until it is revoked"`
	Seconds     float64  `json:"seconds,omitempty" exclusiveMinimum:"0" maximum:"9000000000" doc:"Instead of days; for commands with the registry's own URL"`
}

func viewOfService(t record.Token) record.ServiceToken {
	return record.ServiceToken{TokenView: viewOfToken(t), Institution: t.Institution, Rights: append([]string{}, t.Rights...), Stages: append([]registry.Stage{}, t.Stages...), CreatedBy: t.CreatedBy}
}

// serviceTokens are those of programs that act for no person.
func (a *handlers) serviceTokens(t *ops.API) {
	ops.Register(t, ops.Operation{ID: "tokens.list", Method: http.MethodGet, Path: "/api/v1/tokens", Summary: "List tokens of services", Access: ops.Holders, Needs: permission.TokensService},
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.ServiceToken]], error) {
			return tokensOf(ctx, a, 0, viewOfService)
		})
	ops.Register(t, ops.Operation{
		ID: "tokens.add", Secret: true, Method: http.MethodPost, Path: "/api/v1/tokens", Summary: "Create a token of a service", Access: ops.Holders, Needs: permission.TokensService,
		Fresh: true, Audit: true, Status: http.StatusCreated,
		About: "It has rights for the APIs of messages and leases, and permissions for this one, but none by which people request restorations and deletions, approve, let repair continue, or manage people, tokens and settings.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[serviceTokenBody]) (*answer.Body[record.NewServiceToken], error) {
			return a.addServiceToken(ctx, c, in.Body)
		})
	ops.Register(t, ops.Operation{
		ID: "tokens.remove", Method: http.MethodDelete, Path: "/api/v1/tokens/{id}", Summary: "Revoke a token of a service", Access: ops.Holders, Needs: permission.TokensService,
		Fresh: true, Audit: true, Status: http.StatusNoContent, About: "It is refused within two seconds.",
	}, func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Empty, error) {
		return a.removeToken(ctx, c, "tokens.remove", 0, in.ID)
	})
}

func (a *handlers) addServiceToken(ctx context.Context, c access.Caller, in serviceTokenBody) (*answer.Body[record.NewServiceToken], error) {
	wanted := record.Token{Name: in.Name, Institution: in.Institution, Rights: unique(in.Rights), Permissions: unique(in.Permissions)}
	for _, stage := range unique(in.Stages) {
		wanted.Stages = append(wanted.Stages, registry.Stage(stage))
	}
	if why := wrongToken(c, wanted); why != "" {
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, why)
	}
	switch {
	case in.Seconds > 0 && !c.Operator:
		return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "seconds is for commands with the registry's own URL; use days")
	case in.Seconds > 0:
		end := time.Now().Add(time.Duration(in.Seconds * float64(time.Second)))
		wanted.ExpiresAt = &end
	case in.Days > 0:
		wanted.ExpiresAt = inDays(in.Days)
	}
	entry := registry.AuditEntry{Operation: "tokens.add", SubjectType: "token", SubjectID: in.Name, Detail: map[string]any{
		"institution": in.Institution, "rights": wanted.Rights, "stages": wanted.Stages, "permissions": wanted.Permissions, "days": in.Days, "expires_at": wanted.ExpiresAt,
	}}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.NewServiceToken], error) {
		if in.Institution != "" {
			of, err := a.Registry.Institution(ctx, in.Institution)
			if err != nil && !errors.Is(err, registry.ErrNotFound) { // which is said below, with the name
				return nil, err
			}
			entry.Institution = of.ID
		}
		added, secret, err := a.Registry.AddToken(ctx, wanted)
		return answer.Of(record.NewServiceToken{ServiceToken: viewOfService(added), Secret: secret}), err
	})
}

// wrongToken says what does not go together in a token; "" if nothing is wrong.
func wrongToken(c access.Caller, t record.Token) string {
	may := permission.OfService(t.Institution != "")
	for _, name := range t.Permissions {
		switch p := permission.Permission(name); {
		case !slices.Contains(permission.All(), p):
			return fmt.Sprintf("there is no permission %q; GET /api lists them", name)
		case p.Personal():
			return fmt.Sprintf("the permission %q is for people: the token of a service can never use it", name)
		case !c.Holds(p), !slices.Contains(may, p):
			return fmt.Sprintf("the permission %q is none that you can give to this token", name)
		}
	}
	switch {
	case len(t.Rights) == 0 && len(t.Permissions) == 0:
		return "give rights or permissions; a token without any may do nothing"
	case len(t.Stages) > 0 && !slices.Contains(t.Rights, registry.RightLease):
		return "stages are given, but no right to lease; add lease to rights, or leave stages out"
	case t.Institution != "" && slices.ContainsFunc(t.Rights, func(r string) bool { return r != registry.RightLease }):
		return "a token of an institution may only lease, since messages are shared"
	}
	return ""
}

// unique is a list without what it has had before.
func unique(names []string) []string {
	list := []string{}
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
