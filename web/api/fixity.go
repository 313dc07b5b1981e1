package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// Fixity is how copies are checked, as the server is configured.
type Fixity struct {
	Days  int // between two checks, unless the policy of a target says otherwise
	Tries int // failed checks after which a copy cannot be checked
}

const (
	fixityAge  = time.Minute // how old the status of fixity checks may be
	worstShown = 10          // of the most overdue copies, unless a command asks for others
)

type (
	fixityArchive = record.FixityStatus
	fixityOwn     = record.FixityOwn
)

// BadCopyFilter narrows the list of bad copies.
type BadCopyFilter struct {
	Institution string `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
}

type (
	fixityQuery struct {
		Worst int `query:"worst" minimum:"0" maximum:"10000" default:"10" hidden:"true" doc:"How many of the most overdue copies are named; another number is for commands with the registry's own URL"`
	}
	badQuery struct {
		BadCopyFilter
		Paging
	}
	checkBody struct {
		Identifier string `json:"identifier" minLength:"1" maxLength:"1100" doc:"Of an object or a file"`
		Target     string `json:"target,omitempty" maxLength:"100" doc:"Only the copies in this storage target, whatever its mode"`
		Again      bool   `json:"again,omitempty" doc:"Also copies that were found good in the last minute"`
	}
	policyInput struct {
		Target string `path:"target" maxLength:"100" doc:"Storage target"`
		Body   struct {
			Mode string `json:"mode" enum:"read,report,off" doc:"read: workers read the copies; report: only reports of the provider count; off: nothing is checked"`
			Days *int   `json:"days" minimum:"1" maximum:"3650" doc:"Between two checks of a copy; null: as the archive is configured"`
		}
	}
	byProvider struct {
		Provider string `path:"provider" maxLength:"100" doc:"Name of the provider"`
	}
)

// fixity are the checks of stored copies.
func (a *API) fixity(t *ops.API) {
	ops.Register(t, reads("fixity.show", "/api/v1/fixity", "Show the state of fixity checks",
		"How many copies are overdue, bad or cannot be checked. People of an institution see its copies; those of an institution with more than 20,000 files are not counted.", permission.FixityRead), a.showFixity)
	ops.Register(t, reads("fixity.bad", "/api/v1/fixity/bad", "List bad copies", "", permission.FixityRead), a.listBad)
	ops.Register(t, reads("fixity.policies", "/api/v1/fixity/policies", "List how often the copies in each storage target are checked", "", permission.FixityRead),
		func(ctx context.Context, c access.Caller, _ *empty) (*body[list[record.FixityPolicy]], error) {
			found, err := fixity.In(a.Registry).Policies(ctx)
			for i := range found {
				if !c.Scope.All() {
					found[i].PauseReason = ""
				}
			}
			return &body[list[record.FixityPolicy]]{list[record.FixityPolicy]{Items: found}}, err
		})
	ops.Register(t, ops.Operation{
		ID: "fixity.check", Method: post, Path: "/api/v1/fixity/checks", Summary: "Check the copies of an object or a file now", Status: http.StatusAccepted,
		Access: ops.Holders, Needs: permission.FixityCheck, Audit: true, About: "Workers check them before all others. The results are in the events of the files, and in the list of bad copies.",
	}, a.checkFixity)
	ops.Register(t, ops.Operation{
		ID: "fixity.set_policy", Method: http.MethodPut, Path: "/api/v1/fixity/policies/{target}", Summary: "Set how often the copies in a storage target are checked",
		Access: ops.Holders, Needs: permission.FixityPolicy, Audit: true, About: "A change applies at once to all copies. A pause of the target ends.",
	},
		func(ctx context.Context, c access.Caller, in *policyInput) (*body[record.FixityPolicy], error) {
			days := 0
			if in.Body.Days != nil {
				days = *in.Body.Days
			}
			entry := registry.AuditEntry{Operation: "fixity.set_policy", SubjectType: "target", SubjectID: in.Target, Detail: map[string]any{"mode": in.Body.Mode, "days": days}}
			p, err := act(ctx, a, c, &entry, func(ctx context.Context) (record.FixityPolicy, error) {
				return fixity.In(a.Registry).SetPolicy(ctx, in.Target, in.Body.Mode, days)
			})
			return &body[record.FixityPolicy]{p}, err
		})
	a.brakes(t)
}

// brakes are the providers at which repair has stopped.
func (a *API) brakes(t *ops.API) {
	ops.Register(t, reads("brakes.list", "/api/v1/brakes", "List the providers at which repair has stopped", "The reason is for staff and operators.", permission.FixityRead),
		func(ctx context.Context, c access.Caller, _ *empty) (*body[list[record.FixityRepairStop]], error) {
			found, err := fixity.In(a.Registry).RepairStops(ctx)
			for i := range found {
				if !c.Scope.All() {
					found[i].Reason = ""
				}
			}
			return &body[list[record.FixityRepairStop]]{list[record.FixityRepairStop]{Items: found}}, err
		})
	ops.Register(t, ops.Operation{
		ID: "brakes.release", Method: post, Path: "/api/v1/brakes/{provider}/release", Summary: "Let repair continue at a provider", Status: http.StatusNoContent,
		Access: ops.Holders, Needs: permission.RepairRelease, Person: true, Audit: true, About: "Find out first why its copies failed. Earlier failures no longer count.",
	},
		func(ctx context.Context, c access.Caller, in *byProvider) (*empty, error) {
			entry := registry.AuditEntry{Operation: "repair.release", SubjectType: "provider", SubjectID: in.Provider}
			return act(ctx, a, c, &entry, func(ctx context.Context) (*empty, error) {
				return &empty{}, fixity.In(a.Registry).AllowRepair(ctx, in.Provider, c.Person.Email)
			})
		})
}

func (a *API) showFixity(ctx context.Context, c access.Caller, in *fixityQuery) (*body[record.FixityView], error) {
	if err := hereOnly(c, "worst", in.Worst != worstShown); err != nil {
		return nil, err
	}
	r, v := fixity.In(a.Registry), record.FixityView{}
	if c.Scope.All() {
		s, age, err := a.figures.fixity.glance(ctx, fixityAge, func(ctx context.Context) (fixityArchive, error) {
			return r.Status(ctx, fixity.StatusQuery{Days: a.Fixity.Days, Tries: a.Fixity.Tries, Worst: in.Worst})
		})
		v.Age, v.Archive = age.Seconds(), &s
		return &body[record.FixityView]{v}, err
	}
	id, _ := c.Scope.Institution()
	own, age, err := a.figures.own.of(id).glance(ctx, fixityAge, func(ctx context.Context) (fixityOwn, error) { return r.OwnStatus(ctx, c.Scope, a.Fixity.Days) })
	v.Age, v.Institution = age.Seconds(), &own
	return &body[record.FixityView]{v}, err
}

func (a *API) listBad(ctx context.Context, c access.Caller, in *badQuery) (*body[list[record.FixityBadCopy]], error) {
	after, err := decodeCursor[int64]("bad-copies", in.BadCopyFilter, in.After)
	if err != nil {
		return nil, err
	}
	found, err := fixity.In(a.Registry).BadCopiesIn(ctx, c.Scope, fixity.BadFilter{Institution: in.Institution, After: after, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	for i := range found {
		if !c.Scope.All() {
			found[i].QuarantinedAs = "" // a bucket of the archive's own
		}
	}
	return pageOf(ctx, found, in.Limit, func(b record.FixityBadCopy) string { return encodeCursor("bad-copies", in.BadCopyFilter, b.Failure) }), nil
}

func (a *API) checkFixity(ctx context.Context, c access.Caller, in *body[checkBody]) (*body[list[record.FixityRequested]], error) {
	b := in.Body
	id, _ := c.Scope.Institution()
	entry := registry.AuditEntry{
		Operation: "fixity.check", SubjectType: "copies", SubjectID: b.Identifier, Institution: id, Detail: map[string]any{"target": b.Target, "again": b.Again},
	}
	asked, err := act(ctx, a, c, &entry, func(ctx context.Context) ([]record.FixityRequested, error) {
		asked, err := fixity.In(a.Registry).RequestIn(ctx, c.Scope, b.Identifier, b.Target, b.Again)
		if err == nil && len(asked) == 0 {
			err = fmt.Errorf("%w: it has no copies in %s", registry.ErrRefused, targetsOf(b.Target))
		}
		return asked, err
	})
	return &body[list[record.FixityRequested]]{list[record.FixityRequested]{Items: asked}}, err
}

func targetsOf(target string) string {
	if target == "" {
		return "storage targets whose copies are read; name another target"
	}
	return "a storage target of that name"
}
