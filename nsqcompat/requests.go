package nsqcompat

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxRequests bounds the requests that wait for the database.
const maxRequests = 200

// request is a message that someone else published on one of the pipeline's topics: the
// id of an item that is to be requeued to the topic's stage, or of a file whose fixity
// is to be checked.
type request struct {
	*delivery

	of      *channel
	topic   string
	foreign bool // it cannot be an old message of our own
}

// shown is a body as it is recorded: one that is not a number may be anything.
func (r request) shown() string {
	body := strings.TrimSpace(r.body)
	if _, ok := itemOf(r.body); ok && r.size <= maxKept {
		return body
	}
	text := strconv.QuoteToASCII(r.body)
	if r.size > int64(len(r.body)) {
		text += fmt.Sprintf("… of %d bytes", r.size)
	}
	return text
}

// itemOf reads the id in a body.
func itemOf(body string) (id int64, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(body), 10, 63)
	return int64(n), err == nil && n > 0
}

// answer is that to a request.
type answer struct {
	request

	err error
}

// answerRequests answers one request after the other; the goroutine of the link finishes
// the messages.
func (l *link) answerRequests(ctx context.Context) {
	for r := range l.requests {
		if ctx.Err() != nil {
			continue // the next mirror receives it again
		}
		err := l.o.records.answer(ctx, r)
		if err != nil {
			l.o.Log.WarnContext(ctx, "cannot answer a request from NSQ; retrying", "topic", r.topic, "err", err)
		}
		select {
		case l.answers <- answer{r, err}:
		case <-ctx.Done():
		}
	}
}

// passRequests passes on pending requests, as many as can wait for the database.
func (l *link) passRequests() {
	for len(l.pending) > 0 {
		select {
		case l.requests <- l.pending[0]:
			l.pending = l.pending[1:]
		default:
			return
		}
	}
}

// finishAnswered finishes the messages of requests that were answered. A request that
// the database could not answer comes again: from nsqd, or if the message is held as one
// of our own, from there.
func (l *link) finishAnswered(answers ...answer) error {
	for more := true; more; {
		select {
		case a := <-l.answers:
			answers = append(answers, a)
		default:
			more = false
		}
	}
	touched := map[*channel]bool{}
	for _, a := range answers {
		switch {
		case a.foreign:
			if err := a.of.endForeign(a.id, a.err == nil, time.Now()); err != nil {
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
