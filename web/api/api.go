// Package api has the handlers of the REST API /api/v1.
//
// The package has more than 3,000 lines: a resource is a file, and the files share how a
// list is paged, a change is recorded, and a record has its version.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
	"github.com/farol-preservation/farol/web/ops"
)

// API are the handlers, with what they need.
type API struct {
	Registry *registry.Registry
	Auth     *auth.Auth
	Web      *access.Web
	Version  string // of the program
	Log      *slog.Logger
	Rate     int   // requests a second of each caller; 0: 20
	Streamed int64 // files of an export that is made while it is downloaded; 0: a million

	// PlanAlone is how many items a person may change by a plan that nobody else has approved.
	PlanAlone int64

	// ArchiveClass is the storage class from which what is kept under an option has to be
	// restored first; "": its copies can be read. With fromArchive it is that of an archived
	// copy all the same.
	ArchiveClass func(option string, fromArchive bool) string
	Fixity       Fixity
	Interim      Interim
	Deposits     Deposits

	// Next lists the items that workers with these pools would claim now, up to n of each. What
	// is wrong with the pools is a problem of the request.
	Next func(ctx context.Context, pools []string, n int) ([]int64, error)

	// Mirror compares the queue with what nsqd shows of it; nil: nsqd's address is not known.
	Mirror func(context.Context) (record.MirrorView, error)

	// Stops is closed when the process ends, and open streams with it; nil: never.
	Stops <-chan struct{}

	figures   figures
	Providers *oidc.Providers // nil: people sign in with a password only
}

// Table makes the table of all operations, on a mux.
func (a *API) Table(mux *http.ServeMux) *ops.API {
	return a.TableOf(mux, nil)
}

// TableOf makes the table of those operations alone that wanted reports; nil: of all.
func (a *API) TableOf(mux *http.ServeMux, wanted func(ops.Operation) bool) *ops.API {
	t := ops.New(mux, a.Registry, a.Version, cmp.Or(a.Rate, 20), a.Web.Caller, a.Log)
	t.For = wanted
	a.Register(t)
	return t
}

// Register adds all operations to a table.
func (a *API) Register(t *ops.API) {
	a.sessions(t)
	a.account(t)
	a.tokens(t)
	a.users(t)
	a.institutions(t)
	a.deposits(t)
	a.items(t)
	a.estimates(t)
	a.next(t)
	a.records(t)
	a.samples(t)
	a.plans(t)
	a.deletions(t)
	a.restorations(t)
	a.queue(t)
	a.stages(t)
	a.addedStages(t)
	a.services(t)
	a.stores(t)
	a.workers(t)
	a.mirror(t)
	a.schedules(t)
	a.fixity(t)
	a.progress(t)
	a.health(t)
	a.mails(t)
	a.alerts(t)
	a.actions(t)
	a.serviceTokens(t)
	a.settings(t)
	a.reports(t)
	a.exports(t)
}

// body is an answer or a request that is JSON.
type body[T any] struct{ Body T }

// empty is a request or an answer without anything.
type empty struct{}

// ByID is a request about one record.
type ByID struct {
	ID int64 `path:"id" minimum:"1" doc:"Number of the record"`
}

// list is an answer with several records.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"URL of the next page; null: this is the last"`
	Count *count  `json:"count,omitempty" doc:"Only if count was asked for"`
}

func (a *API) people() people.Records { return people.In(a.Registry) }

// from is where a request comes from.
func (a *API) from(ctx context.Context, c access.Caller) auth.From {
	r := ops.Request(ctx)
	return auth.From{IP: c.IP, Agent: r.UserAgent(), Device: a.Web.Device(r), Session: c.Session}
}

// act does something in the name of the caller, and records it, with the person who decided it
// on paper.
func act[T any](ctx context.Context, a *API, c access.Caller, entry *registry.AuditEntry, do func(context.Context) (T, error)) (T, error) {
	if c.Operator {
		entry.OnBehalfOf = c.Person.Email
	}
	if c.OnPaper != "" {
		entry.Detail = maps.Clone(entry.Detail)
		if entry.Detail == nil {
			entry.Detail = map[string]any{}
		}
		entry.Detail["on_paper"] = c.OnPaper
	}
	return registry.Acted(ctx, a.Registry, c.Actor(), entry, do)
}

// hereOnly refuses a part of a request that is for the operator of the registry alone.
func hereOnly(c access.Caller, name string, given bool) error {
	if given && !c.Operator {
		return ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, name+" is for commands with the registry's own URL; leave it out")
	}
	return nil
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)
