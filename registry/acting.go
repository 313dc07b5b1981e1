package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Actor is who acts through a server: a person who has signed in, or a token. The zero
// Actor is a command, which the database knows by its role and by what the command says
// of the person who runs it.
type Actor struct {
	Name    string     // e-mail of the person, or "token " and its name
	UserID  int64      // 0: none
	TokenID int64      // 0: none
	IP      netip.Addr // of the request; invalid: unknown
}

// AuditEntry is what the table actions records of something that a person does.
type AuditEntry struct {
	Operation   string         // as the table of operations names it, such as "users.write"
	SubjectType string         // such as "user"
	SubjectID   string         // ID or name
	Institution int64          // of the subject; 0: none
	OnBehalfOf  string         // e-mail of the person for whom a command acts on paper
	Detail      map[string]any // what else there is to know; no secrets
}

// Act does something in the name of an actor, and records the action in the same
// transaction: either both are there afterwards, or neither. What do changes through this
// registry and the packages below it, with the context that it is given, is part of the
// transaction. do may fill in what it learns of the action, such as the ID of a new record.
//
// An action that is refused ([ErrRefused], [ErrNotFound]) is recorded as refused, in a
// transaction of its own. do is called again after a deadlock.
func (r *Registry) Act(ctx context.Context, who Actor, entry *AuditEntry, do func(context.Context) error) error {
	err := Again(func() error {
		return r.As(ctx, who, func(ctx context.Context) error {
			if err := do(ctx); err != nil {
				return err
			}
			return r.noteAction(ctx, who, *entry, "done", nil)
		})
	})
	if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotFound) {
		return err
	}
	noted := r.As(ctx, who, func(ctx context.Context) error { return r.noteAction(ctx, who, *entry, "refused", err) })
	return errors.Join(err, noted)
}

// Acted is [Registry.Act] for what has a result.
func Acted[T any](ctx context.Context, r *Registry, who Actor, entry *AuditEntry, do func(context.Context) (T, error)) (result T, err error) {
	err = r.Act(ctx, who, entry, func(ctx context.Context) (err error) {
		result, err = do(ctx)
		return err
	})
	return result, err
}

// As does something in the name of an actor in one transaction, which is committed unless
// do fails. Inside another transaction of this kind it is a part of that one.
func (r *Registry) As(ctx context.Context, who Actor, do func(context.Context) error) error {
	return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		// Only for members of farol_web does the database believe this. The IDs stay when an e-mail changes.
		_, err := tx.Exec(ctx, `SELECT set_config('farol.actor', $1, true), set_config('farol.actor_user', $2::bigint::text, true), set_config('farol.actor_token', $3::bigint::text, true)`,
			who.Name, who.UserID, who.TokenID)
		if err != nil {
			return fmt.Errorf("say who acts: %w", err)
		}
		if k, ok := ctx.Value(keyOf{}).(Key); ok {
			if err := k.done(ctx, tx); err != nil {
				return err
			}
		}
		return do(context.WithValue(ctx, transaction{}, tx))
	})
}

// Noted records what was done, or refused with err, in transactions of its own, such as the
// application of a plan, and returns err. It does so although the caller was interrupted.
// Should we die before it, the records of what was done name who did it.
func (r *Registry) Noted(ctx context.Context, who Actor, entry AuditEntry, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	outcome := "done"
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound) {
		outcome = "refused"
	}
	noted := r.As(ctx, who, func(ctx context.Context) error { return r.noteAction(ctx, who, entry, outcome, err) })
	return errors.Join(err, noted)
}

// noteTime is how long an action may take to be recorded after it has ended.
const noteTime = 10 * time.Second

func (r *Registry) noteAction(ctx context.Context, who Actor, a AuditEntry, outcome string, why error) error {
	detail := map[string]any{}
	for k, v := range a.Detail {
		detail[k] = v
	}
	if why != nil {
		detail["why"] = why.Error()
	}
	text, err := storableJSON(detail)
	if err != nil {
		return fmt.Errorf("record the action %s: %w", a.Operation, err)
	}
	var ip *netip.Addr
	if who.IP.IsValid() {
		ip = &who.IP
	}
	_, err = r.db.Exec(ctx, `SELECT note_action($1, $2, $3, nullif($4, 0::bigint), $5, nullif($6, ''), nullif($7, 0::bigint), nullif($8, 0::bigint), $9, $10)`,
		a.Operation, a.SubjectType, StorableText(a.SubjectID), a.Institution, outcome, a.OnBehalfOf, who.UserID, who.TokenID, ip, text)
	if err != nil {
		return fmt.Errorf("record the action %s: %w", a.Operation, err)
	}
	return nil
}

// transaction is the key of a context for the transaction that [Registry.As] has begun.
type transaction struct{}

// Database is the database as the packages below this one see it. Within [Registry.As] its
// statements are part of that transaction, and a transaction of theirs is a savepoint in
// it. It is safe for concurrent use, except within a transaction.
type Database struct{ pool *pgxpool.Pool }

// querier is what a pool and a transaction have in common.
type querier interface {
	RowQuerier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

func (d Database) in(ctx context.Context) querier {
	if tx, ok := ctx.Value(transaction{}).(pgx.Tx); ok {
		return tx
	}
	return d.pool
}

// again is [Again], but within [Registry.As], where a failed statement ends the transaction:
// that is repeated as a whole.
func (d Database) again(ctx context.Context, do func() error) error {
	if _, ok := ctx.Value(transaction{}).(pgx.Tx); ok {
		return do()
	}
	return Again(do)
}

// Query runs a statement that returns rows.
func (d Database) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return d.in(ctx).Query(ctx, sql, args...)
}

// QueryRow runs a statement that returns a row.
func (d Database) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return d.in(ctx).QueryRow(ctx, sql, args...)
}

// Exec runs a statement that returns nothing.
func (d Database) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return d.in(ctx).Exec(ctx, sql, args...)
}

// Begin begins a transaction, or a savepoint.
func (d Database) Begin(ctx context.Context) (pgx.Tx, error) { return d.in(ctx).Begin(ctx) }

// BeginTx begins a transaction with options, or a savepoint, which has those of its
// transaction.
func (d Database) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	if tx, ok := ctx.Value(transaction{}).(pgx.Tx); ok {
		return tx.Begin(ctx)
	}
	return d.pool.BeginTx(ctx, o)
}

// SendBatch sends statements together.
func (d Database) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return d.in(ctx).SendBatch(ctx, b)
}

// CopyFrom writes many rows.
func (d Database) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return d.in(ctx).CopyFrom(ctx, table, columns, rows)
}

// Acquire takes a connection out of the pool, outside of any transaction.
func (d Database) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return d.pool.Acquire(ctx) }

// Alone connects apart from the pool, for what keeps a connection long enough for others to
// miss it. The caller closes it.
func (d Database) Alone(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return c, nil
}

// Ping reports whether the database answers.
func (d Database) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// ActsForPeople reports as which role this process has logged in, and whether the database
// believes what it says of people who have signed in.
func (r *Registry) ActsForPeople(ctx context.Context) (role string, member bool, err error) {
	err = r.As(ctx, Actor{Name: "test"}, func(ctx context.Context) error {
		return r.db.QueryRow(ctx, `SELECT session_user, signed_in_actor() IS NOT NULL`).Scan(&role, &member)
	})
	if err != nil {
		return "", false, fmt.Errorf("ask the database for the role: %w", Refusal(err))
	}
	return role, member, nil
}
