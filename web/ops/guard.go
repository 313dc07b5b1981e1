package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// guard identifies the caller and refuses who may not, before the body of the request is
// read. The memory for it, and the time that it may take, are bounded.
func (a *API) guard(o Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		c, err := a.identified(w, r)
		if err == nil {
			if p := o.refuses(c); p != nil {
				err = p
			}
		}
		if err == nil {
			err = readable(ctx.Operation(), r.URL)
		}
		if err != nil {
			a.refuse(r, w, o, c, err)
			return
		}
		if !o.Table {
			r.Header.Del("Accept") // there is nothing but JSON
		}
		body, release, err := a.read(w, r, o, c)
		if err != nil {
			a.refuse(r, w, o, c, err)
			return
		}
		defer release()
		serve := func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(bytes.NewReader(body))
			known := context.WithValue(r.Context(), callerKey{}, c)
			o.tagging(w, r, func(w http.ResponseWriter) {
				next(humago.NewContext(ctx.Operation(), r.WithContext(context.WithValue(known, requestKey{}, r)), w))
			})
		}
		switch {
		case c.Operator: // nothing is lost between us
			serve(w, r)
		case r.Header.Get(keyHeader) == "" && o.Once:
			a.refuse(r, w, o, c, Problem(http.StatusBadRequest, CodeBadRequest, "send an Idempotency-Key of your choice, so that a request that is sent twice is carried out once"))
		case r.Header.Get(keyHeader) == "" || o.Method == http.MethodGet:
			serve(w, r)
		case !o.takesKey() || !c.Known():
			a.refuse(r, w, o, c, Problem(http.StatusBadRequest, CodeBadRequest, "this operation takes no Idempotency-Key: its answer has a secret, which is not kept"))
		default:
			a.once(w, r, body, o, c, serve)
		}
	}
}

// read reads the body of a request that changes something. It is in memory until release is
// called.
func (a *API) read(w http.ResponseWriter, r *http.Request, o Operation, c access.Caller) (body []byte, release func(), err error) {
	if o.Method == http.MethodGet {
		return nil, func() {}, nil
	}
	body, release, err = a.budget.ReadUpTo(w, r, c.ID(), o.MostBody())
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return body, release, nil
	case errors.As(err, &tooLarge):
		err = Problem(http.StatusRequestEntityTooLarge, CodeTooLarge, "the request is larger than "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes")
	case errors.Is(err, request.ErrSlow):
		err = Problem(http.StatusRequestTimeout, CodeTooSlow, request.ErrSlow.Error())
	case errors.Is(err, request.ErrBusy):
		err = retryAfter(Problem(http.StatusServiceUnavailable, CodeTryLater, request.ErrBusy.Error()), time.Second)
	default:
		err = Problem(http.StatusBadRequest, CodeBadRequest, "the request ended early")
	}
	return nil, nil, err
}

// readable refuses parameters that are no text, and one with several values that takes one:
// which of them was meant is not ours to guess.
func readable(o *huma.Operation, u *url.URL) error {
	query := u.Query()
	texts := []string{u.Path}
	for name, values := range query {
		texts = append(append(texts, name), values...)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			return Problem(http.StatusBadRequest, CodeBadRequest, "a parameter contains a NUL, or is not UTF-8")
		}
	}
	for _, p := range o.Parameters {
		if p.In == "query" && len(query[p.Name]) > 1 && p.Schema.Type != huma.TypeArray {
			return Problem(http.StatusBadRequest, CodeBadRequest, p.Name+" is given more than once, and takes one value")
		}
	}
	return nil
}

// Limit refuses a caller who asks too often, with a [*reply.Problem].
func (a *API) Limit(w http.ResponseWriter, c access.Caller) error {
	wait, left := a.limits.Take(c.ID())
	w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=3`, 3*a.rate))
	w.Header().Set("RateLimit", `"default";r=`+strconv.Itoa(left))
	if wait > 0 {
		return retryAfter(Problem(http.StatusTooManyRequests, CodeRateLimited,
			fmt.Sprintf("you ask too often: %d requests a second, and %d at once, are allowed", a.rate, 3*a.rate)), wait)
	}
	return nil
}

// refuse answers who may not, and has the refusals of important operations on record.
func (a *API) refuse(r *http.Request, w http.ResponseWriter, o Operation, c access.Caller, err error) {
	var denied *access.Error
	p, ours := problemOf(err)
	if errors.As(err, &denied) {
		p, ours = Problem(denied.Status, CodeNotAllowed, denied.Reason), false
		if denied.Status == http.StatusUnauthorized {
			p.Code = CodeNotSignedIn
		}
	}
	if ours {
		a.log.WarnContext(r.Context(), "cannot find out who sends a request", "operation", o.ID, "err", err)
	}
	if o.Audit && c.Known() && p.Status == http.StatusForbidden {
		entry := registry.AuditEntry{Operation: o.ID, SubjectType: tagOf(o.ID), Detail: map[string]any{"path": r.URL.Path}}
		noted := a.registry.Act(r.Context(), c.Actor(), &entry, func(context.Context) error {
			return errors.Join(registry.ErrRefused, errors.New(p.Detail))
		})
		if noted != nil && !errors.Is(noted, registry.ErrRefused) {
			a.log.ErrorContext(r.Context(), "a refusal is not on record", "operation", o.ID, "actor", c.Actor().Name, "err", noted)
		}
	}
	reply.Refuse(w, *p)
}
