// Package answer is what the resources of the REST API share: how a list is paged, a change
// is recorded, a record has its version, and a figure that is expensive to compute is kept.
//
// In come the parts of a server ([Site]) and the rows that a resource has read; out go the
// answers to requests, in the form that the OpenAPI document describes.
package answer

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// Site is what the handlers work with.
type Site struct {
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

	Providers *oidc.Providers // nil: people sign in with a password only

	queue Kept[browse.Queue] // for all who ask
}

// Fixity is how copies are checked, as the server is configured.
type Fixity struct {
	Days  int // between two checks, unless the policy of a target says otherwise
	Tries int // failed checks after which a copy cannot be checked
}

// Deposits is what bags are deposited with through the API. Their bytes go from the browser
// to the receiving bucket, and not through the server.
type Deposits struct {
	Bucket   func(name string) (*storage.Bucket, error) // a receiving bucket; nil: no settings
	Public   func(name string) (*storage.Bucket, error) // the same at the address that browsers reach
	Endpoint string                                     // of that address, such as https://s3.example.org
	Profiles bag.Profiles
	MaxFiles int // that a bag may have in the pipeline
}

// Interim is where the stages of items in progress leave how far they are. A server may have
// no settings for some of it.
type Interim struct {
	Progress func(context.Context) (*progress.Store, error) // opens Redis, or returns what is open; nil: no settings
	Reader   interim.Reader                                 // without Progress; its Staging is nil without settings for S3
	Sources  interim.Sources                                // its Kept, if anything is kept of items whose ingest has ended
	Measures map[registry.Stage]progress.Measure
	Unset    error // why there is no Staging; nil: there is
}

// Body is an answer or a request that is JSON.
type Body[T any] struct{ Body T }

// Of answers with one thing.
func Of[T any](v T) *Body[T] { return &Body[T]{v} }

// All answers with a list that has no further page.
func All[T any](items []T) *Body[List[T]] { return Of(List[T]{Items: items}) }

// Empty is a request or an answer without anything.
type Empty struct{}

// ByID is a request about one record.
type ByID struct {
	ID int64 `path:"id" minimum:"1" doc:"Number of the record"`
}

// List is an answer with several records.
type List[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"URL of the next page; null: this is the last"`
	Count *count  `json:"count,omitempty" doc:"Only if count was asked for"`
}

// People are the records of people.
func (s *Site) People() people.Records { return people.In(s.Registry) }

// From is where a request comes from.
func (s *Site) From(ctx context.Context, c access.Caller) auth.From {
	r := ops.Request(ctx)
	return auth.From{IP: c.IP, Agent: r.UserAgent(), Device: s.Web.Device(r), Session: c.Session}
}

// Act does something in the name of the caller, and records it, with the person who decided it
// on paper.
func Act[T any](ctx context.Context, s *Site, c access.Caller, entry *registry.AuditEntry, do func(context.Context) (T, error)) (T, error) {
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
	return registry.Acted(ctx, s.Registry, c.Actor(), entry, do)
}

// HereOnly refuses a part of a request that is for the operator of the registry alone.
func HereOnly(c access.Caller, name string, given bool) error {
	if given && !c.Operator {
		return ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, name+" is for commands with the registry's own URL; leave it out")
	}
	return nil
}

// Browse reads the records that a caller may see.
func (s *Site) Browse(c access.Caller) browse.Records { return browse.In(s.Registry, c.Scope) }

// QueueAge is how old the figures of the queue may be.
const QueueAge = 5 * time.Second

// Queue is the queue as all who ask are answered it, and how old that is.
func (s *Site) Queue(ctx context.Context) (browse.Queue, time.Duration, error) {
	return s.queue.Glance(ctx, QueueAge, func(ctx context.Context) (browse.Queue, error) { return browse.TakeQueue(ctx, s.Registry) })
}

// Reads is an operation that shows records.
func Reads(id, path, summary, about string, needs permission.Permission) ops.Operation {
	return ops.Operation{ID: id, Method: http.MethodGet, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: needs}
}

// Seen is an item as a caller may see it: hosts and processes are for those who look after
// them.
func Seen(c access.Caller, w record.WorkItem) record.WorkItem {
	if !c.Holds(permission.ItemsWorkers) {
		w.Node, w.PID, w.Worker = nil, nil, nil
	}
	return w
}

// NothingToSet refuses a change that names nothing.
func NothingToSet(fields string) error {
	return ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "nothing is to be changed: send "+fields)
}

// Later asks a caller to try again.
func Later(detail string) error {
	p := ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, detail)
	p.RetryAfter = "5"
	return p
}
