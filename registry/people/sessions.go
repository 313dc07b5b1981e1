package people

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Levels of a session.
const (
	LevelPassword = "password" // a second factor is still due, or has to be set up
	LevelFull     = "full"
)

// How long a session lasts.
const (
	SessionTime = 12 * time.Hour   // at most
	IdleTime    = 60 * time.Minute // unused
)

const sessionColumns = `s.id, s.user_id, s.level, s.begun_at, s.seen_at, s.ends_at, s.strong_at, coalesce(host(s.ip), '') AS ip, s.agent,
	coalesce(s.strong_at > now() - interval '10 minutes', false) AS fresh`

// BeginSession begins a session of a level and returns the secret of its cookie. strong
// says that the person has just proved who they are with everything that is asked for.
//
// p is the person as the proof was judged. If the role, the password, the second factor or
// anything else that sessions end with has changed since, there is none, and the error is
// ErrNotFound. It waits for such a change that is not committed yet, and one that comes
// later ends the session.
func (r Records) BeginSession(ctx context.Context, p Person, level string, strong bool, ip netip.Addr, agent string) (secret string, err error) {
	secret = rand.Text() + rand.Text()
	var from *netip.Addr
	if ip.IsValid() {
		from = &ip
	}
	err = r.change(ctx, "begin a session", `
		INSERT INTO sessions (digest, user_id, level, ends_at, strong_at, ip, agent)
		SELECT $1, u.id, $3, now() + $4, CASE WHEN $5 THEN now() END, $6, left($7, 200) FROM users u
		WHERE u.id = $2 AND u.deactivated_at IS NULL AND (u.email, u.role, coalesce(u.institution_id, 0), u.password_set_at, u.totp_sealed)
			IS NOT DISTINCT FROM ($8::text, $9::text, $10::bigint, $11::timestamptz, $12::bytea)
		FOR SHARE`,
		digest(secret), p.ID, level, SessionTime, strong, from, strings.ToValidUTF8(strings.ReplaceAll(agent, "\x00", ""), ""),
		p.Email, p.Role, p.InstitutionID, p.PasswordSetAt, p.SealedTOTP)
	return secret, err
}

// sessionSQL finds a session that has neither ended nor been idle for too long, and notes
// to the minute that it is used.
const sessionSQL = `
WITH used AS (
	UPDATE sessions SET seen_at = now() WHERE digest = $1 AND seen_at < now() - interval '1 minute' AND seen_at > now() - $2::interval AND ends_at > now()
)
SELECT ` + sessionColumns + ` FROM sessions s WHERE s.digest = $1 AND s.ends_at > now() AND s.seen_at > now() - $2::interval`

// SessionOf returns the session of a secret, and its person. One that has ended is
// ErrNotFound, and so is one whose person was deactivated.
func (r Records) SessionOf(ctx context.Context, secret string) (record.Session, Person, error) {
	rows, _ := r.db.Query(ctx, sessionSQL, digest(secret), IdleTime)
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Session])
	if err != nil {
		return record.Session{}, Person{}, fmt.Errorf("look up a session: %w", registry.Refusal(err))
	}
	p, err := r.ByID(ctx, s.UserID)
	if err == nil && !p.Active {
		err = fmt.Errorf("look up a session: %w", registry.ErrNotFound)
	}
	return s, p, err
}

// Rise gives a session another level, another secret and a fresh proof: what was known of
// the old one is worth nothing.
func (r Records) Rise(ctx context.Context, id int64, level string) (secret string, err error) {
	secret = rand.Text() + rand.Text()
	return secret, r.change(ctx, "raise a session", `UPDATE sessions SET digest = $2, level = $3, strong_at = now() WHERE id = $1 AND ends_at > now()`,
		id, digest(secret), level)
}

// Sessions lists those of a person that have not ended.
func (r Records) Sessions(ctx context.Context, user int64) ([]record.Session, error) {
	return registry.Collect[record.Session](ctx, r.db, "list sessions", `SELECT `+sessionColumns+` FROM sessions s
		WHERE s.user_id = @user AND s.ends_at > now() AND s.seen_at > now() - @idle::interval ORDER BY s.id`, pgx.NamedArgs{"user": user, "idle": IdleTime})
}

// Holding returns those of sessions that have not ended, and whose institution is active: the
// sessions of a person who is deactivated, or has another role, end at once. It does not count
// as use of a session.
func (r Records) Holding(ctx context.Context, ids []int64) ([]int64, error) {
	rows, _ := r.db.Query(ctx, `SELECT s.id FROM sessions s JOIN users u ON u.id = s.user_id LEFT JOIN institutions i ON i.id = u.institution_id
		WHERE s.id = ANY ($1) AND s.level = $2 AND s.ends_at > now() AND s.seen_at > now() - $3::interval
			AND coalesce(i.state, 'A') = 'A'`, ids, LevelFull, IdleTime) // sessions_pkey
	held, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look up sessions: %w", registry.Refusal(err))
	}
	return held, nil
}

// EndSession ends a session of a person, or all of them with the ID 0. A session that
// there is not is ErrNotFound.
func (r Records) EndSession(ctx context.Context, user, id int64) (ended int64, err error) {
	tag, err := r.db.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND ($2::bigint = 0 OR id = $2)`, user, id)
	if err == nil && id != 0 && tag.RowsAffected() == 0 {
		err = registry.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("end sessions: %w", registry.Refusal(err))
	}
	return tag.RowsAffected(), nil
}

// Tidy creates the partitions of actions that are needed next. It deletes sessions and links
// that have ended, failures of a day ago, and answers that are kept for a day.
func (r Records) Tidy(ctx context.Context) error {
	for _, sql := range []string{
		`SELECT open_action_partitions()`,
		`DELETE FROM sign_in_failures WHERE failed_at < now() - interval '1 day'`,
		`DELETE FROM sessions WHERE ends_at < now()`,
		`DELETE FROM links WHERE ends_at < now() - interval '30 days'`,
		`DELETE FROM idempotency_keys WHERE at < now() - interval '1 day'`,
	} {
		if _, err := r.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("delete what has ended: %w", registry.Refusal(err))
		}
	}
	return nil
}
