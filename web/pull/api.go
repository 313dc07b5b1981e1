// Package pull is the REST queue: programs post messages to queues and pull them, and
// pull the pipeline's topics. It has the shapes and rules of NQ.
//
// Each file calls only those below it: api.go and show.go serve HTTP; decode.go reads
// requests; broker.go gives messages and waits for them; listen.go receives
// notifications; post.go and fetch.go have the statements; waitlist.go has the calls
// that wait.
package pull

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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

// Options say what an API accepts, and how it waits for messages. What is zero has a
// default.
type Options struct {
	MaxBody  int64                                      // bytes of a request; 0 is 4 MiB
	Defaults Defaults                                   // of pulls; all zero: those of NQ
	Caller   func(*http.Request) (access.Caller, error) // identifies callers; nil: everybody may do everything
	Stop     <-chan struct{}                            // when it closes, calls that wait are answered; nil never does
	Direct   *pgx.ConnConfig                            // for LISTEN, if the pool leads to a pooler
	NoListen bool                                       // LISTEN is not possible; poll instead
	Poll     time.Duration                              // between two polls; 0 is 5 s, or 1 s without LISTEN
	Log      *slog.Logger                               // nil discards
}

// New returns the API to the queues in db. Waiting calls are woken by [API.Run].
func New(db *pgxpool.Pool, o Options) *API {
	if o.MaxBody <= 0 {
		o.MaxBody = 4 << 20
	}
	if o.Defaults == (Defaults{}) {
		o.Defaults = nqDefaults()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Caller == nil {
		o.Caller = func(*http.Request) (access.Caller, error) { return access.Caller{}, nil }
	}
	return &API{broker: newBroker(db, o), registry: registry.New(db), o: o, budget: request.NewBudget(request.Limits{MostBody: o.MaxBody})}
}

// Run receives notifications of messages until ctx is done, and returns nil only then.
// Failures of the database are logged and retried.
func (a *API) Run(ctx context.Context) error { return a.broker.run(ctx) }

// Waiting is how many calls wait for messages in this process.
func (a *API) Waiting() int { return a.broker.waits.count() }

// Routes adds the API's routes to mux.
func (a *API) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /post", a.allowed("post", a.post))
	mux.HandleFunc("POST /pull", a.allowed("pull", a.pull))
	mux.HandleFunc("GET /queues", a.allowed("post or pull", a.showQueues))
	mux.HandleFunc("GET /queues/{queue}", a.allowed("post or pull", a.showQueue))
	mux.HandleFunc("GET /queues/{queue}/messages/{id}", a.allowed("post or pull", a.showMessage))
	mux.HandleFunc("PUT /queues/{queue}/receivers/{name}", a.allowed("pull", a.setPosition))
}

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
		p = reply.BadRequest("%s", unknown.Error())
	case errors.Is(err, errNotPostable):
		p = reply.Problem{Status: http.StatusForbidden, Code: "not-postable", Detail: errors.Unwrap(err).Error() + "; requeue items with farol requeue"}
	default:
		a.o.Log.ErrorContext(r.Context(), "request failed; the caller was told to try again", "path", r.URL.Path, "err", err)
		p = reply.Problem{Status: http.StatusInternalServerError, Code: "unavailable", Detail: "the messages could not be saved or read; try again"}
	}
	p.NQ = p.Detail
	reply.Refuse(w, p)
}

// answer sends an answer; a caller who is gone reads nothing.
func answer(w http.ResponseWriter, body any) {
	reply.JSON(w, http.StatusOK, body) //nolint:errcheck // what was saved or given stays so
}

// post is POST /post.
func (a *API) post(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	body, release, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer release()
	p, err := readPost(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	firsts, err := a.broker.post(ctx, p)
	if err != nil {
		return err
	}
	ids := make(map[string][]int64, len(p.postings))
	for i, posting := range p.postings {
		for n := range posting.Messages {
			ids[posting.Queue] = append(ids[posting.Queue], firsts[i]+int64(n))
		}
	}
	answer(w, ids)
	return nil
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

// pull is POST /pull. Its request is in memory until its results are saved, and not
// while it waits.
func (a *API) pull(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	body, release, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer release()
	p, err := readPull(body, a.o.Defaults)
	if err != nil {
		return err
	}
	if len(p.refused) > 0 {
		return a.saveSome(r.Context(), p)
	}
	brought := broughtResults{p.results, release}
	p.results = nil
	type messages struct {
		Messages map[string][]message `json:"messages"`
	}
	if len(p.wants) == 0 {
		if err := a.broker.saveAll(r.Context(), p.receiver, brought.results); err != nil {
			return err
		}
		answer(w, messages{map[string][]message{}})
		return nil
	}
	ctx, end := a.untilStop(r.Context())
	defer end()
	given, err := a.broker.pull(ctx, p.receiver, brought, p.wants, p.timeout)
	if err != nil && !errors.Is(err, errStopping) {
		return err
	}
	got := map[string][]message{}
	for i, list := range given {
		if len(list) > 0 {
			got[p.wants[i].Queue] = list
		}
	}
	if len(got) == 0 {
		reply.NoContent(w)
		return nil
	}
	answer(w, messages{got})
	return nil
}

// saveSome saves the results of a request that has others, which cannot be saved. Its
// caller has to learn of those, and so is given no messages.
func (a *API) saveSome(ctx context.Context, p pullRequest) error {
	saved, err := a.broker.saveResults(ctx, p.receiver, p.results)
	if err != nil {
		return err
	}
	if unknown := allSaved(p.receiver, saved, p.results); unknown != nil {
		p.refused = append(p.refused, unknown.Error())
	}
	return request.Errorf("%d results are saved; these are not: %s", saved, strings.Join(p.refused, "; "))
}

// untilStop is a context that also ends, by [errStopping], when the server stops.
func (a *API) untilStop(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if a.o.Stop != nil {
		go func() {
			select {
			case <-a.o.Stop:
				cancel(errStopping)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
