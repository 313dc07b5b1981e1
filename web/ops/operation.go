// Package ops has the table of operations of the REST API: each with what it needs. A
// handler cannot be reached in another way, and what is not in the table is denied.
package ops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/limit"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// Access says who an operation is for at all.
type Access int

// Who an operation is for. The zero value is for nobody.
const (
	nobody   Access = iota
	Anyone          // also without signing in
	Half            // a session of whatever level, or a token
	SignedIn        // a person or a service, for what is their own
	Holders         // of the permission that the operation names
)

// Operation is a row of the table.
type Operation struct {
	ID      string // such as "items.list": also what actions records
	Method  string
	Path    string
	Summary string // in the imperative
	About   string // more, for the document
	Status  int    // of a success; 0: 200

	Access  Access
	Needs   permission.Permission // for Holders
	Session bool                  // no token may do it
	Fresh   bool                  // a person must have proved who they are within ten minutes
	Person  bool                  // it is the decision of a person: the token of a service may not do it
	Once    bool                  // it is sent with an Idempotency-Key only
	Audit   bool                  // it is recorded in actions, refusals too
	Secret  bool                  // its answer has a secret, which is not kept with an Idempotency-Key
	Body    int64                 // bytes that a request may have; 0: a MiB, or 16 KiB for Anyone
	Table   bool                  // its answer is a [Table], which Accept: text/csv asks for as such
	Answers []int                 // statuses of problems that few other operations have
}

// How large a request may be.
const (
	mostBody   = 1 << 20  // unless its operation says else
	anyoneBody = 16 << 10 // of those that anyone may send
	largest    = 16 << 20 // whatever its operation says
)

// MostBody is how many bytes a request may have.
func (o Operation) MostBody() int64 {
	if o.Access == Anyone {
		return cmp.Or(o.Body, anyoneBody)
	}
	return min(cmp.Or(o.Body, mostBody), largest)
}

// isWhole reports whether a row says who it is for.
func (o Operation) isWhole() bool {
	return o.Access != nobody && (o.Access == Holders) == (o.Needs != "")
}

// refuses reports what keeps a caller from an operation; nil: nothing.
func (o Operation) refuses(c access.Caller) *reply.Problem {
	if !o.isWhole() {
		return Problem(http.StatusForbidden, CodeNotAllowed, "nobody may do this")
	}
	if o.Access == Anyone {
		return nil
	}
	return cmp.Or(o.refusesCaller(c), o.refusesProof(c))
}

// refusesCaller is what keeps one from an operation who is not signed in, or not whole.
func (o Operation) refusesCaller(c access.Caller) *reply.Problem {
	switch {
	case !c.Known():
		return Problem(http.StatusUnauthorized, CodeNotSignedIn, "sign in, or send the header Authorization: Bearer and a token")
	case (o.Session || o.Fresh) && !c.Browser():
		return FreshProof(c)
	case o.Access != Half && c.Browser() && !c.Full():
		return Problem(http.StatusForbidden, CodeSecondFactor, "give a code of your second factor, or set one up, before anything else")
	}
	return nil
}

// refusesProof is what keeps one from an operation who is signed in.
func (o Operation) refusesProof(c access.Caller) *reply.Problem {
	switch {
	case o.Access == Half:
		return nil
	case o.Access == Holders && !c.Holds(o.Needs):
		return Problem(http.StatusForbidden, CodeNotAllowed, "your role does not have the permission "+string(o.Needs))
	case o.Person && c.Person.ID == 0:
		return Problem(http.StatusForbidden, CodeNotAllowed, "the token of a service may not do this: a person decides it")
	case o.Fresh && !c.Session.Fresh:
		return FreshProof(c)
	}
	return nil
}

// FreshProof is what a caller is answered whose operation needs a fresh proof and has none.
func FreshProof(c access.Caller) *reply.Problem {
	if !c.Browser() {
		return Problem(http.StatusForbidden, CodeNotAllowed, "a token may not do this: sign in with a browser")
	}
	return Problem(http.StatusForbidden, CodeFreshProof, "prove once more who you are: POST /api/v1/session/proof")
}

// API registers operations on a mux.
type API struct {
	huma       huma.API
	mux        *http.ServeMux
	registry   *registry.Registry
	caller     func(*http.Request) (access.Caller, error)
	log        *slog.Logger
	limits     *limit.Limits
	budget     *request.Budget
	rate       int // requests a second
	operations []Operation
}

// speakAsFarol has huma answer with problems in our words. It is a setting of the package's,
// and set once.
//
//nolint:gochecknoglobals // huma has it so
var speakAsFarol = sync.OnceFunc(func() {
	huma.NewError = newError
	huma.NewErrorWithContext = func(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
		return newError(status, message, errs...)
	}
})

// Keys of a context.
type (
	callerKey  struct{} // who sends the request
	requestKey struct{}
)

// Request is the request that a handler answers; only its headers and its address are of
// use there.
func Request(ctx context.Context) *http.Request {
	r, ok := ctx.Value(requestKey{}).(*http.Request)
	if !ok {
		return &http.Request{}
	}
	return r
}

// New returns a table without operations. caller identifies who sends a request; it is no
// error to be unknown.
//
// rate is how many requests a second each caller may send, and three times as many at once.
func New(mux *http.ServeMux, r *registry.Registry, version string, rate int, caller func(*http.Request) (access.Caller, error), log *slog.Logger) *API {
	speakAsFarol()
	config := huma.DefaultConfig("Farol", version)
	config.CreateHooks = nil // no links to schemas in every answer
	config.DocsPath, config.SchemasPath = "", ""
	config.OpenAPIPath = "/api/v1/openapi"
	config.Formats = map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat(), csvType: csvFormat()}
	config.RejectUnknownQueryParameters = true
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	config.Info.Description = "Items, objects, files, events, requests and people of a Farol registry. Problems are answered as RFC 9457 defines them; " +
		"their code says what is wrong and never changes."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "A personal token, or one of a service."},
		"session": {Type: "apiKey", In: "cookie", Name: access.CookieName, Description: "The cookie of a browser in which a person has signed in."},
	}
	return &API{huma: humago.New(mux, config), mux: mux, registry: r, caller: caller, log: log, rate: rate, limits: limit.New(rate, time.Second, 3*rate), budget: request.NewBudget(request.Limits{MostBody: largest})}
}

// schemaName is the name of a type in the document. Those of packages with their own words
// for a record are told apart from the record.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch path.Base(t.PkgPath()) {
	case "explain":
		return "Explained" + name
	case "fixity":
		return "Fixity" + name
	case "browse":
		return "Listed" + strings.TrimPrefix(name, "Listed")
	}
	return name
}

// Operations returns the table.
func (a *API) Operations() []Operation { return slices.Clone(a.operations) }

// Register adds an operation to the table. A row that does not say who it is for, or names a
// permission that nobody has, is for nobody.
func Register[I, O any](a *API, o Operation, handler func(context.Context, access.Caller, *I) (*O, error)) {
	a.operations = append(a.operations, o)
	defer a.document(o)
	huma.Register(a.huma, a.documented(o), func(ctx context.Context, in *I) (*O, error) {
		c, _ := ctx.Value(callerKey{}).(access.Caller)
		out, err := handler(ctx, c, in)
		if err == nil {
			return out, nil
		}
		p, ours := problemOf(err)
		if o.Method == http.MethodGet && p.Status == http.StatusConflict { // there is nothing to be in conflict with: the request is wrong
			p = Problem(http.StatusBadRequest, CodeBadRequest, p.Detail)
		}
		if ours && ctx.Err() == nil {
			a.log.WarnContext(ctx, "request failed; the caller was asked to try again", "operation", o.ID, "err", err)
		}
		return nil, p
	})
}

// documented is an operation as the OpenAPI document has it, with its guard.
func (a *API) documented(o Operation) huma.Operation {
	h := huma.Operation{
		OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Description: o.About, DefaultStatus: o.Status,
		MaxBodyBytes: o.MostBody(), BodyReadTimeout: -1, // the guard has read it; a deadline would end what takes longer
		Middlewares: huma.Middlewares{a.guard(o)},
		Errors:      o.refusals(),
		Metadata:    map[string]any{"operation": o},
		Tags:        []string{tagOf(o.ID)},
	}
	if o.Access != Anyone {
		h.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	}
	if o.takesKey() {
		h.Parameters = append(h.Parameters, &huma.Param{
			Name: keyHeader, In: "header", Description: "A name of your choice for this request. Sent again within a day, the request is answered as before and not carried out again.",
			Required: o.Once, Schema: &huma.Schema{Type: huma.TypeString, MaxLength: ptr(mostKey)},
		})
	}
	if o.Table {
		h.Description += "\n\nWith the header `Accept: text/csv` the answer is a table for spreadsheets."
	}
	if o.Needs != "" {
		h.Description += "\n\nNeeds the permission `" + string(o.Needs) + "`."
	}
	return h
}

func ptr[T any](v T) *T { return &v }

func tagOf(id string) string {
	for i, r := range id {
		if r == '.' {
			return id[:i]
		}
	}
	return id
}

// guard identifies the caller and refuses who may not, before the body of the request is
// read. The memory for it, and the time that it may take, are bounded.
func (a *API) guard(o Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		c, err := a.caller(r)
		if err == nil {
			err = a.Limit(w, c)
		}
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
			next(humago.NewContext(ctx.Operation(), r.WithContext(context.WithValue(known, requestKey{}, r)), w))
		}
		switch {
		case r.Header.Get(keyHeader) == "" && o.Once:
			a.refuse(r, w, o, c, Problem(http.StatusBadRequest, CodeBadRequest, "send an Idempotency-Key of your choice, so that a request that is sent twice is carried out once"))
		case r.Header.Get(keyHeader) == "" || o.Method != http.MethodPost:
			serve(w, r)
		case o.Secret || !c.Known():
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
