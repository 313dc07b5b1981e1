package archive

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

const (
	fixityAge  = time.Minute // how old the status of fixity checks may be
	worstShown = 10          // of the most overdue copies, unless a command asks for others
)

// figures are what this process has read of fixity checks, for all who ask.
type figures struct {
	fixity answer.Kept[record.FixityStatus]
	own    answer.KeptBy[int64, record.FixityOwn] // by the ID of the institution
}

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
		answer.Paging
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
func (a *handlers) fixity(t *ops.API) {
	ops.Register(t, answer.Reads("fixity.show", "/api/v1/fixity", "Show the state of fixity checks",
		"How many copies are overdue, bad or cannot be checked. People of an institution see its copies; those of an institution with more than 20,000 files are not counted.", permission.FixityRead), a.showFixity)
	ops.Register(t, answer.Reads("fixity.bad", "/api/v1/fixity/bad", "List bad copies", "", permission.FixityRead), a.listBad)
	ops.Register(t, answer.Reads("fixity.policies", "/api/v1/fixity/policies", "List how often the copies in each storage target are checked", "", permission.FixityRead),
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.FixityPolicy]], error) {
			found, err := fixity.In(a.Registry).Policies(ctx)
			for i := range found {
				if !c.Scope.All() {
					found[i].PauseReason = ""
				}
			}
			return answer.All(found), err
		})
	ops.Register(t, ops.Operation{
		ID: "fixity.check", Method: http.MethodPost, Path: "/api/v1/fixity/checks", Summary: "Check the copies of an object or a file now", Status: http.StatusAccepted,
		Access: ops.Holders, Needs: permission.FixityCheck, Audit: true, About: "Workers check them before all others. The results are in the events of the files, and in the list of bad copies.",
	}, a.checkFixity)
	ops.Register(t, ops.Operation{
		ID: "fixity.set_policy", Method: http.MethodPut, Path: "/api/v1/fixity/policies/{target}", Summary: "Set how often the copies in a storage target are checked",
		Access: ops.Holders, Needs: permission.FixityPolicy, Audit: true, About: "A change applies at once to all copies. A pause of the target ends.",
	},
		func(ctx context.Context, c access.Caller, in *policyInput) (*answer.Body[record.FixityPolicy], error) {
			days := 0
			if in.Body.Days != nil {
				days = *in.Body.Days
			}
			entry := registry.AuditEntry{Operation: "fixity.set_policy", SubjectType: "target", SubjectID: in.Target, Detail: map[string]any{"mode": in.Body.Mode, "days": days}}
			p, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.FixityPolicy, error) {
				return fixity.In(a.Registry).SetPolicy(ctx, in.Target, in.Body.Mode, days)
			})
			return answer.Of(p), err
		})
	a.brakes(t)
}

// brakes are the providers at which repair has stopped.
func (a *handlers) brakes(t *ops.API) {
	ops.Register(t, answer.Reads("brakes.list", "/api/v1/brakes", "List the providers at which repair has stopped", "The reason is for staff and operators.", permission.FixityRead),
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[answer.List[record.FixityRepairStop]], error) {
			found, err := fixity.In(a.Registry).RepairStops(ctx)
			for i := range found {
				if !c.Scope.All() {
					found[i].Reason = ""
				}
			}
			return answer.All(found), err
		})
	ops.Register(t, ops.Operation{
		ID: "brakes.release", Method: http.MethodPost, Path: "/api/v1/brakes/{provider}/release", Summary: "Let repair continue at a provider", Status: http.StatusNoContent,
		Access: ops.Holders, Needs: permission.RepairRelease, Person: true, Audit: true, About: "Find out first why its copies failed. Earlier failures no longer count.",
	},
		func(ctx context.Context, c access.Caller, in *byProvider) (*answer.Empty, error) {
			entry := registry.AuditEntry{Operation: "repair.release", SubjectType: "provider", SubjectID: in.Provider}
			return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Empty, error) {
				return &answer.Empty{}, fixity.In(a.Registry).AllowRepair(ctx, in.Provider, c.Person.Email)
			})
		})
}

func (a *handlers) showFixity(ctx context.Context, c access.Caller, in *fixityQuery) (*answer.Body[record.FixityView], error) {
	if err := answer.HereOnly(c, "worst", in.Worst != worstShown); err != nil {
		return nil, err
	}
	r, v := fixity.In(a.Registry), record.FixityView{}
	if c.Scope.All() {
		s, age, err := a.figures.fixity.Glance(ctx, fixityAge, func(ctx context.Context) (record.FixityStatus, error) {
			return r.Status(ctx, fixity.StatusQuery{Days: a.Fixity.Days, Tries: a.Fixity.Tries, Worst: in.Worst})
		})
		v.Age, v.Archive = age.Seconds(), &s
		return answer.Of(v), err
	}
	id, _ := c.Scope.Institution()
	own, age, err := a.figures.own.Of(id).Glance(ctx, fixityAge, func(ctx context.Context) (record.FixityOwn, error) { return r.OwnStatus(ctx, c.Scope, a.Fixity.Days) })
	v.Age, v.Institution = age.Seconds(), &own
	return answer.Of(v), err
}

func (a *handlers) listBad(ctx context.Context, c access.Caller, in *badQuery) (*answer.Body[answer.List[record.FixityBadCopy]], error) {
	after, err := answer.DecodeCursor[int64]("bad-copies", in.BadCopyFilter, in.After)
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
	return answer.PageOf(ctx, found, in.Limit, func(b record.FixityBadCopy) string {
		return answer.EncodeCursor("bad-copies", in.BadCopyFilter, b.Failure)
	}), nil
}

func (a *handlers) checkFixity(ctx context.Context, c access.Caller, in *answer.Body[checkBody]) (*answer.Body[answer.List[record.FixityRequested]], error) {
	b := in.Body
	id, _ := c.Scope.Institution()
	entry := registry.AuditEntry{
		Operation: "fixity.check", SubjectType: "copies", SubjectID: b.Identifier, Institution: id, Detail: map[string]any{"target": b.Target, "again": b.Again},
	}
	asked, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) ([]record.FixityRequested, error) {
		asked, err := fixity.In(a.Registry).RequestIn(ctx, c.Scope, b.Identifier, b.Target, b.Again)
		if err == nil && len(asked) == 0 {
			err = fmt.Errorf("%w: it has no copies in %s", registry.ErrRefused, targetsOf(b.Target))
		}
		return asked, err
	})
	return answer.All(asked), err
}

func targetsOf(target string) string {
	if target == "" {
		return "storage targets whose copies are read; name another target"
	}
	return "a storage target of that name"
}
