// Package lease is the claim engine over HTTP, for stages that programs in any
// language process: they claim items, renew their leases and end their claims.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// Options say who may call the API, and how many may wait.
type Options struct {
	Caller     func(*http.Request) (access.Caller, error) // identifies callers; nil: everybody may do everything
	Stop       context.Context                            // when it ends, calls that wait are answered; nil never does
	MaxWaiting int                                        // claims that wait for items at once; 0 is 10,000
	Log        *slog.Logger                               // nil is slog.Default
}

// API serves the calls of workers. A claim is named by its item and token, and the
// process keeps nothing of it, so any process may serve any call. It is safe for
// concurrent use.
type API struct {
	db       *pgxpool.Pool
	registry *registry.Registry
	engine   *claim.Engine
	remote   *remote.Queue
	o        Options
	budget   *request.Budget

	mu      sync.Mutex
	waits   map[string]*waitlist // of waiting claims, by their filter
	waiting int
}

// New returns the API to the queue in db. The caller has to run the engine, or waiting
// claims find items only by polling.
func New(db *pgxpool.Pool, engine *claim.Engine, o Options) *API {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Caller == nil {
		o.Caller = func(*http.Request) (access.Caller, error) { return access.Caller{}, nil }
	}
	if o.Stop == nil {
		o.Stop = context.Background()
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 10_000
	}
	return &API{db: db, registry: registry.New(db), engine: engine, remote: remote.New(engine, db), o: o, budget: request.NewBudget(request.Limits{MostBody: request.SmallBody}), waits: map[string]*waitlist{}}
}

// callTime bounds a call, apart from its wait for items.
const callTime = 15 * time.Second

// problemOf returns the problem that an error is to a caller. What the caller must
// not know, such as the names of hosts, is only logged.
func problemOf(err error) reply.Problem {
	if p, known := reply.ProblemOf(err); known {
		return p
	}
	var ended *remote.EndedError
	switch {
	case errors.As(err, &ended):
		return reply.Problem{
			Status: http.StatusConflict, Code: "ended", Outcome: ended.Outcome, ErrorCode: ended.Code,
			Detail: "This claim was ended before, as " + ended.Outcome + ". Nothing has changed now.",
		}
	case errors.Is(err, claim.ErrLost):
		return reply.Problem{Status: http.StatusConflict, Code: "lost", Detail: "This claim has lost the item. Stop the work: another worker has the item, or it was cancelled."}
	case errors.Is(err, remote.ErrNotRemote):
		return reply.Problem{Status: http.StatusForbidden, Code: "not-remote", Detail: "Farol processes this stage itself; to end it without its work would lose its results. Ask for a stage that was added."}
	case errors.Is(err, remote.ErrNoStage):
		return reply.Problem{Status: http.StatusBadRequest, Code: "no-such-stage", Detail: "There is no stage of that name. Ask the archive for the names of its stages."}
	case errors.Is(err, registry.ErrNotFound):
		return reply.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: "There is no such item."}
	}
	return reply.Problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The queue is unreachable. Try again."}
}

// refuse answers with what went wrong.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Code == "unavailable" && r.Context().Err() == nil {
		a.o.Log.ErrorContext(r.Context(), "request failed; the worker was asked to retry", "path", r.URL.Path, "err", err)
	}
	reply.Refuse(w, p)
}

// read reads a request, which is JSON whatever its content type says: curl's -d sets
// another. Invalid UTF-8 is replaced: what a command prints is no reason to lose what
// it did.
func read[T any](b *request.Budget, w http.ResponseWriter, r *http.Request, c access.Caller) (q T, err error) {
	body, release, err := b.Read(w, r, c.Share(r))
	if err != nil {
		if _, known := reply.ProblemOf(err); known {
			return q, err
		}
		return q, request.Errorf("The request was incomplete. Send it again.")
	}
	defer release()
	if err := request.Decode(body, &q); err != nil {
		return q, request.Errorf("The request cannot be read: %v.", err)
	}
	return q, nil
}

// checkLength refuses a text that is too short or too long.
func checkLength(what, text string, least, most int) error {
	if n := utf8.RuneCountInString(text); n < least || n > most {
		return request.Errorf("%s has %d characters; it must have %d to %d", what, n, least, most)
	}
	return nil
}

// printable reports whether a name of 1 to most characters can be shown to people.
func printable(name string, most int) bool {
	n := 0
	for _, r := range name {
		if n++; !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return n >= 1 && n <= most
}

const claimOwnerSQL = `
SELECT i.identifier, coalesce((SELECT stage FROM attempts WHERE work_item_id = $1 AND claim_token = $2), '')
FROM institutions i WHERE i.id = (SELECT institution_id FROM all_work_items WHERE id = $1)`

// checkClaim returns ErrNotFound unless the caller may see the item, and a problem if
// it may not process the claim's stage, wherever the item has moved since.
func (a *API) checkClaim(ctx context.Context, c access.Caller, item, token int64) error {
	var institution string
	var stage registry.Stage
	err := a.db.QueryRow(ctx, claimOwnerSQL, item, token).Scan(&institution, &stage)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && !c.MaySee(institution):
		return fmt.Errorf("look up item %d: %w", item, registry.ErrNotFound)
	case err != nil:
		return fmt.Errorf("look up item %d: %w", item, err)
	case stage != "" && !c.MayProcess(stage):
		return reply.Problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may not process the stage " + string(stage) + "."}
	}
	return nil
}

// claimRef names a claim.
type claimRef struct {
	ID    int64 `json:"id"`
	Token int64 `json:"token"`
}

func (c claimRef) ref() claimRef { return c }
