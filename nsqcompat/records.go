package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// records is what the database keeps of NSQ: requests and orders that came from there,
// pauses, and what was left in nsqd.
type records struct {
	db       *pgxpool.Pool
	log      *slog.Logger
	noOrders bool
}

// nsqName is the program's name under which changes that come from nsqd are recorded.
const nsqName = "nsq"

// change makes a change that came from nsqd.
func (s records) change(ctx context.Context, what, sql string, args ...any) error {
	return s.asNSQ(ctx, what, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// asNSQ does something that came from nsqd in a transaction of its own.
func (s records) asNSQ(ctx context.Context, what string, do func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('application_name', $1, true)`, nsqName); err != nil {
			return err
		}
		return do(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// TopicRequest is a request and its answer.
type TopicRequest struct {
	ID       int64     `json:"id"`
	At       time.Time `json:"at"`
	Topic    string    `json:"topic"`
	Message  string    `json:"message"` // nsqd's id
	Body     string    `json:"body"`
	Item     *int64    `json:"work_item_id" db:"work_item_id"`
	Accepted bool      `json:"accepted"`
	Answer   string    `json:"answer"`
}

// requests lists requests, the last first.
func (s records) requests(ctx context.Context, most int) ([]TopicRequest, error) {
	list, err := collect(ctx, s.db, "list the requests", pgx.RowToStructByName[TopicRequest], `SELECT * FROM topic_requests ORDER BY id DESC LIMIT $1`, most)
	return append([]TopicRequest{}, list...), err // null is not a list in JSON
}

// answer answers a request, once for each message of nsqd.
func (s records) answer(ctx context.Context, r request) error {
	id, ok := itemOf(r.body)
	ok = ok && r.size <= maxKept
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var item *int64
	if ok {
		item = &id
	}
	if ok && !r.foreign {
		if old, err := s.explained(ctx, r, id); err != nil || old {
			return err
		}
	}
	switch {
	case s.noOrders:
		return s.refuseRequest(ctx, r, item)
	case ok && r.topic == topiclog.FixityTopic:
		return s.answerFixity(ctx, r, id)
	}
	var list []TopicRequest
	err := s.asNSQ(ctx, "answer a request", func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT * FROM topic_request($1, $2, $3, $4, $5)`, r.topic, string(r.id[:]), r.shown(), item, r.foreign)
		var err error
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[TopicRequest])
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range list {
		s.log.InfoContext(ctx, "received a request from NSQ", "topic", r.topic, "body", a.Body, "accepted", a.Accepted, "answer", a.Answer)
	}
	return nil
}

const explainedSQL = `SELECT EXISTS (SELECT FROM all_work_items WHERE id = $1 AND (status NOT IN ('Failed', 'Suspended') OR updated_at > $2))`

// explained reports whether a message of unknown origin is taken for our own: it is older
// than the last change of its item. The check of a file was announced, and is made.
func (s records) explained(ctx context.Context, r request, item int64) (yes bool, err error) {
	if r.topic == topiclog.FixityTopic {
		return true, nil
	}
	if err := s.db.QueryRow(ctx, explainedSQL, item, r.at).Scan(&yes); err != nil {
		return false, fmt.Errorf("look up item %d: %w", item, err)
	}
	return yes, nil
}

// recordRequestSQL relies on the unique index topic_requests_message: a message of nsqd is
// answered once.
const recordRequestSQL = `
INSERT INTO topic_requests (topic, message, body, accepted, answer) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`

// answerFixity has a file checked, which does no harm if it is done twice.
func (s records) answerFixity(ctx context.Context, r request, file int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var identifier string
	err := s.db.QueryRow(ctx, `SELECT identifier FROM generic_files WHERE id = $1`, file).Scan(&identifier)
	var accepted bool
	var answer string
	var targets []record.FixityRequested
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		answer = fmt.Sprintf("there is no file %d", file)
	case err != nil:
		return fmt.Errorf("look up file %d: %w", file, err)
	default:
		targets, err = fixity.In(registry.New(s.db)).Request(ctx, identifier, "", false)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		if accepted, answer = len(targets) > 0, fmt.Sprintf("file %d has no copy that fixity checks read", file); accepted {
			answer = fixityAnswer(file, targets)
			s.log.InfoContext(ctx, "a fixity check was requested from NSQ", "file", identifier, "answer", answer)
		}
	}
	return s.change(ctx, "record a request", recordRequestSQL, r.topic, string(r.id[:]), r.shown(), accepted, answer)
}

// fixityAnswer is the answer for a file that has copies to check.
func fixityAnswer(file int64, targets []record.FixityRequested) string {
	next := 0
	for _, t := range targets {
		if t.Copies > 0 {
			next++
		}
	}
	if next == 0 {
		return fmt.Sprintf("the copies of file %d were recently checked, and are good", file)
	}
	return fmt.Sprintf("the copies of file %d in %d targets will be checked next", file, next)
}

// noOrders is the answer while orders are off.
const noOrders = "requests from NSQ are disabled (FAROL_NSQ_ORDERS): nothing was changed"

// refuseRequestSQL relies on the unique index topic_requests_message: a message of nsqd is
// answered once.
const refuseRequestSQL = `
WITH noted AS (
	INSERT INTO topic_requests (topic, message, body, work_item_id, accepted, answer)
	VALUES ($1, $2, $3, (SELECT id FROM all_work_items WHERE id = $4 AND $1 <> 'fixity_check'), false, $5)
	ON CONFLICT DO NOTHING RETURNING work_item_id
)
INSERT INTO work_item_audit (work_item_id, before, after, refused)
SELECT w.id, to_jsonb(w), to_jsonb(w), format('requeue asked for on the topic %s: %s', $1::text, $5::text)
FROM noted JOIN all_work_items w ON w.id = noted.work_item_id`

// refuseRequest records a request that is refused because orders are off, also in the
// audit of its item.
func (s records) refuseRequest(ctx context.Context, r request, item *int64) error {
	s.log.WarnContext(ctx, "request from NSQ refused: requests from NSQ are disabled", "topic", r.topic, "body", r.shown())
	return s.change(ctx, "record a request", refuseRequestSQL, r.topic, string(r.id[:]), r.shown(), item, noOrders)
}

// trimRequestsSQL uses the index topic_requests_at.
const trimRequestsSQL = `
DELETE FROM topic_requests WHERE id IN (
	SELECT id FROM topic_requests WHERE at < now() - $1::interval ORDER BY at LIMIT 10000)`

// requestsKept is for how long requests stay on record.
const requestsKept = 90 * 24 * time.Hour

// trimRequests deletes old requests, some at a time.
func (s records) trimRequests(ctx context.Context) error {
	return s.change(ctx, "trim the requests", trimRequestsSQL, requestsKept)
}

const agreedSQL = `
WITH was AS MATERIALIZED (SELECT * FROM nsq_topics), began AS (UPDATE nsq_topics SET settled = false WHERE settled)
SELECT s.topic, bool_and(s.paused), coalesce(bool_and(was.paused), false), coalesce(bool_and(was.settled), false),
	max(was.left_at), coalesce(max(was.left_messages), 0)
FROM stage_pauses s LEFT JOIN was USING (topic) GROUP BY s.topic`

// agreed reads which topics both sides have as paused, and what an earlier mirror left
// in each that it handed over; it takes the handovers back. A topic that was just created
// in nsqd is not paused there, so Farol's pause is to be carried over.
func (q queueReader) agreed(ctx context.Context, created map[string]bool) (paused map[string]bool, left map[string]*handover, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := q.conn.Query(ctx, agreedSQL)
	paused, left = map[string]bool{}, map[string]*handover{}
	var topic string
	var farol, agreed, settled bool
	var at *time.Time
	var messages int64
	_, err = pgx.ForEachRow(rows, []any{&topic, &farol, &agreed, &settled, &at, &messages}, func() error {
		paused[topic] = agreed && !created[topic]
		if settled {
			left[topic] = &handover{messages: messages}
		}
		if settled && at != nil {
			left[topic].at = *at
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the pauses that both sides have: %w", err)
	}
	return paused, left, nil
}

const rememberPauseSQL = `
INSERT INTO nsq_topics (topic, paused) VALUES ($1, $2)
ON CONFLICT (topic) DO UPDATE SET paused = excluded.paused`

// rememberPause records a pause that both sides have.
func (s records) rememberPause(ctx context.Context, topic string, paused bool) error {
	return s.change(ctx, "record a pause", rememberPauseSQL, topic, paused)
}

const handOverSQL = `
INSERT INTO nsq_topics (topic, settled, left_at, left_messages)
SELECT t, true, a, n FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) AS u (t, a, n)
ON CONFLICT (topic) DO UPDATE SET settled = true, left_at = excluded.left_at, left_messages = excluded.left_messages`

// handOver records what is left in topics, for the next mirror.
func (s records) handOver(ctx context.Context, topics []string, at []*time.Time, messages []int64) error {
	return s.change(ctx, "record what is left in nsqd", handOverSQL, topics, at, messages)
}
