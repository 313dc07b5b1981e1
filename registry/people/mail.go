package people

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// MailTimes are the values that a setting of mail may have.
func MailTimes() []string { return []string{"now", "daily", "never"} }

// Mail returns a person's settings, or ErrNotFound.
func (r Records) Mail(ctx context.Context, user int64) (record.MailSettings, error) {
	return registry.One[record.MailSettings](ctx, r.db, "read settings of mail", `
		SELECT coalesce(s.deletions, 'now') AS deletions, coalesce(s.restorations, 'now') AS restorations,
			coalesce(s.fixity, 'now') AS fixity, coalesce(s.problems, 'now') AS problems
		FROM users u LEFT JOIN mail_settings s ON s.user_id = u.id WHERE u.id = $1`, user)
}

// SetMail changes a person's settings; an empty one is left. Mails that wait already are not
// changed.
func (r Records) SetMail(ctx context.Context, user int64, s record.MailSettings) (record.MailSettings, error) {
	_, err := r.db.Exec(ctx, `
		INSERT INTO mail_settings AS m (user_id, deletions, restorations, fixity, problems)
		VALUES ($1, coalesce(nullif($2, ''), 'now'), coalesce(nullif($3, ''), 'now'), coalesce(nullif($4, ''), 'now'), coalesce(nullif($5, ''), 'now'))
		ON CONFLICT (user_id) DO UPDATE SET deletions = coalesce(nullif($2, ''), m.deletions), restorations = coalesce(nullif($3, ''), m.restorations),
			fixity = coalesce(nullif($4, ''), m.fixity), problems = coalesce(nullif($5, ''), m.problems)`,
		user, s.Deletions, s.Restorations, s.Fixity, s.Problems)
	if err != nil {
		return record.MailSettings{}, fmt.Errorf("change settings of mail: %w", registry.Refusal(err))
	}
	return r.Mail(ctx, user)
}

// MailReset has a link to set a new password mailed to a person who has forgotten it. While
// such a mail waits to be sent, it is enough, and another is ErrNotFound (mail_outbox_due).
func (r Records) MailReset(ctx context.Context, user int64) error {
	return r.change(ctx, "mail a link", `
		INSERT INTO mail_outbox (user_id, kind) SELECT u.id, 'reset' FROM users u WHERE u.id = $1 AND u.deactivated_at IS NULL
			AND NOT EXISTS (SELECT FROM mail_outbox o WHERE o.user_id = u.id AND o.kind = 'reset' AND o.sent_at IS NULL AND o.gave_up_at IS NULL)`, user)
}
