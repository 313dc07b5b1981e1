package claim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// cancels cancels an item in a transaction that it does not commit.
func (q *queue) cancels(id int64) pgx.Tx {
	q.t.Helper()
	tx := must.Get(q.db.Begin(context.Background()))(q.t)
	q.t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // it may have ended
	must.Get(tx.Exec(context.Background(), `SELECT cancel($1)`, id))(q.t)
	return tx
}

// A claim does not wait for a transaction that has locked an item: it takes the others, and
// a later claim takes that one.
func TestClaimPassesOverALockedItem(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	locked, other := q.put("Receive", 1), q.put("Receive", 1)
	tx := q.cancels(locked)
	items, err := e.Claim(t.Context(), at("Receive", 2), 2)
	if err != nil || len(items) != 1 || items[0].ID != other {
		t.Fatalf("Claim = %+v, %v; want item %d", items, err, other)
	}
	must.Do(t, tx.Rollback(t.Context()))
	testenv.Eventually(t, "the item that was locked", func() bool {
		items, err := e.Claim(t.Context(), at("Receive", 2), 2)
		return err == nil && len(items) == 1 && items[0].ID == locked
	})
}

// A transaction that has locked one item of a worker keeps the worker from renewing that
// lease, and no other. While it is open the item is not lost.
func TestLockedItemHoldsUpNoOtherLease(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	q := newQueue(t)
	e := q.engine()
	q.put("Receive", 1)
	q.put("Receive", 1)
	locked, other := q.claimOne(e, "Receive"), q.claimOne(e, "Receive")
	q.exec(`UPDATE work_items SET lease_expires_at = now() + interval '5 seconds'`)
	renewed := func(h *claim.Hold) bool {
		return value[bool](q, `SELECT lease_expires_at > now() + interval '10 seconds' FROM work_items WHERE id = $1`, h.Item.ID)
	}

	tx := q.cancels(locked.Item.ID)
	if err := e.Beat(ctx); !errors.Is(err, claim.ErrLocked) {
		t.Errorf("the heartbeat reports %v, want the locked item", err)
	}
	if renewed(locked) || !renewed(other) {
		t.Errorf("the lease of the locked item is renewed: %v, of the other one: %v", renewed(locked), renewed(other))
	}
	if err := errors.Join(locked.Context().Err(), other.Context().Err()); err != nil {
		t.Errorf("the work was stopped: %v", err)
	}
	must.Do(t, tx.Rollback(ctx))
	if err := e.Beat(ctx); err != nil || !renewed(locked) {
		t.Errorf("after the transaction: %v, renewed: %v", err, renewed(locked))
	}

	tx = q.cancels(locked.Item.ID)
	must.Do(t, tx.Commit(ctx))
	if err := e.Beat(ctx); err != nil || !errors.Is(context.Cause(locked.Context()), claim.ErrLost) || other.Context().Err() != nil {
		t.Errorf("after the item was cancelled: %v, %v, %v", err, context.Cause(locked.Context()), other.Context().Err())
	}
}

// An order to drain that is not committed keeps no lease from being renewed. The worker
// drains once it is.
func TestOpenDrainHoldsUpNoLease(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	q := newQueue(t)
	e := q.engine()
	q.put("Receive", 1)
	h := q.claimOne(e, "Receive")
	must.Do(t, e.Beat(ctx))
	tx := must.Get(q.db.Begin(ctx))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it has ended
	must.Get(tx.Exec(ctx, `SELECT drain_worker($1)`, e.Worker()))(t)
	q.exec(`UPDATE work_items SET lease_expires_at = now() + interval '5 seconds'`)
	if err := e.Beat(ctx); err != nil || !value[bool](q, `SELECT lease_expires_at > now() + interval '10 seconds' FROM work_items WHERE id = $1`, h.Item.ID) {
		t.Errorf("while the order is open: %v, or the lease is not renewed", err)
	}
	select {
	case <-e.Draining():
		t.Error("the worker drains by an order that is not committed")
	default:
	}
	must.Do(t, errors.Join(tx.Commit(ctx), e.Beat(ctx)))
	select {
	case <-e.Draining():
	default:
		t.Error("the worker does not drain")
	}
}

// A check of a claim waits for a transaction that has locked the item: it may end the claim.
func TestCheckWaitsForALockedItem(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]error{"rolled back": nil, "committed": claim.ErrLost} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			e := q.engine(func(o *claim.Options) { o.Lease = time.Hour })
			q.put("Receive", 1)
			h := q.claimOne(e, "Receive")
			tx := q.cancels(h.Item.ID)
			h.Stand()
			checked := make(chan error, 1)
			go func() { checked <- h.Check(context.Background()) }()
			testenv.Eventually(t, "a heartbeat to find the item locked", func() bool {
				return value[bool](q, `SELECT EXISTS (SELECT FROM worker_processes)`)
			})
			select {
			case err := <-checked:
				t.Fatalf("the check ended before the transaction: %v", err)
			default:
			}
			var err error
			if want == nil {
				err = tx.Rollback(t.Context())
			} else {
				err = tx.Commit(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := <-checked; !errors.Is(err, want) {
				t.Errorf("Check = %v, want %v", err, want)
			}
		})
	}
}

// So it is with workers over HTTP, whose renewals share a statement.
func TestLockedItemHoldsUpNoOtherRemoteLease(t *testing.T) {
	t.Parallel()
	q, _, r := scanned(t)
	q.put("Virus Scan", 10)
	q.put("Virus Scan", 10)
	items, err := r.Claim(t.Context(), at("Virus Scan", 2), 2, anna())
	if err != nil || len(items) != 2 {
		t.Fatalf("Claim = %d items, %v; want two", len(items), err)
	}
	locked, other := items[0], items[1]
	tx := q.cancels(locked.ID)
	if _, _, err := r.Renew(t.Context(), locked.ID, locked.Token, ""); !errors.Is(err, claim.ErrLocked) {
		t.Errorf("Renew of the locked item = %v, want %v", err, claim.ErrLocked)
	}
	if _, _, err := r.Renew(t.Context(), other.ID, other.Token, ""); err != nil {
		t.Errorf("Renew of the other item = %v", err)
	}
	must.Do(t, tx.Rollback(t.Context()))
	if _, _, err := r.Renew(t.Context(), locked.ID, locked.Token, ""); err != nil {
		t.Errorf("Renew after the transaction = %v", err)
	}
}
