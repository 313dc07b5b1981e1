package nsqcompat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PullAPI is the HTTP API of [Queues], with the shapes and rules of NQ: POST /post
// and POST /pull. Requests and answers are JSON; what is wrong with a request is said
// in the key _error. It is safe for concurrent use.
type PullAPI struct {
	queues *Queues
	o      PullOptions
	in     intakes
}

// PullOptions bound what a PullAPI takes in.
type PullOptions struct {
	MaxBody  int64                                 // bytes of a request; 0 is 4 MiB
	Defaults Defaults                              // of pulls; all zero: those of NQ
	Stopping <-chan struct{}                       // when it closes, calls that wait are answered; nil never does
	Caller   func(r *http.Request) (Caller, error) // who sends a request; nil: somebody who may do all
	Log      *slog.Logger                          // nil discards
}

// NewPullAPI returns the API of queues.
func NewPullAPI(queues *Queues, o PullOptions) *PullAPI {
	if o.MaxBody <= 0 {
		o.MaxBody = 4 << 20
	}
	if o.Defaults == (Defaults{}) {
		o.Defaults = NQDefaults()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &PullAPI{queues: queues, o: o, in: newIntakes(o.MaxBody)}
}

// Routes adds the API to a mux.
func (a *PullAPI) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /post", a.guarded("post", a.post))
	mux.HandleFunc("POST /pull", a.guarded("pull", a.pull))
	mux.HandleFunc("GET /queues", a.guarded("post or pull", a.list))
	mux.HandleFunc("GET /queues/{queue}", a.guarded("post or pull", a.show))
	mux.HandleFunc("GET /queues/{queue}/messages/{id}", a.guarded("post or pull", a.message))
	mux.HandleFunc("PUT /queues/{queue}/receivers/{name}", a.guarded("pull", a.place))
}

// wrongRequest is an error of the caller's.
type wrongRequest struct{ text string }

func (e wrongRequest) Error() string { return e.text }

func bad(format string, args ...any) error { return wrongRequest{fmt.Sprintf(format, args...)} }

// guarded lets in who has a right, or one of several, and answers errors.
func (a *PullAPI) guarded(right string, handle func(http.ResponseWriter, *http.Request, Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var caller Caller
		err := error(nil)
		if a.o.Caller != nil {
			caller, err = a.o.Caller(r)
		}
		if err == nil && !slices.ContainsFunc(strings.Split(right, " or "), caller.May) {
			err = &AccessError{http.StatusForbidden, "the token " + caller.Name + " may not " + right}
		}
		if err == nil {
			err = handle(w, r, caller)
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	}
}

// refuse answers with an error. What is not the caller's doing is logged, and told
// without its details, which may name hosts.
func (a *PullAPI) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "the messages could not be saved or read; try again"
	var wrong wrongRequest
	var none missing
	var unknown *UnknownResultsError
	var access *AccessError
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errSlow): // the server takes its caller for gone
		status, text = http.StatusRequestTimeout, errSlow.Error()
	case r.Context().Err() != nil:
		return // nobody is there
	case errors.As(err, &wrong):
		status, text = http.StatusBadRequest, wrong.text
	case errors.As(err, &none):
		status, text = http.StatusNotFound, none.text
	case errors.As(err, &unknown):
		status, text = http.StatusBadRequest, unknown.Error()
	case errors.As(err, &access):
		status, text = access.Status, access.Error()
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="farol"`)
		}
	case errors.Is(err, errBusy):
		status, text = http.StatusServiceUnavailable, errBusy.Error()
		w.Header().Set("Retry-After", "1")
	case errors.As(err, &large):
		status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes", large.Limit)
	case errors.Is(err, ErrNotPostable):
		status, text = http.StatusForbidden, errors.Unwrap(err).Error()+"; requeue items with farol requeue"
	default:
		a.o.Log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "err", err)
	}
	hangUp(w, err)
	answerJSON(w, status, map[string]string{"_error": text})
}

// hangUp has the connection closed of a request that was not read to its end.
func hangUp(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	if errors.Is(err, errBusy) || errors.Is(err, errSlow) || errors.As(err, &large) {
		w.Header().Set("Connection", "close")
	}
}

// answerTime is how long a client may take to read an answer.
const answerTime = time.Minute

// answering gives the client time to read an answer. It is called before each: what
// was set for an earlier one over the same connection still holds, and may be over.
func answering(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) //nolint:errcheck // where there is none to set, none is needed
}

func answerJSON(w http.ResponseWriter, status int, answer any) {
	answering(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(answer) //nolint:errcheck,errchkjson // a client that is gone reads nothing
}

// post is POST /post.
func (a *PullAPI) post(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, leave, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer leave()
	p, err := readPost(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statementTime)
	defer cancel()
	firsts, err := a.queues.PostLater(ctx, p.sender, p.postings, p.later)
	if err != nil {
		return err
	}
	ids := make(map[string][]int64, len(p.postings))
	for i, posting := range p.postings {
		for n := range posting.Messages {
			ids[posting.Queue] = append(ids[posting.Queue], firsts[i]+int64(n))
		}
	}
	answerJSON(w, http.StatusOK, ids)
	return nil
}

// body reads a request, which is in memory until leave is called.
func (a *PullAPI) body(w http.ResponseWriter, r *http.Request, c Caller) (body []byte, leave func(), err error) {
	body, leave, err = a.in.read(w, r, callerOf(c, r), a.o.MaxBody)
	if err != nil {
		return nil, nil, err
	}
	if err := wellFormed(body); err != nil {
		leave()
		return nil, nil, err
	}
	return body, leave, nil
}

// pull is POST /pull. What it has brought is in memory until its results are saved,
// and not while it waits.
func (a *PullAPI) pull(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, leave, err := a.body(w, r, c)
	if err != nil {
		return err
	}
	defer leave()
	p, err := readPull(body, a.o.Defaults)
	if err != nil {
		return err
	}
	if len(p.refused) > 0 {
		return a.saveSome(r.Context(), p)
	}
	answers := Answers{p.results, leave}
	p.results = nil
	type answer struct {
		Messages map[string][]Message `json:"messages"`
	}
	if len(p.wants) == 0 {
		if err := a.queues.answer(r.Context(), p.receiver, answers); err != nil {
			return err
		}
		answerJSON(w, http.StatusOK, answer{map[string][]Message{}})
		return nil
	}
	ctx, end := a.untilStopping(r.Context())
	defer end()
	given, err := a.queues.Pull(ctx, p.receiver, answers, p.wants, p.timeout)
	if err != nil && !errors.Is(err, ErrStopping) {
		return err
	}
	got := map[string][]Message{}
	for i, messages := range given {
		if len(messages) > 0 {
			got[p.wants[i].Queue] = messages
		}
	}
	if len(got) == 0 {
		answering(w)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	answerJSON(w, http.StatusOK, answer{got})
	return nil
}

// saveSome saves the results of a request that has others, which cannot be saved. Who
// sent it has to hear of those, and so is given nothing.
func (a *PullAPI) saveSome(ctx context.Context, p pullRequest) error {
	saved, err := a.queues.SaveResults(ctx, p.receiver, p.results)
	if err != nil {
		return err
	}
	if unknown := allSaved(p.receiver, saved, p.results); unknown != nil {
		p.refused = append(p.refused, unknown.Error())
	}
	return bad("%d results are saved; these are not: %s", saved, strings.Join(p.refused, "; "))
}

// untilStopping is a context that also ends, by [ErrStopping], when the server does.
func (a *PullAPI) untilStopping(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if a.o.Stopping != nil {
		go func() {
			select {
			case <-a.o.Stopping:
				cancel(ErrStopping)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// number reads a JSON number that must be whole and within bounds.
func number(what string, raw json.RawMessage, otherwise, least, most int64) (int64, error) {
	if isNull(raw) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		return 0, bad("%s is %s; it must be a whole number from %d to %d", what, short(raw), least, most)
	}
	return n, nil
}

// seconds reads a JSON number of seconds, which may be a fraction.
func seconds(what string, raw json.RawMessage, otherwise, most time.Duration) (time.Duration, error) {
	if isNull(raw) {
		return otherwise, nil
	}
	var s float64
	if err := json.Unmarshal(raw, &s); err != nil || s < 0 || s > most.Seconds() {
		return 0, bad("%s is %s; it must be a number of seconds from 0 to %.0f", what, short(raw), most.Seconds())
	}
	return time.Duration(s * float64(time.Second)), nil
}

func isNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// short is what is shown of a wrong value.
func short(raw json.RawMessage) string {
	if len(raw) > 60 {
		return strconv.QuoteToASCII(string(raw[:60])) + "…"
	}
	return string(raw)
}
