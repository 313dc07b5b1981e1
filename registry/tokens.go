package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// What a token may be used for.
const (
	RightPost  = "post"  // messages to queues
	RightPull  = "pull"  // messages from queues and topics
	RightLease = "lease" // items at stages that are worked on over HTTP
)

// Rights lists them.
func Rights() []string { return []string{RightPost, RightPull, RightLease} }

const tokensSQL = ` -- without what they are known by
SELECT t.id, t.name, coalesce(i.identifier, '') AS institution, t.rights, t.stages, t.created_at, t.created_by, t.expires_at, t.used_at,
	coalesce(t.user_id, 0) AS user_id, t.permissions
FROM api_tokens t LEFT JOIN institutions i ON i.id = t.institution_id`

// AddToken makes a token and returns it with its secret, which nobody can read again.
// The name, institution, rights, stages, end, user and permissions of t count. A name that is taken is
// ErrRefused, an institution or stage that there is not ErrNotFound.
func (r *Registry) AddToken(ctx context.Context, t record.Token) (added record.Token, secret string, err error) {
	if err := r.knowsStages(ctx, t.Stages); err != nil {
		return record.Token{}, "", fmt.Errorf("add token %q: %w", t.Name, err)
	}
	secret = "farol_" + rand.Text() + rand.Text() // 260 bits
	var id int64
	err = r.db.QueryRow(ctx, `
		INSERT INTO api_tokens (name, digest, institution_id, rights, stages, expires_at, user_id, permissions)
		SELECT $1, $2, i.id, coalesce($4, '{}'::text[]), coalesce($5, '{}'::text[]), $6, nullif($7, 0::bigint), coalesce($8, '{}'::text[])
		FROM (VALUES (1)) one LEFT JOIN institutions i ON i.identifier = $3
		WHERE $3 = '' OR i.id IS NOT NULL
		RETURNING id`, t.Name, tokenDigest(secret), t.Institution, t.Rights, t.Stages, t.ExpiresAt, t.UserID, t.Permissions).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return record.Token{}, "", fmt.Errorf("add token %q: %w: there is no institution %q", t.Name, ErrNotFound, t.Institution)
	}
	if err != nil {
		return record.Token{}, "", fmt.Errorf("add token %q: %w", t.Name, Refusal(err))
	}
	rows, _ := r.db.Query(ctx, tokensSQL+` WHERE t.id = $1`, id)
	added, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Token])
	if err != nil {
		return record.Token{}, "", fmt.Errorf("read token %q: %w", t.Name, err)
	}
	return added, secret, nil
}

// knowsStages refuses names of stages that there are not: a token for one that is
// mistyped would let nobody in, and none of those who see it would know why.
func (r *Registry) knowsStages(ctx context.Context, stages []Stage) error {
	var unknown []string
	err := r.db.QueryRow(ctx, `
		SELECT coalesce(array_agg(DISTINCT n), '{}') FROM unnest($1::text[]) n
		WHERE NOT EXISTS (SELECT FROM stage_settings s WHERE s.action = 'Ingest' AND s.stage = n)`, append([]Stage{}, stages...)).Scan(&unknown)
	if err != nil {
		return fmt.Errorf("look up stages: %w", err)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%w: there is no stage %q", ErrNotFound, unknown)
	}
	return nil
}

func tokenDigest(secret string) []byte {
	d := sha256.Sum256([]byte(secret)) // it has nothing that could be guessed
	return d[:]
}

// Tokens lists those of services, or the personal ones of a user.
func (r *Registry) Tokens(ctx context.Context, user int64) ([]record.Token, error) {
	return Collect[record.Token](ctx, r.db, "list tokens", tokensSQL+` WHERE coalesce(t.user_id, 0) = $1 ORDER BY t.name`, user)
}

// RemoveToken ends a token of a service, or of a user, at once. One that there is not is
// ErrNotFound.
func (r *Registry) RemoveToken(ctx context.Context, user int64, name string) error {
	tag, err := r.db.Exec(ctx, `DELETE FROM api_tokens WHERE name = $1 AND coalesce(user_id, 0) = $2`, name, user)
	if err != nil {
		return fmt.Errorf("remove token %q: %w", name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("remove token %q: %w", name, ErrNotFound)
	}
	return nil
}

const tokenOfSQL = `
WITH used AS (
	UPDATE api_tokens SET used_at = now() WHERE digest = $1 AND (used_at < now() - interval '1 minute') IS NOT FALSE
)` + tokensSQL + ` WHERE t.digest = $1 AND (t.expires_at > now()) IS NOT FALSE`

// TokenOf returns the token that a secret is of, and notes that it was used. Without
// one that is valid it is ErrNotFound.
func (r *Registry) TokenOf(ctx context.Context, secret string) (record.Token, error) {
	return One[record.Token](ctx, r.db, "look up a token", tokenOfSQL, tokenDigest(secret))
}
