package people

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Person is a user with all that signing in takes.
type Person struct {
	ID             int64
	Email          string
	Name           string
	Role           string
	InstitutionID  int64  // 0: none
	Institution    string // its identifier
	Active         bool   // and so is the institution
	PasswordHash   string // "": none was set
	SealedTOTP     []byte `db:"sealed_totp"` // nil: no second factor
	FactorRequired bool   // by the role, the institution or for this person
	TimeZone       string
	Scheme         string // light, dark, or "": as the system of the browser
	Version        int64
	RecoveryCodes  int    // that are not used
	Issuer         string // OpenID provider that the person is bound to; "": none
	IssuerFactor   bool   // it has asked for a second factor, and is trusted with that
	PasswordSetAt  *time.Time
	SignedInAt     *time.Time
}

// Strong reports whether the person has a second factor.
func (p Person) Strong() bool { return p.SealedTOTP != nil }

// Scope is whose records the person may know of.
func (p Person) Scope() registry.Scope {
	switch {
	case !p.Active:
		return registry.Scope{}
	case p.InstitutionID != 0:
		return registry.Only(record.Institution{ID: p.InstitutionID, Identifier: p.Institution})
	case p.Role == registry.RoleAdmin || p.Role == registry.RoleOperator || p.Role == registry.RoleAuditor:
		return registry.Everything()
	}
	return registry.Scope{}
}

// personSQL has who needs a second factor: staff and admins always.
const personSQL = `
SELECT u.id, u.email, u.name, u.role, coalesce(u.institution_id, 0) AS institution_id, coalesce(i.identifier, '') AS institution,
	u.deactivated_at IS NULL AND coalesce(i.state, 'A') = 'A' AS active, coalesce(u.password_hash, '') AS password_hash, u.totp_sealed AS sealed_totp,
	u.second_factor_required OR coalesce(i.second_factor_required, false) OR u.role IN ('admin', 'operator', 'institutional_admin') AS factor_required,
	u.time_zone, u.color_scheme AS scheme, u.version, u.password_set_at, u.signed_in_at, coalesce(u.oidc_issuer, '') AS issuer, u.oidc_factor AS issuer_factor,
	(SELECT count(*) FROM recovery_codes c WHERE c.user_id = u.id AND c.used_at IS NULL)::int AS recovery_codes
FROM users u LEFT JOIN institutions i ON i.id = u.institution_id`

// ByEmail returns a person by e-mail, in whatever case, or ErrNotFound.
func (r Records) ByEmail(ctx context.Context, email string) (Person, error) {
	return r.one(ctx, personSQL+` WHERE lower(u.email) = lower($1)`, email)
}

// ByID returns a person by the ID, or ErrNotFound.
func (r Records) ByID(ctx context.Context, id int64) (Person, error) {
	return r.one(ctx, personSQL+` WHERE u.id = $1`, id)
}

func (r Records) one(ctx context.Context, sql string, args ...any) (Person, error) {
	return registry.One[Person](ctx, r.db, "look up a person", sql, args...)
}

// LocksAt is how many attempts may fail: the last of them locks, and so does each further one.
const LocksAt = 5

// attemptSQL counts, and locks: for a minute at the fifth failure, twice as long at each
// further one, an hour at most. Failures of a day ago no longer count. While attempts are
// locked none counts, so that the lock ends.
const attemptSQL = `
INSERT INTO sign_in_failures AS f (user_id, device, failures)
SELECT id, $2, 1 FROM users WHERE id = $1
ON CONFLICT (user_id, device) DO UPDATE SET failed_at = now(),
	failures = CASE WHEN f.failed_at < now() - interval '1 day' THEN 1 ELSE least(f.failures + 1, 1000) END,
	locked_until = CASE WHEN f.failed_at >= now() - interval '1 day' AND f.failures + 1 >= $3
		THEN now() + least(interval '1 hour', interval '1 minute' * power(2, least(f.failures + 1 - $3, 10))) END
WHERE (f.locked_until > now()) IS NOT TRUE
RETURNING failures`

// Attempt counts an attempt to prove who a person is, as if it had failed: so those that
// are sent at once are no more than those that are sent one after the other. device is a
// browser that has signed in the person before; "" is any other. n is which failure it
// would be; 0: attempts fail now, whatever is proved, or there is no such person.
//
// [Records.TakeBack] is for an attempt that was right.
func (r Records) Attempt(ctx context.Context, user int64, device string) (n int, err error) {
	err = registry.Refusal(r.db.QueryRow(ctx, attemptSQL, user, device, LocksAt).Scan(&n))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return 0, fmt.Errorf("count an attempt: %w", err)
	}
	return n, nil
}

// TakeBack has an attempt not count that was the failure n. If others have failed since,
// their counts stay, and so does this one.
func (r Records) TakeBack(ctx context.Context, user int64, device string, n int) error {
	return registry.Do(ctx, r.db, "take an attempt back", `
		WITH first AS (DELETE FROM sign_in_failures WHERE user_id = $1 AND device = $2 AND failures = $3 AND $3 = 1)
		UPDATE sign_in_failures SET failures = failures - 1, locked_until = NULL WHERE user_id = $1 AND device = $2 AND failures = $3 AND $3 > 1`, user, device, n)
}

// Succeeded forgets the failures of a browser, and notes that the person signed in.
func (r Records) Succeeded(ctx context.Context, user int64, device string) error {
	return registry.Do(ctx, r.db, "note that a person signed in", `
		WITH forgotten AS (DELETE FROM sign_in_failures WHERE user_id = $1 AND device = $2)
		UPDATE users SET signed_in_at = now() WHERE id = $1`, user, device)
}

// Unlock forgets all failed attempts to sign in as a person.
func (r Records) Unlock(ctx context.Context, user int64) error {
	return registry.Do(ctx, r.db, "unlock a person", `DELETE FROM sign_in_failures WHERE user_id = $1`, user)
}

// SetPassword sets the hash of a password, which ends all sessions and links of the person.
func (r Records) SetPassword(ctx context.Context, user int64, hash string) error {
	return r.change(ctx, "set a password", `UPDATE users SET password_hash = $2, password_set_at = now() WHERE id = $1`, user, hash)
}

// Rehash replaces the hash of the same password, and ends nothing.
func (r Records) Rehash(ctx context.Context, user int64, old, hash string) error {
	return registry.Do(ctx, r.db, "renew the hash of a password", `UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2`, user, old, hash)
}

// change runs a statement that has to change one row.
func (r Records) change(ctx context.Context, what, sql string, args ...any) error {
	tag, err := r.db.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = registry.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, registry.Refusal(err))
	}
	return nil
}

// Alert writes an alert that is for one person only.
func (r Records) Alert(ctx context.Context, user int64, kind, subject, content string) error {
	return registry.Do(ctx, r.db, "write an alert", `INSERT INTO alerts (user_id, type, subject, content) VALUES ($1, $2, $3, $4)`, user, kind, subject, content)
}

// LockTokens refuses a person another token who has as many as they may, and keeps others
// from adding one until the transaction ends.
func (r Records) LockTokens(ctx context.Context, user int64, most int) error {
	_, err := r.db.Exec(ctx, `SELECT FROM users WHERE id = $1 FOR UPDATE`, user)
	var n int
	if err == nil { // what others have committed while this waited counts
		err = r.db.QueryRow(ctx, `SELECT count(*) FROM api_tokens WHERE user_id = $1 AND (expires_at > now()) IS NOT FALSE`, user).Scan(&n)
	}
	if err == nil && n >= most {
		err = fmt.Errorf("%w: you have %d tokens, which is the most; revoke one that is not needed", registry.ErrRefused, n)
	}
	if err != nil {
		return fmt.Errorf("count tokens: %w", registry.Refusal(err))
	}
	return nil
}
