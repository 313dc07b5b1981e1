// Package topiclog reads the topic log: the messages that the transitions of work
// items append, each in the transaction of its transition.
//
// The log is ordered by transaction, then by id. Messages of a transaction that is
// still open appear later than those of younger transactions, so a reader stops
// before the oldest open one: it never skips a message that commits late.
package topiclog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// FixityTopic is the one topic whose messages are ids of files, not of items.
	FixityTopic = "fixity_check"
	// Channel is the channel of NOTIFY for items that have moved, and so for
	// messages of the log.
	Channel = "farol_work"

	// callTimeout bounds one statement.
	callTimeout = 10 * time.Second
	// enterTimeout is long enough to renumber a log that was never trimmed.
	enterTimeout = 10 * time.Minute
)

// Listen opens a connection of its own, on which notifications of the channels come. end closes
// it.
func Listen(ctx context.Context, config *pgx.ConnConfig, channels ...string) (conn *pgx.Conn, end func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if conn, err = pgx.ConnectConfig(bounded, config); err != nil {
		return nil, nil, fmt.Errorf("connect to listen: %w", err)
	}
	end = func() { Close(ctx, conn) }
	if _, err := conn.Exec(bounded, "LISTEN "+strings.Join(channels, "; LISTEN ")); err != nil {
		end()
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return conn, end, nil
}

// Close closes a connection in bounded time. What the server keeps for it, such as a lock, ends
// either way.
func Close(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	conn.Close(ctx) //nolint:errcheck // as above
}

// scan reads one row within a time. what names that in errors.
func scan(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, what string, within time.Duration, sql string, args []any, into ...any,
) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := db.QueryRow(ctx, sql, args...).Scan(into...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Position is a place in the log: that of a message, or of the last message that a
// reader has passed.
type Position struct {
	XID       uint64
	MessageID int64
}

// Message is one message of the log.
type Message struct {
	Position Position
	Topic    string
	Body     string
}

// Reader reads the log under a name whose position the database keeps. It uses one
// connection, and like that is not safe for concurrent use.
type Reader struct {
	conn *pgx.Conn
	name string
}

// NewReader returns the reader of that name over conn.
func NewReader(conn *pgx.Conn, name string) Reader { return Reader{conn, name} }

// Lock tries to become the only reader of its name for as long as the connection
// lasts, and reports whether it is.
func (r Reader) Lock(ctx context.Context) (locked bool, err error) {
	const sql = `SELECT pg_try_advisory_lock(hashtextextended('topic reader ' || $1, 0))`
	err = scan(ctx, r.conn, "lock reader "+r.name, callTimeout, sql, []any{r.name}, &locked)
	return locked, err
}

// Register makes the reader known, at the beginning of the log if it is new, and
// reports whether it had to renumber the log as [Renumber] does.
func (r Reader) Register(ctx context.Context) (renumbered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO topic_readers (name) VALUES ($1) ON CONFLICT DO NOTHING`, r.name); err != nil {
			return err
		}
		return tx.QueryRow(ctx, renumberSQL).Scan(&renumbered)
	})
	if err != nil {
		return false, fmt.Errorf("register reader %s of the topic log: %w", r.name, err)
	}
	return renumbered, nil
}

const renumberSQL = `SELECT renumber_log()`

// Renumber moves all readers to the numbering of this cluster if the database came
// from another, whose transactions have other numbers, and reports whether it did.
func Renumber(ctx context.Context, db *pgxpool.Pool) (renumbered bool, err error) {
	err = scan(ctx, db, "renumber the topic log", enterTimeout, renumberSQL, nil, &renumbered)
	return renumbered, err
}

// Position reads the reader's position. A person may set it back to have messages
// published again, so it is to be read for every batch.
func (r Reader) Position(ctx context.Context) (at Position, err error) {
	const sql = `SELECT xid, message_id FROM topic_readers WHERE name = $1`
	err = scan(ctx, r.conn, "read the position of "+r.name, callTimeout, sql, []any{r.name}, &at.XID, &at.MessageID)
	return at, err
}

// afterSQL walks the primary key of each partition of pipeline_messages.
const afterSQL = `
SELECT xid, id, topic, body FROM pipeline_messages
WHERE (xid, id) > (@xid, @id) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, id
LIMIT @n`

// After returns up to n messages behind a position. No message will be added
// between them any more.
func (r Reader) After(ctx context.Context, at Position, n int) ([]Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := r.conn.Query(ctx, afterSQL, pgx.NamedArgs{"xid": at.XID, "id": at.MessageID, "n": n}) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Message, err error) {
		return m, row.Scan(&m.Position.XID, &m.Position.MessageID, &m.Topic, &m.Body)
	})
	if err != nil {
		return nil, fmt.Errorf("read the topic log: %w", err)
	}
	return list, nil
}

const moveSQL = `
UPDATE topic_readers SET xid = @xid, message_id = @id, updated_at = now()
WHERE name = @name AND (xid, message_id) = (@from_xid, @from_id)`

var errMoved = errors.New("another process has moved the reader")

// Move moves the reader from a position on to another; it is an error if it is no
// longer at the first. It completes even when ctx is cancelled: the messages have
// been published already.
func (r Reader) Move(ctx context.Context, from, to Position) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	tag, err := r.conn.Exec(ctx, moveSQL, pgx.NamedArgs{
		"name": r.name, "xid": to.XID, "id": to.MessageID, "from_xid": from.XID, "from_id": from.MessageID,
	})
	if err == nil && tag.RowsAffected() == 0 {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("move reader %s: %w", r.name, err)
	}
	return nil
}

// Lag is how far a reader is behind.
type Lag struct {
	Messages int           // not yet read; counted to 100,000 and no further
	Oldest   time.Duration // age of the first of them; 0 if there is none
	MovedAt  *time.Time    // when the reader moved on last; nil: there is no such reader
}

// lagSQL walks the primary key of each partition of pipeline_messages.
const lagSQL = `
SELECT count(*), coalesce(greatest(clock_timestamp() - min(created_at), '0'), '0'), (SELECT updated_at FROM topic_readers WHERE name = @name)
FROM (
	SELECT created_at FROM pipeline_messages
	WHERE (xid, id) > (
		coalesce((SELECT xid FROM topic_readers WHERE name = @name), '0'),
		coalesce((SELECT message_id FROM topic_readers WHERE name = @name), 0))
	ORDER BY xid, id
	LIMIT 100000
) behind`

// ReadLag reads how far the reader of a name is behind, whether it runs or not.
func ReadLag(ctx context.Context, db *pgxpool.Pool, name string) (lag Lag, err error) {
	err = scan(ctx, db, "read the lag of "+name, callTimeout, lagSQL, []any{pgx.NamedArgs{"name": name}}, &lag.Messages, &lag.Oldest, &lag.MovedAt)
	return lag, err
}

// Topics returns the names of the pipeline's topics, sorted.
func Topics(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := db.Query(ctx, `SELECT DISTINCT topic FROM stage_pauses ORDER BY topic`) // CollectRows returns the error
	topics, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the names of topics: %w", err)
	}
	return topics, nil
}

// tailSQL walks the primary key of each partition of pipeline_messages.
const tailSQL = `
WITH m AS MATERIALIZED (
	SELECT topic, xid < pg_snapshot_xmin(pg_current_snapshot()) AS readable
	FROM pipeline_messages WHERE xid >= $1 ORDER BY xid, id LIMIT $2
)
SELECT ARRAY(SELECT topic FROM m WHERE readable GROUP BY topic ORDER BY topic),
	ARRAY(SELECT count(*) FROM m WHERE readable GROUP BY topic ORDER BY topic),
	(SELECT count(*) FROM m), EXISTS (SELECT FROM m WHERE NOT readable), (SELECT pg_snapshot_xmin(pg_current_snapshot()))`

// Tail is what the log has from a transaction on.
type Tail struct {
	Topics []string // that have readable messages
	Counts []int    // of readable messages, by topic
	Read   int      // messages counted, readable or not
	Hidden bool     // an open transaction hides some of them
	Next   uint64   // transaction from which to read the next tail
}

// ReadTail counts up to most messages from a transaction on.
func ReadTail(ctx context.Context, db *pgxpool.Pool, from uint64, most int) (t Tail, err error) {
	err = scan(ctx, db, "read the end of the topic log", callTimeout, tailSQL, []any{from, most}, &t.Topics, &t.Counts, &t.Read, &t.Hidden, &t.Next)
	return t, err
}
