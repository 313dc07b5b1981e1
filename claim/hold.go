package claim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Hold is an item in hand. Its context ends with the cause [ErrLost] as soon as
// this process learns that the item is no longer its own.
type Hold struct {
	Item Item

	engine *Engine
	ctx    context.Context //nolint:containedctx // the context is the lease: it lives as long as this value
	cancel context.CancelCauseFunc
	inHand atomic.Pointer[string]
}

// Hold starts renewing the item's lease with every heartbeat of the process. The
// caller works under [Hold.Context] and ends with [Hold.Settle].
func (e *Engine) Hold(ctx context.Context, item Item) *Hold {
	h := &Hold{Item: item, engine: e}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	e.mu.Lock()
	e.held[item.ID] = h
	e.mu.Unlock()
	return h
}

// Context is done when the item is lost, or when the context given to
// [Engine.Hold] is.
func (h *Hold) Context() context.Context { return h.ctx }

// InHand names the file being worked on. It is written to the ledger with the
// next heartbeat, so that what killed a worker can be named.
func (h *Hold) InHand(file string) { h.inHand.Store(&file) }

func (h *Hold) file() string {
	if f := h.inHand.Load(); f != nil {
		return *f
	}
	return ""
}

// Check asks whether the item is still in hand, before something is done that
// could not be taken back. It asks the registry only when the last heartbeat is
// so long ago that the lease may have lapsed, as after the process was stopped
// for a while.
func (h *Hold) Check(ctx context.Context) error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
	}
	e := h.engine
	e.mu.Lock()
	fresh := time.Since(e.beat) < e.options.Lease/2
	e.mu.Unlock()
	if fresh {
		return nil
	}
	if err := e.heartbeat(ctx); err != nil {
		return fmt.Errorf("check the claim on item %d: %w", h.Item.ID, err)
	}
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
	}
	return nil
}

// Do runs a stage's work and turns a panic in it into an error, so that one bad
// bag does not take the others in this process with it.
func (h *Hold) Do(work func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.engine.log.ErrorContext(h.ctx, "stage panicked", "item", h.Item.ID, "stage", h.Item.Stage, "panic", p, "stack", string(debug.Stack()))
			err = &ending{kind: endPanic, code: "panic", err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return work(h.ctx)
}

// Release is the result of work that was stopped for no fault of its own: the
// item goes back at once and the attempt does not count.
func Release(why string) error {
	return &ending{kind: endRelease, code: "released", err: errors.New(why)}
}

// The transition is one statement: the item and the ledger, and where the item
// goes on to a stage the topic message, which is left out elsewhere, since
// planning it in costs as much as running it. What waited for an item that has
// ended is let go of by the trigger work_item_ended.
const settleSQL = `
WITH moved AS (
	UPDATE work_items SET
		stage                  = @stage,
		status                 = @status,
		claim_token            = claim_token + 1,
		entered_token          = CASE WHEN stage = @stage THEN entered_token ELSE claim_token + 1 END,
		attempt                = @attempt,
		run_at                 = now() + CASE WHEN @backoff THEN (
			SELECT least(s.backoff_first * 2 ^ least(work_items.attempt - 1, 20), s.backoff_most)
			FROM stage_settings s WHERE s.action = work_items.action AND s.stage = work_items.stage
		) ELSE @delay::interval END,
		lease_expires_at       = NULL,
		node                   = NULL,
		pid                    = NULL,
		worker                 = NULL,
		retry                  = @retry,
		needs_admin_review     = @review,
		note                   = @note,
		outcome                = CASE WHEN @outcome::text = '' THEN outcome ELSE @outcome END,
		error_code             = @code,
		intellectual_object_id = coalesce(@object_id, intellectual_object_id),
		updated_at             = now()
	WHERE id = @id AND claim_token = @token AND status = 'Started'
	RETURNING id, action, stage
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), heard_at = now(), outcome = @ended, error_code = @code, error = @error, file_in_hand = @in_hand
	FROM moved
	WHERE a.work_item_id = moved.id AND a.claim_token = @token
`

const settleSaidSQL = `), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT s.topic, moved.id::text, moved.id
	FROM moved JOIN stage_settings s ON s.action = moved.action AND s.stage = moved.stage
`

func (m move) statement() string {
	sql := settleSQL
	if m.Publish {
		sql += settleSaidSQL
	}
	return sql + `) SELECT count(*) FROM moved`
}

// Settle ends the claim with what the work came to. It returns ErrLost, and
// changes nothing, if the item is no longer this worker's; any other error means
// that it is not known whether the item was moved, and that the caller may call
// again: a second call after a first that did land returns ErrLost.
func (h *Hold) Settle(ctx context.Context, done Done, result error) error {
	e := h.engine
	result, err := e.endSendingBack(ctx, h.Item, result)
	if err != nil {
		return err
	}
	m := decide(h.Item, done, result)
	rows, _ := e.db.Query(ctx, m.statement(), pgx.NamedArgs{
		"id": h.Item.ID, "token": h.Item.Token,
		"stage": m.Stage, "status": m.Status, "attempt": m.Attempt,
		"backoff": m.Delay < 0, "delay": max(m.Delay, 0),
		"retry": m.Retry, "review": m.Review, "note": m.Note, "outcome": m.Outcome,
		"object_id": m.ObjectID,
		"ended":     m.Ended, "code": m.Code, "error": m.Error, "in_hand": h.file(),
	})
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return fmt.Errorf("settle item %d at %s: %w", h.Item.ID, h.Item.Stage, err)
	}
	h.drop(nil)
	if n == 0 {
		return fmt.Errorf("settle item %d at %s: %w", h.Item.ID, h.Item.Stage, ErrLost)
	}
	if m.Status == "Pending" && m.Delay == 0 {
		e.wake.local(m.Stage)
	}
	return nil
}

// mostSentBack is how often an item may be sent back before a person has to
// look at where its interim data goes.
const mostSentBack = 3

// endSendingBack suspends an item that was sent back too often.
func (e *Engine) endSendingBack(ctx context.Context, item Item, result error) (error, error) {
	var end *ending
	if !errors.As(result, &end) || end.kind != endSendBack {
		return result, nil
	}
	var n int
	err := e.db.QueryRow(ctx, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'sent back'`,
		item.ID).Scan(&n)
	if err != nil {
		return nil, fmt.Errorf("count how often item %d was sent back: %w", item.ID, err)
	}
	if n < mostSentBack {
		return result, nil
	}
	return Suspend("sent-back", fmt.Sprintf("%s This happened %d times before.", end.Error(), n)), nil
}

// Abandon stops renewing the lease without a word to the registry. The item
// goes to another worker when the lease lapses.
func (h *Hold) Abandon() { h.drop(nil) }

func (h *Hold) drop(cause error) {
	e := h.engine
	e.mu.Lock()
	if e.held[h.Item.ID] == h {
		delete(e.held, h.Item.ID)
	}
	e.mu.Unlock()
	h.cancel(cause)
}

// beatSQL renews all leases of this process at once and says which it renewed.
// A token that is not among them is lost.
const beatSQL = `
WITH renewed AS (
	UPDATE work_items w SET lease_expires_at = now() + @lease::interval
	FROM unnest(@ids::bigint[], @tokens::bigint[]) AS held (id, token)
	WHERE w.id = held.id AND w.claim_token = held.token AND w.status = 'Started'
	RETURNING w.id, w.claim_token
), heard AS (
	UPDATE work_item_attempts a SET heard_at = now(), file_in_hand = held.in_hand
	FROM renewed
	JOIN unnest(@ids::bigint[], @in_hand::text[]) AS held (id, in_hand) ON held.id = renewed.id
	WHERE a.work_item_id = renewed.id AND a.claim_token = renewed.claim_token
)
SELECT id FROM renewed`

// heartbeat renews every lease of this process and ends the work on those that
// are lost.
func (e *Engine) heartbeat(ctx context.Context) error {
	e.mu.Lock()
	holds := make([]*Hold, 0, len(e.held))
	for _, h := range e.held {
		holds = append(holds, h)
	}
	e.mu.Unlock()
	start := time.Now()
	if len(holds) > 0 {
		kept, err := e.renew(ctx, holds)
		if err != nil {
			return err
		}
		for _, h := range holds {
			if !kept[h.Item.ID] && h.ctx.Err() == nil && e.holds(h) {
				e.log.WarnContext(ctx, "claim lost", "item", h.Item.ID, "stage", h.Item.Stage, "token", h.Item.Token)
				h.drop(ErrLost)
			}
		}
	}
	e.mu.Lock()
	e.beat = start
	e.mu.Unlock()
	return nil
}

func (e *Engine) renew(ctx context.Context, holds []*Hold) (map[int64]bool, error) {
	ids, tokens, inHand := make([]int64, len(holds)), make([]int64, len(holds)), make([]string, len(holds))
	for i, h := range holds {
		ids[i], tokens[i], inHand[i] = h.Item.ID, h.Item.Token, h.file()
	}
	rows, _ := e.db.Query(ctx, beatSQL, pgx.NamedArgs{
		"ids": ids, "tokens": tokens, "in_hand": inHand, "lease": e.options.Lease,
	})
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("renew %d leases: %w", len(holds), err)
	}
	kept := make(map[int64]bool, len(list))
	for _, id := range list {
		kept[id] = true
	}
	return kept, nil
}

// holds tells whether h is still in hand: it may have been settled while the
// heartbeat was under way, and is then not lost.
func (e *Engine) holds(h *Hold) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[h.Item.ID] == h
}

// stopIfDeaf ends all work of a process that could not renew its leases for two
// thirds of their time: soon they are someone else's.
func (e *Engine) stopIfDeaf(ctx context.Context) {
	e.mu.Lock()
	deaf := time.Since(e.beat) > e.options.Lease*2/3
	var holds []*Hold
	if deaf {
		for _, h := range e.held {
			holds = append(holds, h)
		}
	}
	e.mu.Unlock()
	for _, h := range holds {
		e.log.WarnContext(ctx, "stopping work whose lease cannot be renewed", "item", h.Item.ID, "stage", h.Item.Stage)
		h.drop(fmt.Errorf("no heartbeat for %v: %w", e.options.Lease*2/3, ErrLost))
	}
}
