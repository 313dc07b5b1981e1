package nsqcompat

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
)

// LeaseOptions is how the lease API treats who calls it.
type LeaseOptions struct {
	// Caller finds out who makes a request. nil: everybody may everything.
	Caller func(*http.Request) (Caller, error)

	// Stop ends all that wait for items, when it is closed; nil: nothing does. A
	// server is shut down quicker with it.
	Stop <-chan struct{}

	MaxWaiting int // claims that wait for items at once; 0 is 10,000
	Log        *slog.Logger
}

// LeaseAPI is the queue over HTTP, for stages that are worked by programs in any
// language: they claim items, renew their leases and end them, each by its token.
// It keeps nothing of a claim, so any process may serve any of the calls.
type LeaseAPI struct {
	db       *pgxpool.Pool
	registry *registry.Registry
	engine   *claim.Engine
	remote   *claim.Remote
	o        LeaseOptions
	in       intakes

	mu      sync.Mutex
	lines   map[string]*line // of those that wait, by what they want
	waiting int
}

// NewLeaseAPI returns the API to the queue in db. Somebody has to run the engine,
// or those that wait for items find them by polling only.
func NewLeaseAPI(db *pgxpool.Pool, engine *claim.Engine, o LeaseOptions) *LeaseAPI {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Caller == nil {
		o.Caller = func(*http.Request) (Caller, error) { return Caller{}, nil }
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 10_000
	}
	return &LeaseAPI{db: db, registry: registry.New(db), engine: engine, remote: engine.Remote(db), o: o, in: newIntakes(mostBody), lines: map[string]*line{}}
}

//go:embed openapi.json
var openAPI []byte

// callTime bounds what a call does besides waiting for items.
const callTime = 15 * time.Second

// Routes adds the API's routes to mux.
func (a *LeaseAPI) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/claim", a.identified(a.claim))
	mux.HandleFunc("POST /v1/heartbeat", a.answered(a.heartbeat))
	mux.HandleFunc("POST /v1/finish", a.answered(a.finish))
	mux.HandleFunc("POST /v1/retry", a.answered(a.retry))
	mux.HandleFunc("POST /v1/fail", a.answered(a.fail))
	mux.HandleFunc("POST /v1/release", a.answered(a.release))
	mux.HandleFunc("GET /v1/items/{id}", a.answered(a.item))
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		answering(w)
		w.Header().Set("Content-Type", "application/json")
		w.Write(openAPI) //nolint:errcheck // who is gone reads nothing
	})
}

// identified finds out who calls before a call is looked at.
func (a *LeaseAPI) identified(do func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.o.Caller(r)
		if err == nil && !c.May(registry.RightLease) {
			err = &AccessError{http.StatusForbidden, "the token " + c.Name + " may not lease items"}
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		do(w, r, c)
	}
}

// answered makes a handler of what answers at once.
func (a *LeaseAPI) answered(do func(context.Context, http.ResponseWriter, *http.Request, Caller) (any, error)) http.HandlerFunc {
	return a.identified(func(w http.ResponseWriter, r *http.Request, c Caller) {
		ctx, cancel := context.WithTimeout(r.Context(), callTime)
		defer cancel()
		answer, err := do(ctx, w, r, c)
		if err == nil {
			err = writeJSON(w, answer)
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	})
}

// own returns ErrNotFound unless the caller may know of the item, and refuses it
// what it may not work on: the claim's stage counts, whatever the item has come to.
func (a *LeaseAPI) own(ctx context.Context, c Caller, item, token int64) error {
	var institution, stage string
	err := a.db.QueryRow(ctx, `
		SELECT i.identifier, coalesce((SELECT stage FROM attempts WHERE work_item_id = $1 AND claim_token = $2), '')
		FROM institutions i WHERE i.id = (SELECT institution_id FROM all_work_items WHERE id = $1)`, item, token).Scan(&institution, &stage)
	switch err = notFound(err); {
	case err != nil:
		return fmt.Errorf("look up item %d: %w", item, err)
	case !c.maySee(institution):
		return fmt.Errorf("look up item %d: %w", item, registry.ErrNotFound)
	case stage != "" && !c.mayWork(stage):
		return problem{Status: http.StatusForbidden, Code: "not-allowed", Detail: "You may not work on the stage " + stage + "."}
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
func (a *LeaseAPI) heartbeat(ctx context.Context, w http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	q, err := named[struct {
		claimRef

		File string `json:"file"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	q.File = registry.CleanText(q.File)
	if err := bounded("file", q.File, 0, 1000); err != nil {
		return nil, err
	}
	lasts, expires, err := a.remote.Renew(ctx, q.ID, q.Token, q.File)
	return struct {
		Lease   float64   `json:"lease"`
		Expires time.Time `json:"lease_expires_at"`
	}{lasts.Seconds(), expires}, err
}

// finish, retry, fail and release end a claim, each in its way.
func (a *LeaseAPI) finish(ctx context.Context, w http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	q, err := named[struct {
		claimRef

		Note string `json:"note"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	q.Note = registry.CleanText(q.Note)
	if err := bounded("note", q.Note, 0, 4000); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{Note: q.Note}, nil)
}

// ending is how a claim ends whose work is not done.
type ending struct {
	claimRef

	Code   string `json:"code"`
	Reason string `json:"reason"`
}

func (e *ending) check() error {
	e.Reason = registry.CleanText(e.Reason)
	if err := code(e.Code); err != nil {
		return err
	}
	return bounded("reason", e.Reason, 1, 4000)
}

func (a *LeaseAPI) retry(ctx context.Context, w http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	q, err := named[ending](ctx, a, w, r, c)
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

func (a *LeaseAPI) fail(ctx context.Context, w http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	q, err := named[ending](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{}, claim.Fatal(q.Code, "%s", q.Reason))
}

func (a *LeaseAPI) release(ctx context.Context, w http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	q, err := named[struct {
		claimRef

		Reason string `json:"reason"`
	}](ctx, a, w, r, c)
	if err != nil {
		return nil, err
	}
	if q.Reason = registry.CleanText(q.Reason); q.Reason == "" {
		q.Reason = "Given back by its worker."
	}
	if err := bounded("reason", q.Reason, 1, 4000); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{}, claim.Release(q.Reason))
}

// settle ends a claim and answers with what has become of the item.
func (a *LeaseAPI) settle(ctx context.Context, c claimRef, done claim.Done, result error) (any, error) {
	stage, status, err := a.remote.Settle(ctx, c.ID, c.Token, done, result)
	return struct {
		ID     int64  `json:"id"`
		Stage  string `json:"stage"`
		Status string `json:"status"`
	}{c.ID, stage, status}, err
}

// itemView is what a worker may know of an item. Its token is for who claimed it.
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

// item tells how an item stands.
func (a *LeaseAPI) item(ctx context.Context, _ http.ResponseWriter, r *http.Request, c Caller) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return nil, badRequest("%q is not the ID of an item, a whole number from 1 on", r.PathValue("id"))
	}
	i, err := a.registry.WorkItem(ctx, id)
	if err == nil && !c.maySee(i.Institution) {
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
