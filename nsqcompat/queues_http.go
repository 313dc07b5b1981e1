package nsqcompat

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/farol-preservation/farol/registry"
)

// mostShown is how many queues, and receivers of them, are shown at once.
const mostShown = 10_000

// list is GET /queues.
func (a *PullAPI) list(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	list, err := registry.New(a.queues.db).Queues(ctx, "", mostShown)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, map[string]any{"queues": list})
	return nil
}

// show is GET /queues/{queue}.
func (a *PullAPI) show(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	queue := r.PathValue("queue")
	if err := checkQueue(queue); err != nil {
		return err
	}
	list, err := registry.New(a.queues.db).Queues(ctx, queue, mostShown)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return noQueue(queue)
	}
	answerJSON(w, http.StatusOK, list[0])
	return nil
}

// message is GET /queues/{queue}/messages/{id}: what has become of a message.
func (a *PullAPI) message(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return bad("%s is no message's id, which is a whole number from 1 on", quoted(r.PathValue("id")))
	}
	queue := r.PathValue("queue")
	if err := checkQueue(queue); err != nil {
		return err
	}
	m, err := registry.New(a.queues.db).PostedMessage(ctx, queue, id)
	if errors.Is(err, registry.ErrNotFound) {
		return missing{"there is no message " + strconv.FormatInt(id, 10) + " in the queue " + queue + ", or it is no longer kept"}
	}
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, m)
	return nil
}

// place is PUT /queues/{queue}/receivers/{name}: it goes on behind a message.
func (a *PullAPI) place(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, leave, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer leave()
	all, err := record("the request", body, "position")
	if err != nil {
		return err
	}
	if isNull(all.values["position"]) {
		return bad("position is missing; it must be the number of the message behind which the receiver goes on, 0 for the beginning")
	}
	position, err := number("position", all.values["position"], 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	queue, receiver := r.PathValue("queue"), r.PathValue("name")
	if err := checkQueue(queue); err != nil {
		return err
	}
	if err := checkReceiver(receiver); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	last, err := registry.New(a.queues.db).PlaceReceiver(ctx, queue, receiver, position)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return noQueue(queue)
	case err != nil:
		return err
	case position > last:
		return bad("position is %d, but the last message of %s is %d; nothing was moved", position, queue, last)
	}
	a.queues.lines.put(queue, 1) // there may be something for who waits
	answerJSON(w, http.StatusOK, map[string]any{"queue": queue, "receiver": receiver, "position": position})
	return nil
}

// checkReceiver refuses what is no name of a receiver.
func checkReceiver(name string) error {
	if name == "" || len(name) > longestName || strings.ContainsFunc(name, unicode.IsControl) {
		return bad("receiver must be a name of 1 to %d bytes, without control characters", longestName)
	}
	return nil
}

// missing is an error of the caller's, who asks for what there is not.
type missing struct{ text string }

func (e missing) Error() string { return e.text }

func noQueue(name string) error {
	return missing{"there is no queue " + name + "; it comes into being with its first message"}
}
