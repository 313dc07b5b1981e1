package lease

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// problemOf returns the problem that an error is to a caller. What the caller must
// not know, such as the names of hosts, is only logged.
func problemOf(err error) reply.Problem {
	if p, known := reply.ProblemOf(err); known {
		return p
	}
	var ended *claim.EndedError
	switch {
	case errors.As(err, &ended):
		return reply.Problem{
			Status: http.StatusConflict, Code: "ended", Outcome: ended.Outcome, ErrorCode: ended.Code,
			Detail: "This claim was ended before, as " + ended.Outcome + ". Nothing has changed now.",
		}
	case errors.Is(err, claim.ErrLost):
		return reply.Problem{Status: http.StatusConflict, Code: "lost", Detail: "This claim has lost the item. Drop the work: another worker does it, or it was cancelled."}
	case errors.Is(err, claim.ErrNotRemote):
		return reply.Problem{Status: http.StatusForbidden, Code: "not-remote", Detail: "Farol processes this stage itself; to end it without its work would lose its results. Ask for a stage that was added."}
	case errors.Is(err, claim.ErrNoStage):
		return reply.Problem{Status: http.StatusBadRequest, Code: "no-such-stage", Detail: "There is no stage of that name. farol stage list shows the stages."}
	case errors.Is(err, registry.ErrNotFound):
		return reply.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: "There is no such item."}
	}
	return reply.Problem{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The queue cannot be reached. Try again."}
}

// refuse answers with what went wrong.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Code == "unavailable" && r.Context().Err() == nil {
		a.o.Log.ErrorContext(r.Context(), "request failed; the worker was told to try again", "path", r.URL.Path, "err", err)
	}
	reply.Refuse(w, p)
}

// read reads a request, which is JSON whatever its content type says: curl's -d sets
// another. Invalid UTF-8 is replaced: what a command prints is no reason to lose what
// it did.
func read[T any](b *request.Budget, w http.ResponseWriter, r *http.Request, c access.Caller) (q T, err error) {
	body, release, err := b.Read(w, r, c.Share(r))
	if err != nil {
		if _, known := reply.ProblemOf(err); known {
			return q, err
		}
		return q, reply.BadRequest("The request did not come whole. Send it again.")
	}
	defer release()
	if err := request.Decode(body, &q); err != nil {
		return q, reply.BadRequest("The request cannot be read: %v.", err)
	}
	return q, nil
}

// readNamed reads a request that names a claim, and checks that the caller may end it.
func readNamed[T interface{ ref() claimRef }](ctx context.Context, a *API, w http.ResponseWriter, r *http.Request, c access.Caller) (q T, err error) {
	if q, err = read[T](a.budget, w, r, c); err != nil {
		return q, err
	}
	if q.ref().ID < 1 || q.ref().Token < 1 {
		return q, reply.BadRequest("name the claim by id and token, as they were given out")
	}
	return q, a.checkClaim(ctx, c, q.ref().ID, q.ref().Token)
}

// checkLength refuses a text that is too short or too long.
func checkLength(what, text string, least, most int) error {
	if n := utf8.RuneCountInString(text); n < least || n > most {
		return reply.BadRequest("%s has %d characters; it must have %d to %d", what, n, least, most)
	}
	return nil
}

var goodCode = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// checkCode refuses a text that cannot be the code of an error.
func checkCode(text string) error {
	if !goodCode.MatchString(text) {
		return reply.BadRequest("code is %q; it must have 1 to 64 lower-case letters, digits and hyphens, such as virus-found", text)
	}
	return nil
}

// printable reports whether a name of 1 to most characters can be shown to people.
func printable(name string, most int) bool {
	n := 0
	for _, r := range name {
		if n++; !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return n >= 1 && n <= most
}

// notFound turns a missing row into ErrNotFound.
func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return registry.ErrNotFound
	}
	return err
}
