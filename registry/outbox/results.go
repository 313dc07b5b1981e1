package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Sent notes that the mail server has accepted a mail, also if another sender has
// claimed it in the meantime: that one sends a copy with the same Message-ID.
func (r Records) Sent(ctx context.Context, id int64) error {
	_, err := r.db.Exec(ctx, `UPDATE mail_outbox SET sent_at = now(), error = '' WHERE id = $1 AND sent_at IS NULL AND gave_up_at IS NULL`, id)
	return noted(err, id)
}

// Withdraw ends a mail that is not to be sent any more.
func (r Records) Withdraw(ctx context.Context, id int64, why string) error {
	_, err := r.db.Exec(ctx, `UPDATE mail_outbox SET gave_up_at = now(), error = $2 WHERE id = $1 AND sent_at IS NULL AND gave_up_at IS NULL`, id, why)
	return noted(err, id)
}

// failedSQL waits a minute after the first attempt, doubled up to six hours. A mail that is given up
// alerts the other admins, once a day for each person. The mail of such an alert makes no
// other one, or mail would be made without end while no server accepts any.
const failedSQL = `
WITH ended AS (
	UPDATE mail_outbox m SET error = @error,
		due_at = now() + least(interval '6 hours', interval '1 minute' * 2 ^ least(m.attempts - 1, 20)),
		gave_up_at = CASE WHEN m.created_at < now() - @patience::interval AND m.attempts >= @least THEN now() END
	WHERE m.id = @id AND m.attempts = @attempt AND m.sent_at IS NULL AND m.gave_up_at IS NULL
	RETURNING m.user_id, m.alert_id, m.gave_up_at, m.args
)
SELECT e.gave_up_at IS NOT NULL, CASE WHEN u.id IS NOT NULL THEN alert_staff('Mail Not Delivered', 'Mail could not be delivered to ' || u.email,
	format('Mail to %s was tried for three days and given up. The mail server said: %s', u.email, @error::text), 'mail', u.id::text, '1 day') END
FROM ended e LEFT JOIN users u ON u.id = e.user_id AND e.gave_up_at IS NOT NULL AND NOT EXISTS (
	SELECT FROM alerts a WHERE a.type = 'Mail Not Delivered' AND (a.id = e.alert_id OR e.args->'alerts' @> to_jsonb(a.id)))`

// Failed notes why a mail could not be sent, and reports whether it was given up. It is
// tried again later otherwise.
func (r Records) Failed(ctx context.Context, m Mail, why string) (gaveUp bool, err error) {
	err = r.db.QueryRow(ctx, failedSQL, pgx.NamedArgs{
		"id": m.ID, "attempt": m.Attempt, "error": registry.StorableText(why), "patience": Patience, "least": leastAttempts,
	}).Scan(&gaveUp, nil)
	if errors.Is(err, pgx.ErrNoRows) { // another sender has it, or has sent it
		return false, nil
	}
	return gaveUp, noted(err, m.ID)
}

func noted(err error, id int64) error {
	if err != nil {
		return fmt.Errorf("note the result of mail %d: %w", id, err)
	}
	return nil
}

// Drop ends the mails that have waited for three days where no mail server is set.
func (r Records) Drop(ctx context.Context) (int64, error) {
	tag, err := r.db.Exec(ctx, `
		UPDATE mail_outbox SET gave_up_at = now(), error = 'no mail server is set'
		WHERE sent_at IS NULL AND gave_up_at IS NULL AND created_at < now() - $1::interval`, Patience)
	if err != nil {
		return 0, fmt.Errorf("drop mail that nobody sends: %w", err)
	}
	return tag.RowsAffected(), nil
}

// Tidy counts repeated alerts and deletes mails that ended 30 days ago.
func (r Records) Tidy(ctx context.Context) error {
	for _, sql := range []string{`SELECT count_repeats()`, `
		DELETE FROM mail_outbox WHERE id IN (
			SELECT id FROM mail_outbox WHERE sent_at < now() - interval '30 days'
			UNION ALL SELECT id FROM mail_outbox WHERE gave_up_at < now() - interval '30 days' LIMIT 10000)`} {
		if _, err := r.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("tidy the outbox: %w", err)
		}
	}
	return nil
}

// RaiseAlerts makes alerts of states that time brings about, such as an approval that
// waits, and returns how many. fixityDays is the time between two fixity checks where a
// policy has none.
func (r Records) RaiseAlerts(ctx context.Context, fixityDays int) (int64, error) {
	return registry.Value[int64](ctx, r.db, "alert people", `SELECT raise_due_alerts($1)`, fixityDays)
}

// Waiting is a mail that waits, or was given up.
type Waiting struct {
	ID        int64      `json:"id"`
	Email     string     `json:"email"`
	Kind      string     `json:"kind"`
	Subject   string     `json:"subject"` // of its alert; "" of other kinds
	Attempts  int        `json:"attempts"`
	Error     string     `json:"error"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at"` // nil: it was given up
	GaveUpAt  *time.Time `json:"gave_up_at"`
}

// Queue lists up to n mails that wait, in the order in which they are due; with gaveUp
// those that were given up, the last first.
func (r Records) Queue(ctx context.Context, n int, gaveUp bool) ([]Waiting, error) {
	return registry.Collect[Waiting](ctx, r.db, "list the mail that waits", `
		SELECT m.id, coalesce(m.args->>'to', u.email) AS email, m.kind, coalesce(a.subject, '') AS subject, m.attempts, m.error, m.created_at,
			CASE WHEN m.gave_up_at IS NULL THEN m.due_at END AS due_at, m.gave_up_at
		FROM mail_outbox m JOIN users u ON u.id = m.user_id LEFT JOIN alerts a ON a.id = m.alert_id
		WHERE m.sent_at IS NULL AND (m.gave_up_at IS NOT NULL) = @gave_up
		ORDER BY CASE WHEN @gave_up THEN -extract(epoch FROM m.gave_up_at) ELSE extract(epoch FROM m.due_at) END, m.id LIMIT @n`,
		pgx.NamedArgs{"n": n, "gave_up": gaveUp})
}

// Figures is how much waits.
type Figures struct {
	Waiting int64         // mails that are not sent, those for a later digest included
	Oldest  time.Duration // age of the oldest mail that was tried and is not sent
}

// Figures counts what waits.
func (r Records) Figures(ctx context.Context) (f Figures, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT count(*), coalesce(max(now() - created_at) FILTER (WHERE attempts > 0), interval '0')
		FROM mail_outbox WHERE sent_at IS NULL AND gave_up_at IS NULL`).Scan(&f.Waiting, &f.Oldest)
	if err != nil {
		return f, fmt.Errorf("count the mail that waits: %w", err)
	}
	return f, nil
}
