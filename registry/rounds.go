package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Round is what is known of the janitor's rounds.
type Round struct {
	Holder  string     `json:"holder"` // who makes one now, or made the last
	Running bool       `json:"running"`
	BeganAt *time.Time `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"` // the last that came to its end
	Error   string     `json:"error"`    // what that one could not do
}

// BeginRound begins a round of the janitor if nobody else makes one and the last
// began so long ago. Until EndRound it is the holder's, as long as KeepRound is
// called within lease.
func (r *Registry) BeginRound(ctx context.Context, holder string, apart, lease time.Duration) (began bool, err error) {
	tag, err := r.db.Exec(ctx, `
		UPDATE janitor SET holder = $1, held_until = now() + $3::interval, began_at = now()
		WHERE held_until < now() AND (began_at IS NULL OR began_at <= now() - $2::interval)`, holder, apart, lease)
	if err != nil {
		return false, fmt.Errorf("begin a round: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// KeepRound keeps a round for another lease. If it has lapsed and somebody else has
// begun one, it returns ErrLost.
func (r *Registry) KeepRound(ctx context.Context, holder string, lease time.Duration) error {
	tag, err := r.db.Exec(ctx, `UPDATE janitor SET held_until = now() + $2::interval WHERE holder = $1 AND held_until > '-infinity'`, holder, lease)
	if err != nil {
		return fmt.Errorf("keep a round: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrLost
	}
	return nil
}

// EndRound ends a round, with what could not be done in it.
func (r *Registry) EndRound(ctx context.Context, holder, trouble string) error {
	_, err := r.db.Exec(ctx, `UPDATE janitor SET held_until = '-infinity', ended_at = now(), error = $2 WHERE holder = $1`, holder, trouble)
	if err != nil {
		return fmt.Errorf("end a round: %w", err)
	}
	return nil
}

// LastRound returns what is known of the rounds.
func (r *Registry) LastRound(ctx context.Context) (Round, error) {
	rows, _ := r.db.Query(ctx, `SELECT holder, held_until > now() AS running, began_at, ended_at, error FROM janitor`)
	round, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Round])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return round, fmt.Errorf("look up the janitor's rounds: %w", err)
	}
	return round, nil
}
