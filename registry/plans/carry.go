package plans

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// What a server carries out.
const (
	carryApply = "apply"
	carryUndo  = "undo"
)

// Lock returns a plan that nobody else decides about until the transaction of
// [registry.Registry.As] ends.
func (r Records) Lock(ctx context.Context, id int64) (record.Plan, error) {
	if _, err := r.db.Exec(ctx, `SELECT FROM plans WHERE id = $1 FOR UPDATE`, id); err != nil {
		return record.Plan{}, fmt.Errorf("lock plan %d: %w", id, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// Approve records that the person who acts has looked at a plan of another person's. Nobody
// approves the own plan, under whatever name or by whatever account it was made
// (plans_two_people, plans_two_users, two_people).
func (r Records) Approve(ctx context.Context, id int64) (record.Plan, error) {
	p, err := r.Plan(ctx, id)
	if err != nil {
		return p, err
	}
	tag, err := r.db.Exec(ctx, `
		UPDATE plans p SET approved_by = acting_user(), approved_by_user = me.id, approved_at = now()
		FROM (SELECT acting_user_id()) AS me (id)
		WHERE p.id = $1 AND p.state = 'ready' AND p.approved_at IS NULL AND p.created_by <> acting_user() AND two_people(p.created_by_user, me.id)`, id)
	if err == nil && tag.RowsAffected() == 0 {
		switch {
		case p.State != "ready":
			err = fmt.Errorf("%w: it is %s", registry.ErrRefused, p.State)
		case p.ApprovedAt != nil:
			err = fmt.Errorf("%w: it is approved already", registry.ErrRefused)
		default:
			err = fmt.Errorf("%w: nobody approves a plan of their own, or of a person whose account was in the same hands within seven days; another person has to", registry.ErrRefused)
		}
	}
	if err != nil {
		return record.Plan{}, fmt.Errorf("approve plan %d: %w", id, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// askApplySQL has a server apply a plan that has begun. One that is applied is left as it is.
const askApplySQL = `
UPDATE plans SET carry = 'apply', carry_for = acting_user() WHERE id = $1 AND state = 'applying'`

// AskToApply has a server apply a plan, or the rest of it, in the name of the person who
// acts. It refuses as [Records.Apply] does, and a plan that changes more items than alone
// and that nobody has approved. It has to be called inside [registry.Registry.As].
func (r Records) AskToApply(ctx context.Context, id int64, tolerance float64, alone int64) (record.Plan, error) {
	p, err := r.Plan(ctx, id)
	if err != nil {
		return p, err
	}
	if n := p.Items - p.Refused; n > alone && p.ApprovedAt == nil {
		return p, fmt.Errorf("apply plan %d: %w: it changes %d items; if they are more than %d, another person has to approve it first", id, registry.ErrRefused, n, alone)
	}
	_, err = r.db.Exec(ctx, `SELECT plan_begin($1, $2)`, id, tolerance)
	if err == nil {
		_, err = r.db.Exec(ctx, askApplySQL, id)
	}
	if err != nil {
		return record.Plan{}, fmt.Errorf("apply plan %d: %w", id, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// AskToUndo has a server undo a plan, in the name of the person who acts. A plan that is
// being applied is applied no further. It has to be called inside [registry.Registry.As].
func (r Records) AskToUndo(ctx context.Context, id int64) (record.Plan, error) {
	_, err := r.db.Exec(ctx, `SELECT plan_undo($1)`, id)
	if err == nil {
		_, err = r.db.Exec(ctx, `
			UPDATE plans SET carry = CASE state WHEN 'undoing' THEN 'undo' END, carry_for = CASE state WHEN 'undoing' THEN acting_user() END WHERE id = $1`, id)
	}
	if err != nil {
		return record.Plan{}, fmt.Errorf("undo plan %d: %w", id, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// burst is how many batches of a plan are carried out before it is the turn of the next one.
const burst = 20

// carried is a plan that a server is to carry out.
type carried struct {
	ID         int64
	What, Name string
}

// carriedSQL finds them by plans_carried.
const carriedSQL = `SELECT id, carry AS what, carry_for AS name FROM plans WHERE carry IS NOT NULL ORDER BY id`

// Carry carries out some batches of each plan that people have asked for, but of those that
// another process is at, and returns how many items it has dealt with. Call it again and
// again: 0 means that nothing is to be done. If we die, the next caller goes on.
func (r Records) Carry(ctx context.Context) (items int, err error) {
	rows, _ := r.db.Query(ctx, carriedSQL)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[carried])
	if err != nil {
		return 0, fmt.Errorf("look for plans to carry out: %w", err)
	}
	for _, p := range list {
		n, failed := r.carry(ctx, p)
		items += n
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s plan %d for %s: %w", p.What, p.ID, p.Name, failed))
		}
	}
	return items, err
}

func (r Records) carry(ctx context.Context, p carried) (items int, err error) {
	pooled, err := r.db.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	c := pooled.Hijack() // its end lets go of the plan, however we end
	defer closeConn(ctx, c)
	var ours bool
	if err := c.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended('farol plan', $1))`, p.ID).Scan(&ours); err != nil || !ours {
		return 0, err
	}
	sql := `SELECT plan_apply($1)`
	if p.What == carryUndo {
		sql = `SELECT plan_undo($1)`
	}
	for range burst {
		n, err := batch(ctx, c, p.Name, p.ID, sql)
		items += n
		refused := errors.Is(registry.Refusal(err), registry.ErrRefused) || errors.Is(registry.Refusal(err), registry.ErrNotFound)
		switch {
		case err == nil && n > 0:
			continue
		case err != nil && !refused:
			return items, err
		}
		tag, ended := c.Exec(ctx, `UPDATE plans SET carry = NULL, carry_for = NULL WHERE id = $1 AND carry = $2`, p.ID, p.What)
		if ended == nil && tag.RowsAffected() == 0 {
			return items, nil // a person has taken it back: what is undone is applied no further
		}
		return items, errors.Join(err, ended)
	}
	return items, nil
}

// between is the time between two looks for plans that people have asked for.
const between = time.Second

// CarryAll carries out the plans that people apply and undo over the API, until ctx ends.
// Any number of servers do; one that dies leaves its plan to the others.
func (r Records) CarryAll(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		n, err := r.Carry(ctx)
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "cannot carry out a plan now; it is tried again", "err", err)
		}
		if n > 0 && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(between):
		}
	}
}
