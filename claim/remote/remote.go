// Package remote is the queue for workers that are no part of this process. An item and the
// token of a claim come in, with what the worker says of its work; leases, and where the item
// went, go out. Whichever process such a worker asks knows the rest from the database: nothing
// of a claim is kept in memory.
package remote

import (
	"cmp"
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/span"
)

// ErrNotRemote says that Farol processes a stage itself: to end it without its work would
// lose the results of the stage.
var ErrNotRemote = errors.New("farol processes this stage itself")

// ErrNoStage says that there is no stage of a name.
var ErrNoStage = errors.New("no such stage")

// EndedError is [claim.ErrLost] of a claim that its worker has ended itself before.
type EndedError struct {
	Outcome string // as in the ledger
	Code    string
}

// Error says how the claim was ended.
func (e *EndedError) Error() string { return "this claim was ended before, as " + e.Outcome }

// Unwrap is [claim.ErrLost].
func (e *EndedError) Unwrap() error { return claim.ErrLost }

// Queue is the queue as remote workers use it.
type Queue struct {
	engine   *claim.Engine
	db       *pgxpool.Pool
	renewals *batch.Calls[renewal, renewed]
}

// Worker is who claims.
type Worker struct {
	Name string
	Node string
	PID  int

	// Timeout is how long a worker that cannot heartbeat may take: its lease is three
	// times that. 0: it can.
	Timeout time.Duration

	// Silent says that it cannot heartbeat, and does not know how long it will take:
	// then the stages' settings for such workers apply.
	Silent bool
}

// Leased is an item that was claimed for a remote worker.
type Leased struct {
	claim.Item

	Expires   time.Time     // of the lease, unless it is renewed
	Heartbeat time.Duration // how often to renew it; 0: not at all
}

// New returns the queue for remote workers. db is what the engine's is.
func New(e *claim.Engine, db *pgxpool.Pool) *Queue {
	r := &Queue{engine: e, db: db}
	r.renewals = batch.New(2, 256, r.renewBatch)
	return r
}

// Check refuses stages of ingests that remote workers may not have, with [ErrNotRemote] or
// [ErrNoStage]. It finds a stage that was added a moment ago.
func (r *Queue) Check(ctx context.Context, wants []claim.Want) error {
	err := check(r.engine.Settings(), wants)
	if errors.Is(err, ErrNoStage) {
		if err := r.engine.ReadSettings(ctx); err != nil {
			return err
		}
		err = check(r.engine.Settings(), wants)
	}
	return err
}

func check(known *stages.All, wants []claim.Want) error {
	for _, w := range wants {
		switch known.WorkerOf(registry.Ingest, w.Stage) {
		case stages.Remote:
		case "":
			return fmt.Errorf("%w: %s", ErrNoStage, w.Stage)
		default:
			return fmt.Errorf("%w: %s", ErrNotRemote, w.Stage)
		}
	}
	return nil
}

//go:embed sql/remote_leases.sql
var leasesSQL string

// Claim takes up to n items of an ingest for a remote worker, as [claim.Engine.Claim]
// does. Items that cannot be handed out for an error are given back.
func (r *Queue) Claim(ctx context.Context, f claim.Filter, n int, w Worker) ([]Leased, error) {
	if err := r.Check(ctx, f.Stages); err != nil {
		return nil, err
	}
	known, unknown := r.engine.Settings(), w.Silent && w.Timeout == 0 // how long it will take
	who := claim.Claimant{Worker: w.Name, Node: w.Node, PID: w.PID, Lease: 3 * w.Timeout}
	for _, want := range f.Stages {
		if unknown {
			who.Lease = max(who.Lease, known.Of(registry.Ingest, want.Stage).UnrenewedLease)
		}
	}
	items, err := r.engine.ClaimFor(ctx, f, n, who)
	if len(items) == 0 {
		return nil, err
	}
	at := map[int64]claim.Item{}
	for _, item := range items {
		at[item.ID] = item
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), batch.Timeout) // they are claimed, whether the caller waits or not
	defer cancel()
	rows, _ := r.db.Query(bounded, leasesSQL,
		lane.Column(items, func(i *claim.Item) int64 { return i.ID }), lane.Column(items, func(i *claim.Item) int64 { return i.Token }))
	list := make([]Leased, 0, len(items))
	var l Leased
	_, err = pgx.ForEachRow(rows, []any{&l.ID, &l.Expires}, func() error {
		l.Item = at[l.ID]
		st := known.Of(l.Action, l.Stage)
		if l.Heartbeat = st.Heartbeat; w.Timeout > 0 || w.Silent {
			l.Heartbeat = 0
		}
		if unknown {
			l.Timeout = st.UnrenewedTimeout
		}
		list = append(list, l)
		return nil
	})
	if err != nil {
		r.engine.Release(bounded, items, "The claim was not completed.")
		return nil, fmt.Errorf("read what was claimed: %w", err)
	}
	return list, nil
}

type renewal struct {
	item, token int64
	file        string
}

// renewed is the result of a renewal.
type renewed struct {
	state   string        // renewed; late: the stage took longer than it may; locked by a transaction; "": lost
	lasts   time.Duration // of the lease; of the stage if it is late
	expires time.Time
}

//go:embed sql/renew_remote.sql
var renewSQL string

// Renew extends the lease of a claim, and notes the current file unless it is "".
// It returns [claim.ErrLost] if the item is no longer this claim's, or if the stage
// has taken longer than it may: the attempt then ends.
func (r *Queue) Renew(ctx context.Context, item, token int64, file string) (lasts time.Duration, expires time.Time, err error) {
	l, err := r.renewals.Ask(ctx, renewal{item, token, registry.StorableText(file)})
	switch {
	case err != nil:
		return 0, time.Time{}, err
	case l.state == "locked":
		return 0, time.Time{}, fmt.Errorf("renew the lease of item %d: %w", item, claim.ErrLocked)
	case l.state == "late":
		why := fmt.Errorf("the stage did not end within %v", l.lasts)
		if _, _, err := r.Settle(ctx, item, token, claim.Done{}, claim.Transient("timeout", why)); err != nil {
			return 0, time.Time{}, err
		}
		return 0, time.Time{}, fmt.Errorf("renew the lease of item %d: %w: %w", item, why, claim.ErrLost)
	case l.state == "":
		return 0, time.Time{}, r.whyLost(ctx, item, token)
	}
	return l.lasts, l.expires, nil
}

func (r *Queue) renewBatch(ctx context.Context, list []renewal) ([]renewed, error) {
	inOrder := slices.SortedFunc(slices.Values(list), func(a, b renewal) int { return cmp.Compare(a.item, b.item) }) // of locks
	found := map[[2]int64]renewed{}
	err := registry.Again(func() error {
		rows, _ := r.db.Query(ctx, renewSQL, lane.Column(inOrder, func(r *renewal) int64 { return r.item }),
			lane.Column(inOrder, func(r *renewal) int64 { return r.token }), lane.Column(inOrder, func(r *renewal) string { return r.file }))
		var key [2]int64
		var l renewed
		_, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &l.state, &l.lasts, &l.expires}, func() error {
			found[key] = l
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d leases: %w", len(list), err)
	}
	return lane.Column(list, func(r *renewal) renewed { return found[[2]int64{r.item, r.token}] }), nil
}

// Settle ends a claim with the result of its work, as [claim.Hold.Settle] does, and
// returns the stage and status of the item afterwards. Where the item goes on to
// is known here: done.Next is not looked at. A claim that its worker has ended
// before is an [EndedError].
func (r *Queue) Settle(ctx context.Context, item, token int64, done claim.Done, result error) (stage registry.Stage, status registry.Status, err error) {
	end, err := r.claimed(ctx, item, token)
	if err != nil {
		return "", "", err
	}
	end.Done, end.Result = done, result
	if end.Done.Next = r.engine.NextStage(end.Item.Action, end.Item.Stage); end.Done.Next == "" { // it was removed this moment, or added
		if err := r.engine.ReadSettings(ctx); err != nil {
			return "", "", err
		}
		if end.Done.Next = r.engine.NextStage(end.Item.Action, end.Item.Stage); end.Done.Next == "" {
			return "", "", fmt.Errorf("settle item %d: %w: %s", item, ErrNoStage, end.Item.Stage)
		}
	}
	err = r.engine.Settle(ctx, []claim.Ending{end})[0]
	if errors.Is(err, claim.ErrLost) {
		return "", "", r.whyLost(ctx, item, token)
	}
	if err != nil {
		return "", "", err
	}
	if err := r.db.QueryRow(ctx, `SELECT stage, status FROM all_work_items WHERE id = $1`, item).Scan(&stage, &status); err != nil {
		return "", "", fmt.Errorf("read item %d: %w", item, err)
	}
	return stage, status, nil
}

//go:embed sql/remote_claim.sql
var claimSQL string

// claimed reads of an item what its transition needs. The token is compared again
// when that is made.
func (r *Queue) claimed(ctx context.Context, item, token int64) (end claim.Ending, err error) {
	i := &end.Item
	i.ID, i.Token = item, token
	worker, of := "", span.Attempt{Item: item, Token: token}
	err = r.db.QueryRow(ctx, claimSQL, item, token).
		Scan(&i.Action, &i.Stage, &i.Attempt, &i.Band, &i.At.Priority, &i.At.VirtualStart, &worker, &end.File,
			&of.Created, &of.Began, &of.Institution, &of.Size, &of.Worker)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return end, r.whyLost(ctx, item, token)
	case err != nil:
		return end, fmt.Errorf("read the claim on item %d: %w", item, err)
	case worker != stages.Remote:
		return end, fmt.Errorf("item %d: %w: %s", item, ErrNotRemote, i.Step())
	}
	end.Of = &of
	i.MaxAttempts = r.engine.Settings().Of(i.Action, i.Stage).MaxAttempts
	return end, nil
}

// whyLost is claim.ErrLost, with how the claim ended if its worker ended it: then the worker
// knows that only the answer was lost.
func (r *Queue) whyLost(ctx context.Context, item, token int64) error {
	var end EndedError
	err := r.db.QueryRow(ctx, `SELECT coalesce(outcome, ''), error_code FROM attempts WHERE work_item_id = $1 AND claim_token = $2`, item, token).
		Scan(&end.Outcome, &end.Code)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("ask how the claim on item %d ended: %w", item, err)
	case err != nil || end.Code == "by-hand" || !slices.Contains([]string{"done", "transient", "fatal", "released"}, end.Outcome):
		return fmt.Errorf("item %d: %w", item, claim.ErrLost)
	}
	return fmt.Errorf("item %d: %w", item, &end)
}
