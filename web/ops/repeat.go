package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
)

// keyHeader names a request that may be sent again without being done again.
const keyHeader = "Idempotency-Key"

// mostKey is how many characters a key has at most.
const mostKey = 100

// keepTime is how long an answer may take to be kept after its request has ended.
const keepTime = 5 * time.Second

// once carries out a request with a key once, and answers it as often as it comes.
func (a *API) once(w http.ResponseWriter, r *http.Request, body []byte, o Operation, c access.Caller, serve func(http.ResponseWriter, *http.Request)) {
	k, err := keyOf(r, body, o, c)
	if err != nil {
		a.refuse(r, w, o, c, err)
		return
	}
	state, kept, err := a.registry.TakeKey(r.Context(), &k)
	if err == nil {
		err = keyProblem(state)
	}
	switch {
	case err != nil:
		a.refuse(r, w, o, c, err)
	case state == registry.KeyAnswered:
		contentType := "application/json"
		if kept.Status >= http.StatusBadRequest {
			contentType = "application/problem+json"
		}
		w.Header().Set("Idempotency-Replayed", "true")
		if kept.ETag != "" {
			w.Header().Set("ETag", kept.ETag)
		}
		reply.Raw(w, kept.Status, contentType, kept.Body)
	default:
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		serve(rec, r.WithContext(registry.WithKey(r.Context(), k)))
		a.keep(r.Context(), k, rec)
	}
}

// keyProblem is why a request with a key in a state is not carried out; nil: it is, or was.
func keyProblem(state registry.KeyState) error {
	switch state {
	case registry.KeyOfAnother:
		return Problem(http.StatusUnprocessableEntity, CodeKeyReused, "this Idempotency-Key was used for another request; choose a new one")
	case registry.KeyInWork:
		return retryAfter(Problem(http.StatusConflict, CodeRefused, "a request with this Idempotency-Key is in progress; ask again in a moment"), time.Second)
	case registry.KeyLost:
		return Problem(http.StatusConflict, CodeAnswerLost, "this request was carried out, but its answer was lost; read the record that it was about")
	case registry.KeyNew, registry.KeyAnswered:
	}
	return nil
}

// keyOf is the key of a request with a body.
func keyOf(r *http.Request, body []byte, o Operation, c access.Caller) (registry.Key, error) {
	k := registry.Key{Caller: c.ID(), Key: r.Header.Get(keyHeader), Operation: o.ID + " " + r.URL.Path}
	if len(k.Key) > mostKey {
		return k, Problem(http.StatusBadRequest, CodeBadRequest, "Idempotency-Key has more than 100 characters")
	}
	k.Request = sha256.Sum256(append([]byte(r.URL.RawQuery+"\n"), body...))
	return k, nil
}

// keep keeps an answer, or forgets a request that failed for no fault of its own. Should we
// die here, the request is known to be carried out, and its answer is lost.
func (a *API) keep(ctx context.Context, k registry.Key, rec *recorder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	var err error
	if rec.status >= http.StatusInternalServerError || rec.status == http.StatusTooManyRequests {
		err = a.registry.DropKey(ctx, k)
	} else {
		err = a.registry.KeepAnswer(ctx, k, registry.Kept{Status: rec.status, ETag: rec.Header().Get("ETag"), Body: rec.body.Bytes()})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.WarnContext(ctx, "cannot keep the answer to a request; if it is sent again, it is answered that the answer was lost", "err", err)
	}
}

// recorder writes an answer and keeps it. Answers to requests with a key are small.
type recorder struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

// WriteHeader is of http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write is of http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p) //nolint:wrapcheck // as it is
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
