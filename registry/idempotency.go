package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Key is a request that may be sent again: the key that the caller chose for it, and what it
// asks for.
type Key struct {
	Caller    string
	Key       string // up to 100 characters
	Operation string
	Request   [sha256.Size]byte // digest

	taken time.Time // by this process
}

// Kept is the answer to a request.
type Kept struct {
	Status int
	ETag   string // "": none
	Body   []byte
}

// KeyState is what is known of a key.
type KeyState int

// States of a key.
const (
	KeyNew       KeyState = iota // the request is to be carried out now
	KeyAnswered                  // it was, and this is the answer
	KeyInWork                    // another process carries it out now
	KeyLost                      // it was carried out, but a server died before it could keep the answer
	KeyOfAnother                 // the key was used for another request
)

// keyOf is the key of a context for the [Key] of its request.
type keyOf struct{}

// WithKey has the transaction of [Registry.As] note with a key that the request was carried
// out: so it never is twice, wherever a server dies.
func WithKey(ctx context.Context, k Key) context.Context { return context.WithValue(ctx, keyOf{}, k) }

// keySQL takes a key that is new, or whose server has not carried anything out for a minute.
// That server died, as a rule; if it did not, it carries nothing out any more: its key is from
// another time.
const keySQL = `
INSERT INTO idempotency_keys AS k (caller, key, operation, request_sha256) VALUES ($1, $2, $3, $4)
ON CONFLICT (caller, key) DO UPDATE SET at = now(), operation = excluded.operation, request_sha256 = excluded.request_sha256,
	status = NULL, body = NULL, etag = NULL, done = false
WHERE k.at < now() - interval '1 day' OR k.status IS NULL AND NOT k.done AND k.at < now() - interval '1 minute'
	AND (k.operation, k.request_sha256) = (excluded.operation, excluded.request_sha256)
RETURNING at`

// TakeKey finds out what became of a request. With [KeyNew] the caller carries it out, and
// calls [Registry.KeepAnswer] or [Registry.DropKey].
func (r *Registry) TakeKey(ctx context.Context, k *Key) (state KeyState, answer Kept, err error) {
	err = r.db.QueryRow(ctx, keySQL, k.Caller, k.Key, k.Operation, k.Request[:]).Scan(&k.taken)
	if err == nil {
		return KeyNew, answer, nil
	}
	var same, done bool
	var status *int
	if err = Refusal(err); err == ErrNotFound { //nolint:errorlint // as Refusal returns it
		err = r.db.QueryRow(ctx, `SELECT operation = $3 AND request_sha256 = $4, done, status, coalesce(etag, ''), body FROM idempotency_keys WHERE caller = $1 AND key = $2`,
			k.Caller, k.Key, k.Operation, k.Request[:]).Scan(&same, &done, &status, &answer.ETag, &answer.Body)
	}
	switch {
	case err != nil:
		return 0, Kept{}, fmt.Errorf("look up an idempotency key: %w", Refusal(err))
	case !same:
		return KeyOfAnother, Kept{}, nil
	case status != nil:
		answer.Status = *status
		return KeyAnswered, answer, nil
	case done:
		return KeyLost, Kept{}, nil
	}
	return KeyInWork, Kept{}, nil
}

// errTaken says that a request took so long to begin that another process has its key.
var errTaken = errors.New("another process carries the request out")

func (k Key) done(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `UPDATE idempotency_keys SET done = true WHERE caller = $1 AND key = $2 AND at = $3`, k.Caller, k.Key, k.taken)
	if err == nil && tag.RowsAffected() == 0 {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("note with its key that a request is carried out: %w", err)
	}
	return nil
}

// KeepAnswer keeps the answer to a request for a day.
func (r *Registry) KeepAnswer(ctx context.Context, k Key, answer Kept) error {
	return Do(ctx, r.db, "keep the answer to a request", `UPDATE idempotency_keys SET status = $3, body = $4, etag = nullif($5, '') WHERE caller = $1 AND key = $2 AND at = $6`,
		k.Caller, k.Key, answer.Status, answer.Body, answer.ETag, k.taken)
}

// DropKey forgets a request that was not carried out, so that it can be sent again.
func (r *Registry) DropKey(ctx context.Context, k Key) error {
	return Do(ctx, r.db, "forget a request", `DELETE FROM idempotency_keys WHERE caller = $1 AND key = $2 AND at = $3 AND NOT done`, k.Caller, k.Key, k.taken)
}
