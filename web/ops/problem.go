package ops

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/reply"
)

// Codes of problems. Programs decide by them; they do not change from version to version.
const (
	CodeBadRequest       = "bad-request"
	CodeUnknownParameter = "unknown-parameter"
	CodeTooBroad         = "too-broad"
	CodeNotSignedIn      = "not-signed-in"
	CodeSecondFactor     = "second-factor-needed"
	CodeFreshProof       = "fresh-proof-needed"
	CodeNotAllowed       = "not-allowed"
	CodeNotFound         = "not-found"
	CodeRefused          = "refused"
	CodeChanged          = "changed"
	CodeKeyReused        = "key-reused"
	CodeAnswerLost       = "answer-lost"
	CodeTooLarge         = "too-large"
	CodeTooSlow          = "too-slow"
	CodeRateLimited      = "rate-limited"
	CodeTryLater         = "try-later"
)

// Problem is the problem of a status and a code. detail is a sentence with the remedy.
func Problem(status int, code, detail string) *reply.Problem {
	return &reply.Problem{Status: status, Code: code, Detail: detail}
}

// NotFound is the one answer for what there is not and for what is another's: not a byte of
// it depends on which.
func NotFound() *reply.Problem {
	return Problem(http.StatusNotFound, CodeNotFound, "there is no such record, or it is not yours to see")
}

// codeOf is the code of what huma itself refuses.
func codeOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return CodeNotFound
	case http.StatusRequestEntityTooLarge:
		return CodeTooLarge
	case http.StatusTooManyRequests:
		return CodeRateLimited
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return CodeTryLater
	}
	return CodeBadRequest
}

// unreadBody is what huma says when a request has no end.
const unreadBody = "cannot read request body"

// newError makes a problem of what huma finds wrong with a request. What a program would
// have to look for in several places is said in the detail, too.
func newError(status int, message string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity { // of huma: a value is not as the document says
		status = http.StatusBadRequest
	}
	if status == http.StatusInternalServerError && message == unreadBody { // the caller has not sent what it announced
		status, message, errs = http.StatusBadRequest, "the request ended early", nil
	}
	p := Problem(status, codeOf(status), message)
	var texts []string
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) || d.ErrorDetail() == nil {
			continue
		}
		e := d.ErrorDetail()
		if strings.HasPrefix(e.Message, "unknown query parameter") {
			p.Code = CodeUnknownParameter
		}
		why := e.Message
		if strings.HasPrefix(why, "invalid date/time") { // and the layout, as Go has it
			why = "it is no time; write it as 2026-01-31T12:00:00Z"
		}
		p.Errors = append(p.Errors, reply.Wrong{Pointer: pointerOf(e.Location), Detail: why})
		texts = append(texts, strings.TrimSpace(e.Location+": "+why))
	}
	if len(texts) > 0 {
		p.Detail = strings.Join(texts, "; ")
	}
	return p
}

// pointerOf is a location of huma as a JSON pointer, or the name of a parameter.
func pointerOf(location string) string {
	rest, isBody := strings.CutPrefix(location, "body")
	if !isBody {
		return location
	}
	return strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(rest)
}

// problemOf is how a handler's error is answered. A failure of the service is told apart
// from what the caller did, and nothing of its cause is shown.
func problemOf(err error) (p *reply.Problem, ours bool) {
	var tooMany *auth.TooMany
	var refused *registry.Refused
	errors.As(err, &refused) // nil if it is none
	switch {
	case errors.As(err, &p):
		return p, false
	case errors.Is(err, registry.ErrNotFound):
		return NotFound(), false
	case errors.Is(err, registry.ErrRefused):
		return advised(Problem(http.StatusConflict, CodeRefused, sentence(err)), refused), false
	case errors.Is(err, browse.ErrTooBroad):
		return Problem(http.StatusBadRequest, CodeTooBroad, after(err, browse.ErrTooBroad)), false
	case errors.Is(err, registry.ErrChanged):
		return Problem(http.StatusPreconditionFailed, CodeChanged, "the record has changed since; read it again, and decide again"), false
	case errors.Is(err, auth.ErrWrong):
		return Problem(http.StatusUnauthorized, CodeNotSignedIn, sentence(err)), false
	case errors.Is(err, auth.ErrLink):
		return Problem(http.StatusGone, CodeNotFound, sentence(auth.ErrLink)), false
	case errors.Is(err, auth.ErrWeak):
		return Problem(http.StatusBadRequest, CodeBadRequest, sentence(err)), false
	case errors.Is(err, auth.ErrBusy):
		return retryAfter(Problem(http.StatusServiceUnavailable, CodeTryLater, sentence(auth.ErrBusy)), 2*time.Second), false
	case errors.As(err, &tooMany):
		return retryAfter(Problem(http.StatusTooManyRequests, CodeRateLimited, sentence(tooMany)), tooMany.Wait), false
	}
	return retryAfter(Problem(http.StatusServiceUnavailable, CodeTryLater, "Farol cannot answer now; try again in a moment"), 5*time.Second), true
}

// toOperator is a problem as the operator of the registry reads it, from whom nothing is kept.
func toOperator(p *reply.Problem, err error, ours bool) *reply.Problem {
	var refused *registry.Refused
	switch {
	case ours, p.Code == CodeNotFound && !errors.As(err, &refused):
		p.Detail = err.Error()
	case p.Code == CodeNotFound:
		p.Detail = refused.Text
		return advised(p, refused)
	}
	return p
}

func retryAfter(p *reply.Problem, wait time.Duration) *reply.Problem {
	p.RetryAfter = strconv.Itoa(int(wait.Seconds()) + 1)
	return p
}

// after is the text of an error behind that of a sentinel in it.
func after(err, sentinel error) string {
	if _, why, found := strings.Cut(err.Error(), sentinel.Error()+": "); found {
		return why
	}
	return err.Error()
}

// sentence is the text of an error without what the program was doing.
func sentence(err error) string {
	return after(err, registry.ErrRefused)
}
