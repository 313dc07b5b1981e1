// Package lease is the claim engine over HTTP, for stages that programs in any
// language process: they claim items, renew their leases and end their claims.
package lease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// Options say who may call the API, and how many may wait.
type Options struct {
	Caller     func(*http.Request) (access.Caller, error) // identifies callers; nil: everybody may do everything
	Stop       <-chan struct{}                            // when it closes, calls that wait are answered; nil never does
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
	remote   *claim.Remote
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
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 10_000
	}
	return &API{db: db, registry: registry.New(db), engine: engine, remote: engine.Remote(db), o: o, budget: request.NewBudget(request.Limits{MostBody: request.SmallBody}), waits: map[string]*waitlist{}}
}

//go:embed openapi.json
var openAPI []byte

// callTime bounds a call, apart from its wait for items.
const callTime = 15 * time.Second

// Routes adds the API's routes to mux.
func (a *API) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/claim", a.identified(a.claim))
	mux.HandleFunc("POST /v1/heartbeat", a.answered(a.heartbeat))
	mux.HandleFunc("POST /v1/finish", a.answered(a.finish))
	mux.HandleFunc("POST /v1/retry", a.answered(a.retry))
	mux.HandleFunc("POST /v1/fail", a.answered(a.fail))
	mux.HandleFunc("POST /v1/release", a.answered(a.release))
	mux.HandleFunc("GET /v1/items/{id}", a.answered(a.item))
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		reply.Begin(w)
		w.Header().Set("Content-Type", "application/json")
		w.Write(openAPI) //nolint:errcheck // a caller who is gone reads nothing
	})
}

// identified identifies the caller before the call is read.
func (a *API) identified(do func(http.ResponseWriter, *http.Request, access.Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.o.Caller(r)
		if err == nil && !c.May(registry.RightLease) {
			err = &access.Error{Status: http.StatusForbidden, Reason: "the token " + c.Name + " may not lease items"}
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		do(w, r, c)
	}
}

// answered makes a handler of a call that does not wait.
func (a *API) answered(do func(context.Context, http.ResponseWriter, *http.Request, access.Caller) (any, error)) http.HandlerFunc {
	return a.identified(func(w http.ResponseWriter, r *http.Request, c access.Caller) {
		ctx, cancel := context.WithTimeout(r.Context(), callTime)
		defer cancel()
		answer, err := do(ctx, w, r, c)
		if err == nil {
			err = reply.JSON(w, http.StatusOK, answer)
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	})
}

const claimOwnerSQL = `
SELECT i.identifier, coalesce((SELECT stage FROM attempts WHERE work_item_id = $1 AND claim_token = $2), '')
FROM institutions i WHERE i.id = (SELECT institution_id FROM all_work_items WHERE id = $1)`

// checkClaim returns ErrNotFound unless the caller may see the item, and a problem if
// it may not process the claim's stage, wherever the item has moved since.
func (a *API) checkClaim(ctx context.Context, c access.Caller, item, token int64) error {
	var institution, stage string
	err := a.db.QueryRow(ctx, claimOwnerSQL, item, token).Scan(&institution, &stage)
	switch err = notFound(err); {
	case err != nil:
		return fmt.Errorf("look up item %d: %w", item, err)
	case !c.MaySee(institution):
		return fmt.Errorf("look up item %d: %w", item, registry.ErrNotFound)
	case stage != "" && !c.MayProcess(stage):
		return reply.Problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may not process the stage " + stage + "."}
	}
	return nil
}

// claimRef names a claim.
type claimRef struct {
	ID    int64 `json:"id"`
	Token int64 `json:"token"`
}

func (c claimRef) ref() claimRef { return c }

// heartbeat extends the lease of a claim.
func (a *API) heartbeat(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	q, err := readNamed[struct {
		claimRef

		File string `json:"file"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	q.File = registry.CleanText(q.File)
	if err := checkLength("file", q.File, 0, 1000); err != nil {
		return nil, err
	}
	lasts, expires, err := a.remote.Renew(ctx, q.ID, q.Token, q.File)
	return struct {
		Lease   float64   `json:"lease"`
		Expires time.Time `json:"lease_expires_at"`
	}{lasts.Seconds(), expires}, err
}

// finish, retry, fail and release end a claim, each in its way.
func (a *API) finish(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	q, err := readNamed[struct {
		claimRef

		Note string `json:"note"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	q.Note = registry.CleanText(q.Note)
	if err := checkLength("note", q.Note, 0, 4000); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{Note: q.Note}, nil)
}

// ending is how a claim ends that did not finish.
type ending struct {
	claimRef

	Code   string `json:"code"`
	Reason string `json:"reason"`
}

func (e *ending) check() error {
	e.Reason = registry.CleanText(e.Reason)
	if err := checkCode(e.Code); err != nil {
		return err
	}
	return checkLength("reason", e.Reason, 1, 4000)
}

func (a *API) retry(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	q, err := readNamed[ending](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	if q.Code == "" {
		q.Code = "transient"
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{}, claim.Transient(q.Code, errors.New(q.Reason)))
}

func (a *API) fail(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	q, err := readNamed[ending](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{}, claim.Fatal(q.Code, "%s", q.Reason))
}

func (a *API) release(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	q, err := readNamed[struct {
		claimRef

		Reason string `json:"reason"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	if q.Reason = registry.CleanText(q.Reason); q.Reason == "" {
		q.Reason = "Given back by its worker."
	}
	if err := checkLength("reason", q.Reason, 1, 4000); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{}, claim.Release(q.Reason))
}

// settle ends a claim, and answers with the stage and status of its item.
func (a *API) settle(ctx context.Context, c claimRef, done claim.Done, result error) (any, error) {
	stage, status, err := a.remote.Settle(ctx, c.ID, c.Token, done, result)
	return struct {
		ID     int64  `json:"id"`
		Stage  string `json:"stage"`
		Status string `json:"status"`
	}{c.ID, stage, status}, err
}

// itemView is what a worker may see of an item. The token is only for its claimant.
type itemView struct {
	ID               int64      `json:"id"`
	Action           string     `json:"action"`
	Stage            string     `json:"stage"`
	Status           string     `json:"status"`
	Attempt          int        `json:"attempt"`
	Name             string     `json:"name"`
	Bucket           string     `json:"bucket"`
	ETag             string     `json:"etag"`
	Size             int64      `json:"size"`
	BagDate          time.Time  `json:"bag_date"`
	ObjectIdentifier string     `json:"object_identifier"`
	Institution      string     `json:"institution"`
	Note             string     `json:"note"`
	Outcome          string     `json:"outcome"`
	ErrorCode        string     `json:"error_code"`
	NeedsAdminReview bool       `json:"needs_admin_review"`
	Worker           *string    `json:"worker"`
	Node             *string    `json:"node"`
	LeaseExpiresAt   *time.Time `json:"lease_expires_at"`
	RunAt            *time.Time `json:"run_at"`
	UpdatedAt        time.Time  `json:"updated_at"`
}

// item shows an item.
func (a *API) item(ctx context.Context, _ http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return nil, reply.BadRequest("%q is not the ID of an item, a whole number from 1 on", r.PathValue("id"))
	}
	i, err := a.registry.WorkItem(ctx, id)
	if err == nil && !c.MaySee(i.Institution) {
		err = registry.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return itemView{
		i.ID, i.Action, i.Stage, i.Status, i.Attempt, i.Name, i.Bucket, i.ETag, i.Size, i.BagDate, i.ObjectIdentifier, i.Institution,
		i.Note, i.Outcome, i.ErrorCode, i.NeedsAdminReview, i.Worker, i.Node, i.LeaseExpiresAt, i.RunAt, i.UpdatedAt,
	}, nil
}
