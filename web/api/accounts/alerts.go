package accounts

import (
	"context"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type readBody struct {
	IDs    []int64   `json:"ids,omitempty" maxItems:"1000" doc:"These alerts"`
	Before time.Time `json:"before,omitempty" doc:"All alerts that are older"`
}

type readView struct {
	Read int64 `json:"read" doc:"How many were new to you"`
}

// alerts are messages for people.
func (a *handlers) alerts(t *ops.API) {
	type query struct {
		browse.AlertFilter
		answer.Paging
		answer.Counting
	}
	ops.Register(t, answer.Reads("alerts.list", "/api/v1/alerts", "List alerts, newest first",
		"Those for the own institution, and those for yourself alone. Staff has those of all institutions; operators have those for the staff.", permission.AlertsRead),
		func(ctx context.Context, c access.Caller, in *query) (*answer.Body[answer.List[record.ListedAlert]], error) {
			if in.Unread && c.Person.ID == 0 {
				return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "unread is for people: the token of a service reads nothing")
			}
			in.For, in.Staff = c.Person.ID, c.Operates()
			return answer.Page(ctx, a.Site, c, "alerts", in.AlertFilter, in.Paging, in.Counting, browse.Records.Alerts)
		})
	ops.Register(t, answer.Reads("alerts.show", "/api/v1/alerts/{id}", "Show an alert", "It is one that the list has for you.", permission.AlertsRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ListedAlert], error) {
			found, err := a.Browse(c).Alert(ctx, in.ID, browse.AlertFilter{For: c.Person.ID, Staff: c.Operates()})
			return answer.Of(found), err
		})
	ops.Register(t, ops.Operation{
		ID: "alerts.read", Method: http.MethodPost, Path: "/api/v1/alerts/read", Summary: "Mark alerts as read", Access: ops.Holders, Needs: permission.AlertsRead,
		About: "Give ids, or before. Alerts that are not yours to see are not counted.",
	},
		func(ctx context.Context, c access.Caller, in *answer.Body[readBody]) (*answer.Body[readView], error) {
			switch b := in.Body; {
			case c.Person.ID == 0:
				return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "only people read alerts: sign in, or use a personal token")
			case (len(b.IDs) == 0) == b.Before.IsZero():
				return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "give either ids or before")
			}
			n, err := a.People().MarkAlerts(ctx, c.Person.ID, c.Scope, people.Reading{IDs: in.Body.IDs, Before: in.Body.Before, Staff: c.Operates()})
			return answer.Of(readView{n}), err
		})
}

// actions are what people did.
func (a *handlers) actions(t *ops.API) {
	type query struct {
		browse.ActionFilter
		answer.Paging
		answer.Counting
	}
	ops.Register(t, answer.Reads("actions.list", "/api/v1/actions", "List what people did and were refused, newest first",
		"actor, subject_type with subject_id, institution and a window of since and before are found by an index; the others narrow what these find. "+
			"An institution has the actions of its people, and those about its records. Operators have those about the queue.", permission.AuditRead),
		func(ctx context.Context, c access.Caller, in *query) (*answer.Body[answer.List[record.ListedAction]], error) {
			in.Queue = c.Operates()
			return answer.Page(ctx, a.Site, c, "actions", in.ActionFilter, in.Paging, in.Counting, browse.Records.Actions)
		})
}
