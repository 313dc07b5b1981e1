package people

import (
	"context"

	"github.com/farol-preservation/farol/registry"
)

// Identity is who an OpenID provider says that a person is. A provider gives a subject to
// one person only, and always; an e-mail address may go to another person.
type Identity struct{ Issuer, Subject string }

// ByIdentity returns the person who is bound to an identity, or ErrNotFound (users_oidc).
func (r Records) ByIdentity(ctx context.Context, i Identity) (Person, error) {
	return r.one(ctx, personSQL+` WHERE u.oidc_issuer = $1 AND u.oidc_subject = $2`, i.Issuer, i.Subject)
}

// Bind binds a person to an identity. A person who is bound already is ErrNotFound: nobody
// else takes over the account.
func (r Records) Bind(ctx context.Context, user int64, i Identity) error {
	return r.change(ctx, "bind a person to an OpenID provider",
		`UPDATE users SET oidc_issuer = $2, oidc_subject = $3 WHERE id = $1 AND oidc_subject IS NULL`, user, i.Issuer, i.Subject)
}

// NoteIssuerFactor notes that a person's second factor is at the provider.
func (r Records) NoteIssuerFactor(ctx context.Context, user int64) error {
	return registry.Do(ctx, r.db, "note a second factor", `UPDATE users SET oidc_factor = true WHERE id = $1 AND NOT oidc_factor`, user)
}

// Unbind takes a person's identity away, and ends all sessions. The next sign-in at a
// provider binds the person again, by the e-mail address.
func (r Records) Unbind(ctx context.Context, user int64) error {
	return registry.Do(ctx, r.db, "unbind a person from an OpenID provider", `
		WITH ended AS (DELETE FROM sessions WHERE user_id = $1)
		UPDATE users SET oidc_issuer = NULL, oidc_subject = NULL, oidc_factor = false WHERE id = $1`, user)
}
