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
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type institutionBody struct {
	Name            string `json:"name" minLength:"2" maxLength:"200"`
	Identifier      string `json:"identifier" maxLength:"255" doc:"Domain name in lower case"`
	ReceivingBucket string `json:"receiving_bucket,omitempty" maxLength:"63" doc:"Without it: aptrust.receiving. and the identifier"`
	RestoreBucket   string `json:"restore_bucket,omitempty" maxLength:"63" doc:"Without it: aptrust.restore. and the identifier"`
}

type institutionPatch struct {
	answer.ByID
	answer.Condition
	Body struct {
		Name            *string  `json:"name,omitempty" minLength:"2" maxLength:"200"`
		SpotRestoreDays *int     `json:"spot_restore_days,omitempty" minimum:"0" maximum:"3650" doc:"Days between two test restorations; 0: none"`
		DeletionWait    *float64 `json:"deletion_wait_hours,omitempty" minimum:"-1" maximum:"2160" doc:"Hours that an approved deletion waits before anything is removed; -1: as long as the settings of requests say"`
		FactorRequired  *bool    `json:"second_factor_required,omitempty" doc:"Whether all people of the institution need a second factor"`
	}
}

// InstitutionFilter narrows the list of institutions.
type InstitutionFilter struct {
	State string `query:"state" enum:"A,D" doc:"Only active institutions, or only deactivated ones"`
}

// institutions are depositors.
func (a *handlers) institutions(t *ops.API) {
	type query struct {
		InstitutionFilter
		answer.Paging
	}
	ops.Register(t, ops.Operation{ID: "institutions.list", Method: http.MethodGet, Path: "/api/v1/institutions", Summary: "List institutions", Access: ops.Holders, Needs: permission.InstitutionsRead},
		func(ctx context.Context, c access.Caller, in *query) (*answer.Body[answer.List[record.Institution]], error) {
			after, err := answer.DecodeCursor[int64]("institutions", in.InstitutionFilter, in.After)
			if err != nil {
				return nil, err
			}
			found, err := a.People().Institutions(ctx, c.Scope, people.InstitutionFilter{State: in.State, After: after, Limit: in.Limit + 1})
			if err != nil {
				return nil, err
			}
			for i := range found {
				found[i] = named(c, found[i])
			}
			return answer.PageOf(ctx, found, in.Limit, func(i record.Institution) string {
				return answer.EncodeCursor("institutions", in.InstitutionFilter, i.ID)
			}), nil
		})
	ops.Register(t, ops.Operation{ID: "institutions.show", Method: http.MethodGet, Path: "/api/v1/institutions/{id}", Summary: "Show an institution", Access: ops.Holders, Needs: permission.InstitutionsRead},
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Tagged[record.Institution], error) {
			i, err := a.People().Institution(ctx, c.Scope, in.ID)
			return answer.WithTag(named(c, i), i.Version), err
		})
	ops.Register(t, ops.Operation{
		ID: "institutions.add", Method: http.MethodPost, Path: "/api/v1/institutions", Summary: "Register an institution", Access: ops.Holders, Needs: permission.InstitutionsWrite,
		Fresh: true, Audit: true, Status: http.StatusCreated, About: "Its buckets are made by `farol bucket create`, or with the tools of the store.",
	}, a.addInstitution)
	ops.Register(t, ops.Operation{
		ID: "institutions.set", Method: http.MethodPatch, Path: "/api/v1/institutions/{id}", Summary: "Change the settings of an institution", Access: ops.Holders,
		Needs: permission.InstitutionsSettings, Fresh: true, Audit: true, About: "The name is changed by staff only. Only staff shortens the wait of deletions; deletions that are approved keep the time at which they begin.",
	}, a.setInstitution)
	for state, verb := range map[string]string{"D": "deactivate", "A": "activate"} {
		summary := "Activate an institution again"
		if state == "D" {
			summary = "Deactivate an institution: nothing is read from its receiving bucket, and its people cannot sign in"
		}
		ops.Register(t, ops.Operation{
			ID: "institutions." + verb, Method: http.MethodPost, Path: "/api/v1/institutions/{id}/" + verb, Summary: summary, Access: ops.Holders,
			Needs: permission.InstitutionsWrite, Fresh: true, Audit: true,
		},
			func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Tagged[record.Institution], error) {
				return a.changeInstitution(ctx, c, "institutions."+verb, in.ID, 0, people.InstitutionChanges{State: &state}, nil)
			})
	}
}

// named is an institution as a caller may see it: of operators' no more than whose items are
// in the queue.
func named(c access.Caller, i record.Institution) record.Institution {
	if !c.Operates() {
		return i
	}
	return record.Institution{ID: i.ID, Name: i.Name, Identifier: i.Identifier, State: i.State, CreatedAt: i.CreatedAt, Version: i.Version}
}

func (a *handlers) addInstitution(ctx context.Context, c access.Caller, in *answer.Body[institutionBody]) (*answer.Tagged[record.Institution], error) {
	b := in.Body
	if b.ReceivingBucket == "" {
		b.ReceivingBucket = "aptrust.receiving." + b.Identifier
	}
	if b.RestoreBucket == "" {
		b.RestoreBucket = "aptrust.restore." + b.Identifier
	}
	entry := registry.AuditEntry{Operation: "institutions.add", SubjectType: "institution", SubjectID: b.Identifier}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Tagged[record.Institution], error) {
		added, err := a.Registry.AddInstitution(ctx, record.Institution{
			Name: b.Name, Identifier: b.Identifier, ReceivingBucket: b.ReceivingBucket, RestoreBucket: b.RestoreBucket,
		})
		entry.Institution = added.ID
		return answer.WithTag(added, added.Version), err
	})
}

func (a *handlers) setInstitution(ctx context.Context, c access.Caller, in *institutionPatch) (*answer.Tagged[record.Institution], error) {
	version, err := in.Version()
	if err != nil {
		return nil, err
	}
	if in.Body.Name != nil && !c.Holds(permission.InstitutionsWrite) {
		return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "only staff changes the name of an institution")
	}
	return a.changeInstitution(ctx, c, "institutions.set", in.ID, version, people.InstitutionChanges{
		Name: in.Body.Name, SpotRestoreDays: in.Body.SpotRestoreDays, DeletionWait: in.Body.DeletionWait, OnlyLonger: !c.Holds(permission.InstitutionsWrite), FactorRequired: in.Body.FactorRequired,
	}, map[string]any{"set": in.Body})
}

func (a *handlers) changeInstitution(ctx context.Context, c access.Caller, operation string, id, version int64, changes people.InstitutionChanges, detail map[string]any) (*answer.Tagged[record.Institution], error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "institution", SubjectID: fmt.Sprint(id), Detail: detail}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Tagged[record.Institution], error) {
		i, err := a.People().ChangeInstitution(ctx, c.Scope, id, version, changes)
		entry.Institution = i.ID
		return answer.WithTag(i, i.Version), err
	})
}
