package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// topicLog is the topic log as one reader sees it, through one connection.
type topicLog struct {
	conn   *pgx.Conn
	reader string
}

// position is a place in the log: that of a message, or of the last message
// that a reader has passed.
type position struct {
	XID       uint64
	MessageID int64
}

type message struct {
	Position position
	Topic    string
	Body     string
}

// lock tries to become the only one with the reader's name, for as long as the
// connection lasts.
func (l topicLog) lock(ctx context.Context) (mine bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	row := l.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended('topic reader ' || $1, 0))`, l.reader)
	if err := row.Scan(&mine); err != nil {
		return false, fmt.Errorf("lock reader %s: %w", l.reader, err)
	}
	return mine, nil
}

// enterTimeout is long enough to renumber a log that was never trimmed.
const enterTimeout = 10 * time.Minute

const newReaderSQL = `INSERT INTO topic_readers (name) VALUES ($1) ON CONFLICT DO NOTHING`

// enter makes the reader known, at the beginning of the log if it is new. If
// the database was restored into another cluster, whose transactions are
// numbered anew, enter has the log renumbered and says so.
func (l topicLog) enter(ctx context.Context) (renumbered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, newReaderSQL, l.reader); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT renumber_log()`).Scan(&renumbered)
	})
	if err != nil {
		return false, fmt.Errorf("enter the topic log as %s: %w", l.reader, err)
	}
	return renumbered, nil
}

// cursor reads the reader's position. It is read for every batch, since a
// person may set it back to have messages published again.
func (l topicLog) cursor(ctx context.Context) (at position, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	row := l.conn.QueryRow(ctx, `SELECT xid, message_id FROM topic_readers WHERE name = $1`, l.reader)
	if err := row.Scan(&at.XID, &at.MessageID); err != nil {
		return at, fmt.Errorf("read the position of %s: %w", l.reader, err)
	}
	return at, nil
}

// afterSQL stops before the oldest transaction that is still open: it, and only
// those after it, may yet add messages.
const afterSQL = `
SELECT xid, id, topic, body FROM pipeline_messages
WHERE (xid, id) > (@xid, @id) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, id
LIMIT @n`

// after returns up to n messages behind a position that can no longer be
// joined by others between them.
func (l topicLog) after(ctx context.Context, at position, n int) ([]message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := l.conn.Query(ctx, afterSQL, pgx.NamedArgs{"xid": at.XID, "id": at.MessageID, "n": n}) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m message, err error) {
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

var errMoved = errors.New("it was moved by someone else meanwhile")

// move sets the cursor, unless it is no longer where the batch began. It is
// done even when we are told to stop: nsqd has the messages already.
func (l topicLog) move(ctx context.Context, from, to position) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	tag, err := l.conn.Exec(ctx, moveSQL, pgx.NamedArgs{
		"name": l.reader, "xid": to.XID, "id": to.MessageID, "from_xid": from.XID, "from_id": from.MessageID,
	})
	if err == nil && tag.RowsAffected() == 0 {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("move reader %s on: %w", l.reader, err)
	}
	return nil
}

// Lag is how far a mirror is behind.
type Lag struct {
	Messages int           // not yet published; counted to 100,000 and no further
	Oldest   time.Duration // age of the first of them; 0 if there is none
}

const lagSQL = `
SELECT count(*), coalesce(greatest(clock_timestamp() - min(created_at), '0'), '0')
FROM (
	SELECT created_at FROM pipeline_messages
	WHERE (xid, id) > (
		coalesce((SELECT xid FROM topic_readers WHERE name = @name), '0'),
		coalesce((SELECT message_id FROM topic_readers WHERE name = @name), 0))
	ORDER BY xid, id
	LIMIT 100000
) behind`

// Lag asks the database how far the mirror is behind, whether it runs here, in
// another process or not at all.
func (m *Mirror) Lag(ctx context.Context) (lag Lag, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	row := m.db.QueryRow(ctx, lagSQL, pgx.NamedArgs{"name": m.o.Reader})
	if err := row.Scan(&lag.Messages, &lag.Oldest); err != nil {
		return Lag{}, fmt.Errorf("read the lag of %s: %w", m.o.Reader, err)
	}
	return lag, nil
}
