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
	"github.com/farol-preservation/farol/registry/fixity"
)

// request is a message that somebody else published on one of the pipeline's
// topics: the id of an item that is to be requeued to the topic's stage, or of a
// file whose fixity is to be checked.
type request struct {
	*delivery

	of    *channel
	topic string
	sure  bool // it cannot be an old message of our own
}

// answer is that to a request.
type answer struct {
	request

	err error
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

// answerRequests answers one after the other, and leaves it to who holds the link
// to tell nsqd.
func (l *link) answerRequests(ctx context.Context) {
	defer l.wg.Done()
	for r := range l.requests {
		if ctx.Err() != nil {
			continue // it comes again to whoever mirrors next
		}
		err := l.m.answer(ctx, r)
		if err != nil {
			l.m.o.Log.WarnContext(ctx, "a request from a topic waits for the database", "topic", r.topic, "err", err)
		}
		l.mu.Lock()
		l.answers = append(l.answers, answer{r, err})
		l.mu.Unlock()
		select {
		case l.answered <- struct{}{}:
		default: // it is awake
		}
	}
}

// ask has requests answered, as many as can wait for the database.
func (l *link) ask() {
	for len(l.pending) > 0 {
		select {
		case l.requests <- l.pending[0]:
			l.pending = l.pending[1:]
		default:
			return
		}
	}
}

// settle finishes what was answered. What the database could not answer comes
// again: from nsqd, or if it is in hand as one of our own, from there.
func (l *link) settle() error {
	l.mu.Lock()
	answers := l.answers
	l.answers = nil
	l.mu.Unlock()
	touched := map[*channel]bool{}
	for _, a := range answers {
		switch {
		case a.sure:
			if err := a.of.answered(a.id, a.err == nil, time.Now()); err != nil {
				return err
			}
			touched[a.of] = true
		case a.err != nil:
			l.pending = append(l.pending, a.request)
		}
	}
	for c := range touched {
		if err := c.worker.flush(); err != nil {
			return err
		}
	}
	return nil
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
	ok = ok && r.size <= bodyMost
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var item *int64
	if ok {
		item = &id
	}
	if ok && !r.sure {
		if old, err := m.explained(ctx, r, id); err != nil || old {
			return err
		}
	}
	switch {
	case m.o.NoOrders:
		return m.ignore(ctx, r, item)
	case ok && r.topic == fixityTopic:
		return m.answerFixity(ctx, r, id)
	}
	var list []TopicRequest
	err := m.asNSQ(ctx, "answer a request", func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT * FROM topic_request($1, $2, $3, $4, $5)`, r.topic, string(r.id[:]), r.shown(), item, r.sure)
		var err error
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[TopicRequest])
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range list {
		m.o.Log.InfoContext(ctx, "a request came from a topic", "topic", r.topic, "body", a.Body, "accepted", a.Accepted, "answer", a.Answer)
	}
	return nil
}

// explained tells whether a message that may be an old one of our own is one, as
// far as anybody can tell: it is older than what has become of its item. The check
// of a file was announced, and is made.
func (m *Mirror) explained(ctx context.Context, r request, item int64) (yes bool, err error) {
	if r.topic == fixityTopic {
		return true, nil
	}
	err = m.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM all_work_items WHERE id = $1 AND (status NOT IN ('Failed', 'Suspended') OR updated_at > $2))`,
		item, r.at).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("look up item %d: %w", item, err)
	}
	return yes, nil
}

// answerFixity has a file checked, which does no harm if it is done twice.
func (m *Mirror) answerFixity(ctx context.Context, r request, file int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var identifier string
	err := m.db.QueryRow(ctx, `SELECT identifier FROM generic_files WHERE id = $1`, file).Scan(&identifier)
	var accepted bool
	var answer string
	var targets []fixity.Requested
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		answer = fmt.Sprintf("there is no file %d", file)
	case err != nil:
		return fmt.Errorf("look up file %d: %w", file, err)
	default:
		targets, err = fixity.In(registry.New(m.db)).Request(ctx, identifier, "", false)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		if accepted, answer = len(targets) > 0, fmt.Sprintf("file %d has no copy that is checked by reading", file); accepted {
			answer = fixityAnswer(file, targets)
			m.o.Log.InfoContext(ctx, "a fixity check was asked for on a topic", "file", identifier, "answer", answer)
		}
	}
	return m.change(ctx, "record a request", `
		INSERT INTO topic_requests (topic, message, body, accepted, answer) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		r.topic, string(r.id[:]), r.shown(), accepted, answer)
}

// fixityAnswer says what becomes of a request for a file that has copies to check.
func fixityAnswer(file int64, targets []fixity.Requested) string {
	next := 0
	for _, t := range targets {
		if t.Copies > 0 {
			next++
		}
	}
	if next == 0 {
		return fmt.Sprintf("the copies of file %d were recently checked, and are good", file)
	}
	return fmt.Sprintf("copies of file %d in %d targets are checked next", file, next)
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
