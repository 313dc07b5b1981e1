// Package pull is the REST queue: programs post messages to queues and pull them, and
// pull the pipeline's topics. It has the shapes and rules of NQ.
//
// Each file calls only those below it: routes.go and show.go serve the calls, with api.go;
// decode.go reads requests; broker.go gives messages and waits for them; listen.go receives
// notifications; post.go has the statements for messages that come; waitlist.go has the
// calls that wait, and fetch.go the statements for messages that go.
package pull

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// API serves POST /post and POST /pull, and shows queues and messages. Requests and
// answers are JSON. Any number of processes may serve one database. It is safe for
// concurrent use.
type API struct {
	broker   *broker
	registry *registry.Registry
	o        Options
	budget   *request.Budget
}

// New returns the API to the queues in db. Waiting calls are woken by [API.Run].
func New(db *pgxpool.Pool, o Options) *API {
	o = o.withDefaults()
	return &API{broker: newBroker(db, o), registry: registry.New(db), o: o, budget: request.NewBudget(request.Limits{MostBody: o.MaxBody})}
}

// Run receives notifications of messages until ctx is done, and returns nil only then.
// Failures of the database are logged and retried.
func (a *API) Run(ctx context.Context) error { return a.broker.run(ctx) }

// Waiting is how many calls wait for messages in this process.
func (a *API) Waiting() int { return a.broker.waits.count() }

// allowed serves callers who have a right, or one of several, and answers errors.
func (a *API) allowed(right string, handle func(http.ResponseWriter, *http.Request, access.Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.o.Caller(r)
		if err == nil && !slices.ContainsFunc(strings.Split(right, " or "), caller.May) {
			err = &access.Error{Status: http.StatusForbidden, Reason: "the token " + caller.Name + " may not " + right}
		}
		if err == nil {
			err = handle(w, r, caller)
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	}
}

// refuse answers with an error. One that is not the caller's mistake is logged, and
// answered without its details, which may name hosts.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var unknown *unknownResultsError
	p, known := reply.ProblemOf(err)
	switch {
	case r.Context().Err() != nil && !errors.Is(err, request.ErrSlow): // a slow caller's context ends, too
		return // the caller is gone
	case known:
	case errors.As(err, &unknown):
		p, _ = reply.ProblemOf(request.Error{Text: unknown.Error()})
	case errors.Is(err, errNotPostable):
		p = reply.Problem{Status: http.StatusForbidden, Code: "not-postable", Detail: errors.Unwrap(err).Error() + "; its items are requeued in the registry"}
	default:
		a.o.Log.ErrorContext(r.Context(), "request failed; the caller was asked to retry", "path", r.URL.Path, "err", err)
		p = reply.Problem{Status: http.StatusInternalServerError, Code: "unavailable", Detail: "the messages could not be saved or read; try again"}
	}
	p.NQ = p.Detail
	reply.Refuse(w, p)
}

// answer sends an answer; a caller who is gone reads nothing.
func answer(w http.ResponseWriter, body any) {
	reply.JSON(w, http.StatusOK, body) //nolint:errcheck // what was saved or given stays so
}

// body reads a request, which is in memory until release is called.
func (a *API) body(w http.ResponseWriter, r *http.Request, c access.Caller) (body []byte, release func(), err error) {
	body, release, err = a.budget.Read(w, r, c.Share(r))
	if err != nil {
		return nil, nil, err
	}
	if err := wellFormed(body); err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

// untilStop is a context that also ends, by [errStopping], when the server stops.
func (a *API) untilStop(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(a.o.Stop, func() { cancel(errStopping) })
	return ctx, func() {
		unbind()
		cancel(nil)
	}
}
