package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/registry"
)

// ErrNotRemote says that Farol processes a stage itself: to end it without its work would
// lose the results of the stage.
var ErrNotRemote = errors.New("farol processes this stage itself")

// ErrNoStage says that there is no stage of a name.
var ErrNoStage = errors.New("no such stage")

// EndedError is [ErrLost] of a claim that its worker has ended itself before.
type EndedError struct {
	Outcome string // as in the ledger
	Code    string
}

// Error says how the claim was ended.
func (e *EndedError) Error() string { return "this claim was ended before, as " + e.Outcome }

// Unwrap is [ErrLost].
func (e *EndedError) Unwrap() error { return ErrLost }

// Remote is the queue for workers that are no part of this process: they name an
// item and the token of their claim, and whichever process they ask knows the rest
// from the database. Nothing of a claim is kept in memory.
type Remote struct {
	engine   *Engine
	db       *pgxpool.Pool
	renewals *batch.Calls[renewal, renewedRemote]
}

// RemoteWorker is who claims.
type RemoteWorker struct {
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
	Item

	StorageOption string        // "" until the bag was read
	Lease         time.Duration // how long silence means death
	Expires       time.Time     // unless it is renewed
	Heartbeat     time.Duration // how often to renew it; 0: not at all
}

// Remote returns the queue for remote workers. db is what the engine's is.
func (e *Engine) Remote(db *pgxpool.Pool) *Remote {
	r := &Remote{engine: e, db: db}
	r.renewals = batch.New(2, 256, r.renewBatch)
	return r
}

// Check refuses stages of ingests that remote workers may not have, with [ErrNotRemote] or
// [ErrNoStage]. It finds a stage that was added a moment ago.
func (r *Remote) Check(ctx context.Context, stages []Want) error {
	err := r.engine.settings.Load().remote(stages)
	if errors.Is(err, ErrNoStage) {
		if err := r.engine.readSettings(ctx); err != nil {
			return err
		}
		err = r.engine.settings.Load().remote(stages)
	}
	return err
}

func (s *settings) remote(stages []Want) error {
	for _, w := range stages {
		st, ok := s.stages[stageKey{registry.Ingest, w.Stage}]
		switch {
		case !ok:
			return fmt.Errorf("%w: %s", ErrNoStage, w.Stage)
		case st.Worker != remoteWorker:
			return fmt.Errorf("%w: %s", ErrNotRemote, w.Stage)
		}
	}
	return nil
}

// unrenewed is the lease of a worker that sends no heartbeats: the longest of those
// of the stages that it asks for.
func (s *settings) unrenewed(stages []Want) (lease time.Duration) {
	for _, w := range stages {
		lease = max(lease, s.of(registry.Ingest, w.Stage).UnrenewedLease)
	}
	return lease
}

// Claim takes up to n items of an ingest for a remote worker, as [Engine.Claim]
// does. Items that cannot be handed out for an error are given back.
func (r *Remote) Claim(ctx context.Context, f Filter, n int, w RemoteWorker) ([]Leased, error) {
	if err := r.Check(ctx, f.Stages); err != nil {
		return nil, err
	}
	who := claimant{identity: identity{node: w.Node, pid: w.PID, worker: w.Name}, lease: 3 * w.Timeout}
	if w.Silent && w.Timeout == 0 {
		who.lease = r.engine.settings.Load().unrenewed(f.Stages)
	}
	items, err := r.engine.claims.claimAs(ctx, f, n, who)
	if len(items) == 0 {
		return nil, err
	}
	ids, tokens, at := make([]int64, len(items)), make([]int64, len(items)), map[int64]Item{}
	for i, item := range items {
		ids[i], tokens[i], at[item.ID] = item.ID, item.Token, item
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTime) // they are claimed, whether the caller waits or not
	defer cancel()
	rows, _ := r.db.Query(bounded, remoteLeasesSQL, ids, tokens)
	list := make([]Leased, 0, len(items))
	var l Leased
	_, err = pgx.ForEachRow(rows, []any{&l.ID, &l.Expires, &l.StorageOption}, func() error {
		l.Item = at[l.ID]
		l.Lease, l.Heartbeat = l.lease, r.engine.settings.Load().of(l.Action, l.Stage).Heartbeat
		if w.Timeout > 0 || w.Silent {
			l.Heartbeat = 0
		}
		if w.Silent && w.Timeout == 0 {
			l.Timeout = r.engine.settings.Load().of(l.Action, l.Stage).UnrenewedTimeout
		}
		list = append(list, l)
		return nil
	})
	if err != nil {
		r.Release(bounded, items, "The claim was not completed.")
		return nil, fmt.Errorf("read what was claimed: %w", err)
	}
	return list, nil
}

// Release gives items back as if they had not been claimed. If it cannot, their
// leases lapse.
func (r *Remote) Release(ctx context.Context, items []Item, why string) {
	r.engine.settler.giveBack(ctx, items, why)
}

type renewal struct {
	item, token int64
	file        string
}

// renewedRemote is the result of a renewal.
type renewedRemote struct {
	state   string        // renewed; late: the stage took longer than it may; locked by a transaction; "": lost
	lasts   time.Duration // of the lease; of the stage if it is late
	expires time.Time
}

// Renew extends the lease of a claim, and notes the current file unless it is "".
// It returns [ErrLost] if the item is no longer this claim's, or if the stage
// has taken longer than it may: the attempt then ends.
func (r *Remote) Renew(ctx context.Context, item, token int64, file string) (lasts time.Duration, expires time.Time, err error) {
	l, err := r.renewals.Ask(ctx, renewal{item, token, registry.StorableText(file)})
	switch {
	case err != nil:
		return 0, time.Time{}, err
	case l.state == "locked":
		return 0, time.Time{}, fmt.Errorf("renew the lease of item %d: %w", item, errLocked)
	case l.state == "late":
		why := fmt.Errorf("the stage did not end within %v", l.lasts)
		if _, _, err := r.Settle(ctx, item, token, Done{}, Transient("timeout", why)); err != nil {
			return 0, time.Time{}, err
		}
		return 0, time.Time{}, fmt.Errorf("renew the lease of item %d: %w: %w", item, why, ErrLost)
	case l.state == "":
		return 0, time.Time{}, r.whyLost(ctx, item, token)
	}
	return l.lasts, l.expires, nil
}

func (r *Remote) renewBatch(ctx context.Context, list []renewal) ([]renewedRemote, error) {
	inOrder := slices.SortedFunc(slices.Values(list), func(a, b renewal) int { return cmp.Compare(a.item, b.item) }) // of locks
	found := map[[2]int64]renewedRemote{}
	err := registry.Again(func() error {
		rows, _ := r.db.Query(ctx, renewRemoteSQL, column(inOrder, func(r *renewal) int64 { return r.item }),
			column(inOrder, func(r *renewal) int64 { return r.token }), column(inOrder, func(r *renewal) string { return r.file }))
		var key [2]int64
		var l renewedRemote
		_, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &l.state, &l.lasts, &l.expires}, func() error {
			found[key] = l
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d leases: %w", len(list), err)
	}
	return column(list, func(r *renewal) renewedRemote { return found[[2]int64{r.item, r.token}] }), nil
}

// Settle ends a claim with the result of its work, as [Hold.Settle] does, and
// returns the stage and status of the item afterwards. Where the item goes on to
// is known here: done.Next is not looked at. A claim that its worker has ended
// before is an [EndedError].
func (r *Remote) Settle(ctx context.Context, item, token int64, done Done, result error) (stage registry.Stage, status registry.Status, err error) {
	end, err := r.claimed(ctx, item, token)
	if err != nil {
		return "", "", err
	}
	end.Done, end.Result = done, result
	if end.Done.Next = r.engine.NextStage(end.Item.Action, end.Item.Stage); end.Done.Next == "" { // it was removed this moment, or added
		if err := r.engine.readSettings(ctx); err != nil {
			return "", "", err
		}
		if end.Done.Next = r.engine.NextStage(end.Item.Action, end.Item.Stage); end.Done.Next == "" {
			return "", "", fmt.Errorf("settle item %d: %w: %s", item, ErrNoStage, end.Item.Stage)
		}
	}
	err = r.engine.Settle(ctx, []Ending{end})[0]
	if errors.Is(err, ErrLost) {
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

// claimed reads of an item what its transition needs. The token is compared again
// when that is made.
func (r *Remote) claimed(ctx context.Context, item, token int64) (end Ending, err error) {
	i := &end.Item
	i.ID, i.Token = item, token
	worker := ""
	err = r.db.QueryRow(ctx, remoteClaimSQL, item, token).
		Scan(&i.Action, &i.Stage, &i.Attempt, &i.band, &i.at.Priority, &i.at.VirtualStart, &worker, &end.File)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return end, r.whyLost(ctx, item, token)
	case err != nil:
		return end, fmt.Errorf("read the claim on item %d: %w", item, err)
	case worker != remoteWorker:
		return end, fmt.Errorf("item %d: %w: %s", item, ErrNotRemote, i.Step())
	}
	i.MaxAttempts = r.engine.settings.Load().of(i.Action, i.Stage).MaxAttempts
	return end, nil
}

// whyLost is ErrLost, with how the claim ended if its worker ended it: then the worker
// knows that only the answer was lost.
func (r *Remote) whyLost(ctx context.Context, item, token int64) error {
	var end EndedError
	err := r.db.QueryRow(ctx, `SELECT coalesce(outcome, ''), error_code FROM attempts WHERE work_item_id = $1 AND claim_token = $2`, item, token).
		Scan(&end.Outcome, &end.Code)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("ask how the claim on item %d ended: %w", item, err)
	case err != nil || end.Code == "by-hand" || !slices.Contains([]string{"done", "transient", "fatal", "released"}, end.Outcome):
		return fmt.Errorf("item %d: %w", item, ErrLost)
	}
	return fmt.Errorf("item %d: %w", item, &end)
}
