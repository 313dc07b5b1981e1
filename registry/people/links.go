package people

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Kinds of links.
const (
	Invite = "invite"  // to set a first password
	Reset  = "reset"   // to set a new password
	SignIn = "sign-in" // on the machine of a one-machine stack
)

// LinkTimes say how long each kind of link may be used.
func LinkTimes() map[string]time.Duration {
	return map[string]time.Duration{Invite: 24 * time.Hour, Reset: time.Hour, SignIn: 15 * time.Minute}
}

// MakeLink makes a link for a person and returns its secret, which is not stored. Earlier
// links of the person of the same kind are void. A person who was deactivated is ErrRefused.
func (r Records) MakeLink(ctx context.Context, user int64, kind string) (secret string, err error) {
	secret = rand.Text() + rand.Text()
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE links SET used_at = now() WHERE user_id = $1 AND kind = $2 AND used_at IS NULL`, user, kind); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			INSERT INTO links (digest, kind, user_id, ends_at)
			SELECT $1, $2, u.id, now() + $4 FROM users u WHERE u.id = $3 AND u.deactivated_at IS NULL`,
			digest(secret), kind, user, LinkTimes()[kind])
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%w: the person was deactivated; activate the account first", registry.ErrRefused)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("make a link: %w", registry.Refusal(err))
	}
	return secret, nil
}

// MailLink has a link made and sent to a person by mail. The secret is made when the mail is
// sent, and nobody else sees it.
func (r Records) MailLink(ctx context.Context, user int64, kind string) error {
	return r.change(ctx, "mail a link", `INSERT INTO mail_outbox (user_id, kind) SELECT id, $2 FROM users WHERE id = $1 AND deactivated_at IS NULL`, user, kind)
}

// LinkPath is where a link leads at a server for people.
func LinkPath(kind, secret string) string {
	if kind == SignIn {
		return "/sign-in/" + secret
	}
	return "/password/" + secret
}

const linkSQL = `SELECT l.user_id FROM links l JOIN users u ON u.id = l.user_id
	WHERE l.digest = $1 AND l.kind = ANY ($2) AND l.used_at IS NULL AND l.ends_at > now() AND u.deactivated_at IS NULL`

// LinkOf returns the person whom a link of one of some kinds is for, and leaves it as it
// is. A link that was used, has expired or never was is ErrNotFound.
func (r Records) LinkOf(ctx context.Context, secret string, kinds ...string) (Person, error) {
	var user int64
	if err := r.db.QueryRow(ctx, linkSQL, digest(secret), kinds).Scan(&user); err != nil {
		return Person{}, fmt.Errorf("look up a link: %w", registry.Refusal(err))
	}
	return r.ByID(ctx, user)
}

// UseLink is [Records.LinkOf], and uses the link up.
func (r Records) UseLink(ctx context.Context, secret string, kinds ...string) (Person, error) {
	var user int64
	err := r.db.QueryRow(ctx, `UPDATE links SET used_at = now() WHERE digest = $1 AND used_at IS NULL AND user_id = (`+linkSQL+`) RETURNING user_id`,
		digest(secret), kinds).Scan(&user)
	if err != nil {
		return Person{}, fmt.Errorf("use a link: %w", registry.Refusal(err))
	}
	return r.ByID(ctx, user)
}
