package lease

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/request"
)

// beat renews the lease of a claim.
type beat struct {
	claimRef

	File string `json:"file"`
}

func (a *API) heartbeat(ctx context.Context, q beat) (any, error) {
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

// finished, failed and released end a claim, each in its way.
type (
	finished struct {
		claimRef

		Note string `json:"note"`
	}
	failed struct {
		claimRef

		Code   string `json:"code"`
		Reason string `json:"reason"`
	}
	released struct {
		claimRef

		Reason string `json:"reason"`
	}
)

func (a *API) finish(ctx context.Context, q finished) (any, error) {
	q.Note = registry.CleanText(q.Note)
	if err := checkLength("note", q.Note, 0, 4000); err != nil {
		return nil, err
	}
	return a.settle(ctx, q.claimRef, claim.Done{Note: q.Note}, nil)
}

func (a *API) retry(ctx context.Context, q failed) (any, error) {
	q.Code = cmp.Or(q.Code, "transient")
	return a.endUndone(ctx, q.claimRef, checkCode(q.Code), q.Reason, func(reason string) error { return claim.Transient(q.Code, errors.New(reason)) })
}

func (a *API) fail(ctx context.Context, q failed) (any, error) {
	return a.endUndone(ctx, q.claimRef, checkCode(q.Code), q.Reason, func(reason string) error { return claim.Fatal(q.Code, "%s", reason) })
}

func (a *API) release(ctx context.Context, q released) (any, error) {
	return a.endUndone(ctx, q.claimRef, nil, cmp.Or(registry.CleanText(q.Reason), "Given back by the worker."), claim.Release)
}

// endUndone ends a claim that did not finish, unless its code is wrong.
func (a *API) endUndone(ctx context.Context, c claimRef, wrong error, reason string, result func(string) error) (any, error) {
	reason = registry.CleanText(reason)
	if err := cmp.Or(wrong, checkLength("reason", reason, 1, 4000)); err != nil {
		return nil, err
	}
	return a.settle(ctx, c, claim.Done{}, result(reason))
}

var goodCode = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// checkCode refuses a text that cannot be the code of an error.
func checkCode(text string) error {
	if !goodCode.MatchString(text) {
		return request.Errorf("code is %q; it must have 1 to 64 lower-case letters, digits and hyphens, such as virus-found", text)
	}
	return nil
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
