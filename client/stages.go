package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Item is a claimed item of a stage that programs process over HTTP.
type Item struct {
	ID               int64     `json:"id"`
	Token            int64     `json:"token"` // of this claim; every later call names it
	Stage            string    `json:"stage"`
	Attempt          int       `json:"attempt"`
	MaxAttempts      int       `json:"max_attempts"`
	Name             string    `json:"name"` // key of the tar in the receiving bucket
	Bucket           string    `json:"bucket"`
	ETag             string    `json:"etag"`
	Size             int64     `json:"size"` // bytes of the tar
	BagDate          time.Time `json:"bag_date"`
	ObjectIdentifier string    `json:"object_identifier"`
	Institution      string    `json:"institution"`
	StorageOption    string    `json:"storage_option"`
	Lease            float64   `json:"lease"` // seconds until the item is lost, unless the lease is renewed
	LeaseExpiresAt   time.Time `json:"lease_expires_at"`
	Heartbeat        float64   `json:"heartbeat"` // seconds between two renewals
	Timeout          float64   `json:"timeout"`   // seconds that the stage may take; 0: as long as it needs
}

// ClaimRequest says which items to claim.
type ClaimRequest struct {
	Worker            string   `json:"worker"` // name of the worker for people; required
	Node              string   `json:"node,omitempty"`
	PID               int      `json:"pid,omitempty"`
	Stages            []string `json:"stages"`        // required
	Max               int      `json:"max,omitempty"` // 0 is 1
	MinSize           int64    `json:"min_size,omitempty"`
	MaxSize           int64    `json:"max_size,omitempty"` // exclusive; 0: no bound
	Institution       string   `json:"institution,omitempty"`
	StorageOptions    []string `json:"storage_options,omitempty"`
	Wait              float64  `json:"wait"`                         // seconds
	MinAge            float64  `json:"min_age,omitempty"`            // seconds since the item was created
	ProcessingTimeout float64  `json:"processing_timeout,omitempty"` // seconds, of a worker that sends no heartbeats
	Heartbeats        *bool    `json:"heartbeats,omitempty"`         // false: none is sent, and the stage says how long the work may take
}

// Claim claims items, and returns none if none came in time.
func (c *Client) Claim(ctx context.Context, request ClaimRequest) ([]Item, error) {
	var answer struct {
		Items []Item `json:"items"`
	}
	err := c.call(ctx, "/v1/claim", request, &answer, time.Duration(request.Wait*float64(time.Second)))
	return answer.Items, err
}

// Heartbeat renews the lease of a claim, and reports the current file; "" is none.
// The error of an item that was lost is ErrLost.
func (c *Client) Heartbeat(ctx context.Context, i Item, file string) error {
	return c.about(ctx, "/v1/heartbeat", i, map[string]any{"file": file})
}

// Finish says that a stage is done, with a note for the depositor. Repeating it is no
// error.
func (c *Client) Finish(ctx context.Context, i Item, note string) error {
	return c.about(ctx, "/v1/finish", i, map[string]any{"note": note})
}

// Retry says that the work failed and should be retried.
func (c *Client) Retry(ctx context.Context, i Item, code, reason string) error {
	more := map[string]any{"reason": reason}
	if code != "" {
		more["code"] = code
	}
	return c.about(ctx, "/v1/retry", i, more)
}

// Fail says that a retry would not help. The depositor reads the reason.
func (c *Client) Fail(ctx context.Context, i Item, code, reason string) error {
	return c.about(ctx, "/v1/fail", i, map[string]any{"code": code, "reason": reason})
}

// Release returns an item to the queue; the attempt does not count.
func (c *Client) Release(ctx context.Context, i Item, reason string) error {
	return c.about(ctx, "/v1/release", i, map[string]any{"reason": reason})
}

// about makes a call about a claim. If the claim had been ended before in the same way,
// an earlier attempt of this call did it, and only its answer was lost.
func (c *Client) about(ctx context.Context, path string, i Item, more map[string]any) error {
	more["id"], more["token"] = i.ID, i.Token
	err := c.call(ctx, path, more, &struct{}{}, 0)
	var answer *Error
	if !errors.As(err, &answer) || answer.Status != http.StatusConflict {
		return err
	}
	if answer.Code == "ended" && answer.Outcome == outcomes()[path] {
		return nil
	}
	return fmt.Errorf("item %d: %w: %w", i.ID, ErrLost, err)
}

// outcomes are how the calls end a claim, as the ledger has it.
func outcomes() map[string]string {
	return map[string]string{"/v1/finish": "done", "/v1/retry": "transient", "/v1/fail": "fatal", "/v1/release": "released"}
}

// Refused returns an error that says that the bag is at fault, for the function of a
// [StageWorker]: the item fails with a stable code, and the depositor reads the reason.
func Refused(code, reason string) error { return &refused{code, reason} }

type refused struct{ code, reason string }

func (e *refused) Error() string { return e.reason }

// StageWorker says how [Client.WorkStage] works.
type StageWorker struct {
	Claim ClaimRequest // Wait, Max and ProcessingTimeout are not used
	Slots int          // items processed at once; 0 is 1

	// Failed is called for calls to the server that failed for longer than RetryFor, and
	// for items that were lost; i is the zero Item for claims. It may be nil.
	Failed func(i Item, err error)
}

// WorkStage calls do for each item, and renews its lease until do returns. Without an
// error the item continues, with a note for the depositor. If the error is of [Refused],
// the item fails; any other error is retried. do's context ends when the item is lost,
// and with ctx: then the item is released. WorkStage returns when ctx is done and all
// items are released. An error is that of a wrong request, such as an unknown stage.
func (c *Client) WorkStage(ctx context.Context, w StageWorker, do func(context.Context, Item) (note string, err error)) error {
	if w.Failed == nil {
		w.Failed = func(Item, error) {}
	}
	w.Claim.Max, w.Claim.Wait, w.Claim.ProcessingTimeout = 1, longPoll.Seconds(), 0
	return workers(ctx, w.Slots, func(ctx context.Context) error {
		items, err := c.Claim(ctx, w.Claim)
		switch {
		case ctx.Err() != nil:
			err = nil // an item whose answer was lost is released by the server, or when its lease lapses
		case retryable(err):
			w.Failed(Item{}, err)
		}
		for _, i := range items {
			c.oneItem(ctx, w, i, do)
		}
		return err
	})
}

func (c *Client) oneItem(ctx context.Context, w StageWorker, i Item, do func(context.Context, Item) (string, error)) {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if i.Timeout > 0 {
		timed, stop := context.WithTimeout(working, time.Duration(i.Timeout*float64(time.Second)))
		defer stop()
		working = timed
	}
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	var beats sync.WaitGroup
	beats.Go(func() { c.beat(beating, i, cancel) })
	note, err := do(working, i)
	stopBeating()
	beats.Wait()
	if errors.Is(context.Cause(working), ErrLost) {
		w.Failed(i, context.Cause(working))
		return
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), c.o.RetryFor+10*time.Second)
	defer done()
	var bad *refused
	switch {
	case err == nil:
		err = c.Finish(last, i, fitting(note))
	case errors.As(err, &bad):
		err = c.Fail(last, i, bad.code, reason(bad))
	case ctx.Err() != nil:
		err = c.Release(last, i, "The worker was asked to stop.")
	default:
		err = c.Retry(last, i, "", reason(err))
	}
	if err != nil {
		w.Failed(i, err)
	}
}

// longestText is how many characters the server takes of a note or reason.
const longestText = 4000

// fitting cuts a text at the length that the server accepts: a cut text is better than an
// outcome that is not recorded.
func fitting(text string) string {
	if r := []rune(text); len(r) > longestText {
		return string(r[:longestText-1]) + "…"
	}
	return text
}

func reason(err error) string {
	if err.Error() == "" {
		return "The worker gave no reason."
	}
	return fitting(err.Error())
}

// beat renews a lease until ctx is done. When it is lost, or could not be renewed for two
// thirds of its time, the work on it ends. Before that, a server that does not answer is
// asked once more over another connection.
func (c *Client) beat(ctx context.Context, i Item, lost context.CancelCauseFunc) {
	every, lease := time.Duration(i.Heartbeat*float64(time.Second)), time.Duration(i.Lease*float64(time.Second))
	renewed, next := time.Now(), every
	for {
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		asked, end := time.Now(), renewed.Add(lease*2/3)
		if soon := asked.Add(every / 2); soon.Before(end) {
			end = soon
		}
		call, cancel := context.WithDeadline(ctx, end)
		err := c.Heartbeat(call, i, "")
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			renewed, next = asked, every
		case !retryable(err) && !errors.Is(err, context.DeadlineExceeded), time.Since(renewed) >= lease*2/3:
			lost(fmt.Errorf("item %d: %w: %w", i.ID, ErrLost, err))
			return
		default:
			next = every / 4
		}
	}
}
