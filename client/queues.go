package client

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Message is a pulled message.
type Message struct {
	Queue       string    `json:"-"`
	ID          int64     `json:"id"`
	Sender      string    `json:"sender"`
	Text        string    `json:"message"`
	CreatedTime time.Time `json:"created_time"`
}

// Post appends messages to queues, all or none, and returns their numbers. sender may be
// empty. A post whose answer is lost is repeated, so messages may be posted twice; with
// a negative RetryFor it is an error instead.
func (c *Client) Post(ctx context.Context, sender string, messages map[string][]string) (ids map[string][]int64, err error) {
	request := map[string]any{"messages": messages}
	if sender != "" {
		request["sender"] = sender
	}
	if err := c.call(ctx, "/post", request, &ids, 0); err != nil {
		return nil, err
	}
	return ids, nil
}

// Where a pull starts, in addition to the number of a message.
const (
	Continue = 0  // at the receiver's position, which is at first the first message
	Newest   = -1 // at the newest message, or else the next to come
	OnlyNew  = -2 // after all existing messages
)

// Want is what to pull from a queue. Zero is the server's default, except for Start.
type Want struct {
	Start       int64
	Max         int           // messages at once; 0 is 1
	NoRetries   bool          // an unanswered message is not redelivered: it has failed
	Retries     int           // redeliveries of an unanswered message; 0 is 2
	FailTimeout time.Duration // after which it is redelivered; 0 is two minutes
}

func (w Want) asked() map[string]any {
	asked := map[string]any{"start": w.Start}
	if w.Max > 0 {
		asked["max"] = w.Max
	}
	switch {
	case w.NoRetries:
		asked["retry_num"] = 0
	case w.Retries > 0:
		asked["retry_num"] = w.Retries
	}
	if w.FailTimeout > 0 {
		asked["fail_timeout"] = w.FailTimeout.Seconds()
	}
	return asked
}

// Pull saves results of messages that were delivered to the receiver, by queue and
// number, and returns the next messages of the queues. It waits for them for up to wait,
// and returns none if none came. Either may be empty.
func (c *Client) Pull(ctx context.Context, receiver string, wants map[string]Want, wait time.Duration, results map[string]map[int64]string) ([]Message, error) {
	request := map[string]any{"receiver": receiver, "timeout": wait.Seconds()}
	if len(wants) > 0 {
		queues := map[string]any{}
		for queue, w := range wants {
			queues[queue] = w.asked()
		}
		request["queues"] = queues
	}
	if len(results) > 0 {
		texts := map[string]map[string]string{}
		for queue, of := range results {
			texts[queue] = map[string]string{}
			for id, text := range of {
				texts[queue][strconv.FormatInt(id, 10)] = text
			}
		}
		request["results"] = texts
	}
	var answer struct {
		Messages map[string][]Message `json:"messages"`
	}
	if err := c.call(ctx, "/pull", request, &answer, wait); err != nil {
		return nil, err
	}
	var list []Message
	for queue, messages := range answer.Messages {
		for _, m := range messages {
			m.Queue = queue
			list = append(list, m)
		}
	}
	return list, nil
}

// Worker says how [Client.Work] works.
type Worker struct {
	Receiver string          // name under which messages are shared; required
	Wants    map[string]Want // by queue; required
	Slots    int             // messages processed at once; 0 is 1

	// Failed is called for messages whose function failed, and for calls to the server that
	// failed for longer than RetryFor; m is then the zero Message. It may be nil.
	Failed func(m Message, err error)
}

// longPoll is how long one call waits for messages or items.
const longPoll = 20 * time.Second

// Work calls do for each message, and answers the message with the result. If do fails,
// the message is not answered, and is redelivered after its fail timeout. Work returns
// when ctx is done and all calls of do have ended; these do not see the end of ctx, and
// their results are saved. An error is that of a wrong request, such as an invalid name.
func (c *Client) Work(ctx context.Context, w Worker, do func(context.Context, Message) (result string, err error)) error {
	wants := map[string]Want{}
	for queue, want := range w.Wants {
		want.Max = 1 // no message lies here while another worker has nothing to do
		wants[queue] = want
	}
	return workers(ctx, w.Slots, func(ctx context.Context) error { return c.oneMessage(ctx, w, wants, do) })
}

// oneMessage waits for messages, at most one of each queue, and processes them. An error
// is that of the wait.
func (c *Client) oneMessage(ctx context.Context, w Worker, wants map[string]Want, do func(context.Context, Message) (string, error)) error {
	failed := w.Failed
	if failed == nil {
		failed = func(Message, error) {}
	}
	messages, err := c.Pull(ctx, w.Receiver, wants, longPoll, nil)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // it is what the caller wanted
	case retryable(err):
		failed(Message{}, err)
		return err
	case err != nil:
		return err
	}
	lasting := context.WithoutCancel(ctx)
	for _, m := range messages {
		result, err := do(lasting, m)
		if err == nil {
			_, err = c.Pull(lasting, w.Receiver, nil, 0, map[string]map[int64]string{m.Queue: {m.ID: result}})
		}
		if err != nil {
			failed(m, fmt.Errorf("message %d of %s: %w", m.ID, m.Queue, err))
		}
	}
	return nil
}
