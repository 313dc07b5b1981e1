package lease

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/request"
)

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
		q.Reason = "Given back by the worker."
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
		ID     int64           `json:"id"`
		Stage  registry.Stage  `json:"stage"`
		Status registry.Status `json:"status"`
	}{c.ID, stage, status}, err
}

// itemView is what a worker may see of an item. The token is only for its claimant.
type itemView struct {
	ID               int64           `json:"id"`
	Action           registry.Action `json:"action"`
	Stage            registry.Stage  `json:"stage"`
	Status           registry.Status `json:"status"`
	Attempt          int             `json:"attempt"`
	Name             string          `json:"name"`
	Bucket           string          `json:"bucket"`
	ETag             string          `json:"etag"`
	Size             int64           `json:"size"`
	BagDate          time.Time       `json:"bag_date"`
	ObjectIdentifier string          `json:"object_identifier"`
	Institution      string          `json:"institution"`
	Note             string          `json:"note"`
	Outcome          string          `json:"outcome"`
	ErrorCode        string          `json:"error_code"`
	NeedsAdminReview bool            `json:"needs_admin_review"`
	Worker           *string         `json:"worker"`
	Node             *string         `json:"node"`
	LeaseExpiresAt   *time.Time      `json:"lease_expires_at"`
	RunAt            *time.Time      `json:"run_at"`
	UpdatedAt        time.Time       `json:"updated_at"`
}

// item shows an item.
func (a *API) item(ctx context.Context, _ http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return nil, request.Errorf("%q is not the ID of an item, a whole number from 1 on", r.PathValue("id"))
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
