package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// request is a message that somebody else published on one of the pipeline's
// topics: the id of an item that is to be requeued to the topic's stage, or of a
// file whose fixity is to be checked.
type request struct {
	*delivery

	tap   *consumer
	topic string
	sure  bool // it cannot be an old message of our own
}

// TopicRequest is what was made of one.
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

// answerRequests answers one after the other. What the database cannot answer now
// comes again.
func (l *link) answerRequests(ctx context.Context) {
	defer l.wg.Done()
	for r := range l.requests {
		if ctx.Err() != nil {
			continue // it comes again to whoever mirrors next
		}
		err := l.m.answer(ctx, r)
		if err != nil {
			l.m.o.Log.WarnContext(ctx, "a request from a topic waits for the database", "topic", r.topic, "err", err)
			err = r.tap.requeue(r.id, 2*time.Second)
		} else {
			err = r.tap.finish(r.id)
		}
		if err = errors.Join(err, r.tap.flush()); err != nil && ctx.Err() == nil {
			l.m.o.Log.WarnContext(ctx, "nsqd was not told of the answer to a request, which comes again", "topic", r.topic, "err", err)
		}
	}
}

// shown is a body as it is kept on record: what is no number may be anything.
func (r request) shown() string {
	body := strings.TrimSpace(r.body)
	if _, ok := itemOf(r.body); ok && r.size <= bodyMost {
		return body
	}
	text := strconv.QuoteToASCII(r.body)
	if r.size > int64(len(r.body)) {
		text += fmt.Sprintf("… of %d bytes", r.size)
	}
	return text
}

func (m *Mirror) answer(ctx context.Context, r request) error {
	id, ok := itemOf(r.body)
	if ok = ok && r.size <= bodyMost; ok && r.topic == fixityTopic {
		return m.answerFixity(ctx, r, id)
	}
	var item *int64
	if ok {
		item = &id
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var list []TopicRequest
	err := pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('application_name', $1, true)`, nsqName); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `SELECT * FROM topic_request($1, $2, $3, $4, $5)`, r.topic, string(r.id[:]), r.shown(), item, r.sure)
		var err error
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[TopicRequest])
		return err
	})
	if err != nil {
		return fmt.Errorf("answer a request: %w", err)
	}
	for _, a := range list {
		m.o.Log.InfoContext(ctx, "a request came from a topic", "topic", r.topic, "body", a.Body, "accepted", a.Accepted, "answer", a.Answer)
	}
	return nil
}

// answerFixity has a file checked, which does no harm if it is done twice.
func (m *Mirror) answerFixity(ctx context.Context, r request, file int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var identifier string
	err := m.db.QueryRow(ctx, `SELECT identifier FROM generic_files WHERE id = $1`, file).Scan(&identifier)
	var accepted bool
	var answer string
	var targets []registry.RequestedFixity
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		answer = fmt.Sprintf("there is no file %d", file)
	case err != nil:
		return fmt.Errorf("look up file %d: %w", file, err)
	case !r.sure:
		return nil // the check was announced, and is made
	default:
		targets, err = registry.New(m.db).RequestFixity(ctx, identifier, "")
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		if accepted, answer = len(targets) > 0, fmt.Sprintf("file %d has no copy that is checked by reading", file); accepted {
			answer = fmt.Sprintf("copies of file %d in %d targets are checked next", file, len(targets))
		}
	}
	return m.change(ctx, "record a request", `
		INSERT INTO topic_requests (topic, message, body, accepted, answer) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		r.topic, string(r.id[:]), r.shown(), accepted, answer)
}

// Requests lists what was published by others on the pipeline's topics, the last
// first.
func (m *Mirror) Requests(ctx context.Context, most int) ([]TopicRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := m.db.Query(ctx, `SELECT * FROM topic_requests ORDER BY id DESC LIMIT $1`, most)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[TopicRequest])
	if err != nil {
		return nil, fmt.Errorf("list the requests: %w", err)
	}
	return append([]TopicRequest{}, list...), nil // null is no list in JSON
}
