package pull

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// mostShown is how many queues, and receivers of them, are shown at once.
const mostShown = 10_000

// showQueues is GET /queues.
func (a *API) showQueues(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	list, err := a.registry.Queues(ctx, "", mostShown)
	if err != nil {
		return err
	}
	answer(w, map[string]any{"queues": list})
	return nil
}

// showQueue is GET /queues/{queue}.
func (a *API) showQueue(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	queue := r.PathValue("queue")
	if err := checkQueue(queue); err != nil {
		return err
	}
	list, err := a.registry.Queues(ctx, queue, mostShown)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return noQueue(queue)
	}
	answer(w, list[0])
	return nil
}

// showMessage is GET /queues/{queue}/messages/{id}: a message and its deliveries.
func (a *API) showMessage(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return request.Errorf("%s is not the id of a message, a whole number from 1 on", request.Quote(r.PathValue("id")))
	}
	queue := r.PathValue("queue")
	if err := checkQueue(queue); err != nil {
		return err
	}
	m, err := a.registry.PostedMessage(ctx, queue, id)
	if errors.Is(err, registry.ErrNotFound) {
		return missing("there is no message " + strconv.FormatInt(id, 10) + " in the queue " + queue + ", or it is no longer kept")
	}
	if err != nil {
		return err
	}
	answer(w, m)
	return nil
}

// setPosition is PUT /queues/{queue}/receivers/{name}: the receiver continues behind a
// message.
func (a *API) setPosition(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	body, release, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer release()
	f := fieldsOf("the request", "", body, "position")
	if f.err == nil && !f.has("position") {
		return request.Errorf("position is missing; it must be the number of the message after which the receiver continues, 0 for the beginning")
	}
	position := f.number("position", 0, 0, math.MaxInt64)
	queue, receiver := r.PathValue("queue"), r.PathValue("name")
	f.keep(checkQueue(queue))
	f.keep(checkReceiver(receiver))
	if f.err != nil {
		return f.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	last, err := a.registry.PlaceReceiver(ctx, queue, receiver, position)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return noQueue(queue)
	case err != nil:
		return err
	case position > last:
		return request.Errorf("position is %d, but the last message of %s is %d; nothing was moved", position, queue, last)
	}
	a.broker.waits.wakeSome(queue, 1) // a waiting call may get it
	answer(w, map[string]any{"queue": queue, "receiver": receiver, "position": position})
	return nil
}

// missing is the problem of a request for what does not exist.
func missing(text string) error {
	return reply.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: text}
}

func noQueue(name string) error {
	return missing("there is no queue " + name + "; a queue is created with its first message")
}
