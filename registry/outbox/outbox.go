// Package outbox has the records of mail to send.
//
// A trigger writes a mail for each person whom an alert concerns, in the transaction
// of the alert. A mail is claimed for a time, sent, and then noted as sent; one whose
// sender dies in between is sent again, with the same Message-ID.
package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct{ db registry.Database }

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB()} }

// Kinds of mail.
const (
	KindAlert  = "alert"
	KindDigest = "digest"
	KindInvite = "invite" // a link to set a first password
	KindReset  = "reset"  // a link to set another password
	KindMoved  = "moved"  // to the address that the person had before
)

const (
	// MostPerHour is how many mails a person gets in an hour; more become a digest.
	MostPerHour = 20
	// Patience is how long a mail is tried.
	Patience = 72 * time.Hour
	// leastAttempts are made before a mail is given up: the scheduler may have been
	// stopped for all of that time.
	leastAttempts = 10
	// mostListed is how many alerts a digest lists.
	mostListed = 200
)

// Mail is a mail that was claimed.
type Mail struct {
	ID        int64
	MessageID string // a UUID
	Kind      string
	Attempt   int // which one this is
	UserID    int64
	Email     string
	Name      string
	Alerts    []Alert // of an alert one; of a digest the first of Total; none of other kinds
	Total     int     // how many alerts it is about, which the person may still see
}

// Alert is what a mail reports.
type Alert struct {
	ID        int64
	Type      string
	Subject   string
	Content   string
	Count     int
	CreatedAt time.Time
	// Hidden says that it may name files of an object whose access is restricted, or of
	// one whose access is not known yet.
	Hidden bool
	Item   *int64
	// Since is when the item was made; nil without one.
	Since *time.Time
}

// withdrawSQL ends the mails of people who were deactivated.
const withdrawSQL = `
UPDATE mail_outbox m SET gave_up_at = now(), error = 'the person was deactivated'
FROM users u WHERE u.id = m.user_id AND u.deactivated_at IS NOT NULL AND m.sent_at IS NULL AND m.gave_up_at IS NULL`

// clampSQL has mail that was written before the clock was set back be due as soon as it
// would have been. A digest is due at a time of day.
const clampSQL = `
UPDATE mail_outbox SET due_at = CASE kind WHEN 'daily' THEN due_at ELSE due_at - (created_at - now()) END, created_at = now()
WHERE sent_at IS NULL AND gave_up_at IS NULL AND created_at > now() + interval '5 seconds'`

// limitSQL puts off what is more than a person gets in an hour. What was never tried goes
// into a digest; what was tried may have come to the person, and stays a mail of its own. A
// link to set a password has a limit of its own (registry/people), and is waited for, and what
// goes to an address from before is no flood for the person.
const limitSQL = `
WITH used AS (
	SELECT user_id, count(*) AS n, min(sent_at) AS first FROM mail_outbox
	WHERE kind NOT IN ('invite', 'reset', 'moved')
		AND (sent_at > now() - interval '1 hour' OR attempts > 0 AND sent_at IS NULL AND gave_up_at IS NULL AND due_at > now())
	GROUP BY user_id
), due AS (
	SELECT id, user_id, row_number() OVER (PARTITION BY user_id ORDER BY attempts = 0, due_at, id) AS place FROM mail_outbox
	WHERE sent_at IS NULL AND gave_up_at IS NULL AND kind IN ('alert', 'digest') AND due_at <= now()
)
UPDATE mail_outbox m SET kind = CASE WHEN kind = 'alert' AND attempts = 0 THEN 'daily' ELSE kind END,
	due_at = coalesce(used.first, now()) + interval '1 hour'
FROM due LEFT JOIN used ON used.user_id = due.user_id
WHERE m.id = due.id AND due.place + coalesce(used.n, 0) > $1`

// digestSQL makes a digest of all that is due for one person. From then on it stays as it
// is, so that the mail that is sent again is the same mail.
const digestSQL = `
WITH gone AS (
	DELETE FROM mail_outbox WHERE id IN (
		SELECT id FROM mail_outbox WHERE sent_at IS NULL AND gave_up_at IS NULL AND kind = 'daily' AND due_at <= now()
		ORDER BY due_at, id LIMIT 10000 FOR UPDATE SKIP LOCKED)
	RETURNING user_id, alert_id
)
INSERT INTO mail_outbox (user_id, kind, args)
SELECT user_id, 'digest', jsonb_build_object('alerts', jsonb_agg(alert_id ORDER BY alert_id)) FROM gone GROUP BY user_id`

const claimSQL = `
WITH due AS (
	SELECT id FROM mail_outbox
	WHERE sent_at IS NULL AND gave_up_at IS NULL AND kind <> 'daily' AND due_at <= now()
	ORDER BY due_at, id LIMIT $1
	FOR UPDATE SKIP LOCKED
)
UPDATE mail_outbox m SET attempts = m.attempts + 1, due_at = now() + $2::interval
FROM due, users u
WHERE m.id = due.id AND u.id = m.user_id
RETURNING m.id, m.message_id::text, m.kind, m.attempts AS attempt, m.user_id, coalesce(m.args->>'to', u.email) AS email, u.name,
	CASE m.kind WHEN 'alert' THEN ARRAY[m.alert_id] WHEN 'digest' THEN ARRAY(SELECT jsonb_array_elements_text(m.args->'alerts')::bigint) ELSE '{}' END AS about`

// alertsSQL has of some alerts the newest that a person may still get by mail, and how many
// these are in all.
const alertsSQL = `
SELECT a.id, a.type, a.subject, a.content, a.count, a.created_at, a.work_item_id AS item,
	(SELECT w.created_at FROM all_work_items w WHERE w.id = a.work_item_id) AS since, count(*) OVER () AS total,
	CASE WHEN a.generic_file_id IS NOT NULL THEN coalesce((SELECT o.access = 'restricted' FROM generic_files f
			JOIN intellectual_objects o ON o.id = f.intellectual_object_id WHERE f.id = a.generic_file_id), true)
		WHEN a.work_item_id IS NOT NULL THEN coalesce((SELECT o.access = 'restricted' FROM all_work_items w
			JOIN intellectual_objects o ON o.identifier = w.object_identifier WHERE w.id = a.work_item_id), true)
		WHEN a.deletion_request_id IS NOT NULL THEN EXISTS (
			SELECT FROM deletion_requests_intellectual_objects d JOIN intellectual_objects o ON o.id = d.intellectual_object_id
			WHERE d.deletion_request_id = a.deletion_request_id AND o.access = 'restricted'
			UNION ALL
			SELECT FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id
			JOIN intellectual_objects o ON o.id = f.intellectual_object_id
			WHERE d.deletion_request_id = a.deletion_request_id AND o.access = 'restricted')
		ELSE false END AS hidden
FROM alerts a JOIN users u ON u.id = $2
WHERE a.id = ANY ($1) AND gets_mail(u, a)
ORDER BY a.id DESC LIMIT $3`

type claimed struct {
	Mail
	About []int64
}

// Claim takes up to n mails that are due, those that are due for longest first. They are
// the caller's for a lease; then they are due again.
func (r Records) Claim(ctx context.Context, n int, lease time.Duration) (list []Mail, err error) {
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		// Two senders would not see what the other one is about to send to a person.
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{`SELECT pg_advisory_xact_lock(hashtextextended('farol mail', 0))`, nil},
			{`SELECT count_repeats()`, nil},
			{clampSQL, nil},
			{withdrawSQL, nil},
			{digestSQL, nil},
			{limitSQL, []any{MostPerHour}},
		} {
			if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
		rows, _ := tx.Query(ctx, claimSQL, n, lease) // CollectRows returns the error
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claimed, err error) {
			err = row.Scan(&c.ID, &c.MessageID, &c.Kind, &c.Attempt, &c.UserID, &c.Email, &c.Name, &c.About)
			return c, err
		})
		if err != nil {
			return err
		}
		list = nil
		for _, c := range found {
			if c.Alerts, c.Total, err = alertsOf(ctx, tx, c.About, c.UserID); err != nil {
				return err
			}
			list = append(list, c.Mail)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim mail to send: %w", err)
	}
	return list, nil
}

func alertsOf(ctx context.Context, tx pgx.Tx, ids []int64, user int64) (list []Alert, total int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	rows, _ := tx.Query(ctx, alertsSQL, ids, user, mostListed)
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Alert, error) {
		a, err := pgx.RowToStructByName[struct {
			Alert

			Total int
		}](row)
		total = a.Total
		return a.Alert, err
	})
	return list, total, err
}
