package nsqcompat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// problem is an answer that is no success, as RFC 9457 has it. Programs go by its
// code, which stays as it is from version to version.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`

	// How a claim had been ended before, of the code ended.
	Outcome   string `json:"outcome,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
}

func (p problem) Error() string { return p.Detail }

func badRequest(format string, args ...any) error {
	return problem{Status: http.StatusBadRequest, Code: "bad-request", Detail: fmt.Sprintf(format, args...)}
}

// problemOf says what an error is to a caller. What it must not know, such as the
// names of hosts, is only logged.
func problemOf(err error) problem {
	var p problem
	var tooLarge *http.MaxBytesError
	var ended *claim.EndedError
	var access *AccessError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &access):
		p = problem{Status: access.Status, Code: "not-allowed", Detail: access.Reason}
		if access.Status == http.StatusUnauthorized {
			p.Code = "unauthorized"
		}
	case errors.As(err, &tooLarge):
		p = problem{Status: http.StatusRequestEntityTooLarge, Code: "too-large", Detail: fmt.Sprintf("A request has %d bytes at most.", tooLarge.Limit)}
	case errors.Is(err, errBusy):
		p = problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "Too many requests are being read. Try again."}
	case errors.Is(err, errSlow):
		p = problem{Status: http.StatusRequestTimeout, Code: "too-slow", Detail: "The request came too slowly. Send it again over a quicker connection."}
	case errors.As(err, &ended):
		p = problem{
			Status: http.StatusConflict, Code: "ended", Outcome: ended.Outcome, ErrorCode: ended.Code,
			Detail: "This claim was ended before, as " + ended.Outcome + ". Nothing has changed now.",
		}
	case errors.Is(err, claim.ErrLost):
		p = problem{Status: http.StatusConflict, Code: "lost", Detail: "The item is not this claim's any more. Drop the work: somebody else does it, or nobody wants it."}
	case errors.Is(err, claim.ErrNotRemote):
		p = problem{Status: http.StatusForbidden, Code: "not-remote", Detail: "Farol works this stage itself: to end it without its work would lose what it makes. Ask for a stage that was added."}
	case errors.Is(err, claim.ErrNoStage):
		p = problem{Status: http.StatusBadRequest, Code: "no-such-stage", Detail: "There is no stage of that name. farol stage list shows the stages there are."}
	case errors.Is(err, registry.ErrNotFound):
		p = problem{Status: http.StatusNotFound, Code: "not-found", Detail: "There is no such item."}
	default:
		p = problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The queue cannot be reached. Try again."}
	}
	p.Type, p.Title = "urn:farol:problem:"+p.Code, http.StatusText(p.Status)
	return p
}

// refuse answers with what went wrong.
func (a *LeaseAPI) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Code == "unavailable" && r.Context().Err() == nil {
		a.o.Log.ErrorContext(r.Context(), "a worker's call failed", "path", r.URL.Path, "err", err)
	}
	switch p.Status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="farol"`)
	}
	hangUp(w, err)
	answering(w)
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) //nolint:errcheck,errchkjson // who is gone reads nothing
}

// writeJSON answers a call. Whatever follows the first error is of no use.
func writeJSON(w http.ResponseWriter, answer any) error {
	answering(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // workers in shell read it too
	if err := e.Encode(answer); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// mostBody bounds what is read of a caller.
const mostBody = smallBody

// read reads what a caller has sent, which is JSON whatever it is called: curl's -d
// calls it something else. What is no text in it is replaced: whatever a command prints
// is no reason to lose what it did.
func read[T any](in intakes, w http.ResponseWriter, r *http.Request, c Caller) (q T, err error) {
	body, leave, err := in.read(w, r, callerOf(c, r), mostBody)
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge), errors.Is(err, errBusy), errors.Is(err, errSlow):
		return q, err
	case err != nil:
		return q, badRequest("The request did not come whole. Send it again.")
	}
	defer leave()
	if err := readInto(body, &q); err != nil {
		return q, badRequest("The request cannot be read: %v.", err)
	}
	return q, nil
}

// named reads a request that names a claim, and sees to it that the caller may.
func named[T interface{ ref() claimRef }](ctx context.Context, a *LeaseAPI, w http.ResponseWriter, r *http.Request, c Caller) (q T, err error) {
	if q, err = read[T](a.in, w, r, c); err != nil {
		return q, err
	}
	if q.ref().ID < 1 || q.ref().Token < 1 {
		return q, badRequest("name the claim by id and token, as they were given out")
	}
	return q, a.own(ctx, c, q.ref().ID, q.ref().Token)
}

// bounded refuses a text that is too short or too long.
func bounded(what, text string, least, most int) error {
	if n := utf8.RuneCountInString(text); n < least || n > most {
		return badRequest("%s has %d characters; it must have %d to %d", what, n, least, most)
	}
	return nil
}

var goodCode = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// code refuses what is no code of an error.
func code(text string) error {
	if !goodCode.MatchString(text) {
		return badRequest("code is %q; it must have 1 to 64 small letters, digits and hyphens, such as virus-found", text)
	}
	return nil
}

// printable tells whether a name of 1 to most characters can be shown to people.
func printable(name string, most int) bool {
	n := 0
	for _, r := range name {
		if n++; !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return n >= 1 && n <= most
}

// notFound is ErrNotFound for a row that is not there.
func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return registry.ErrNotFound
	}
	return err
}
