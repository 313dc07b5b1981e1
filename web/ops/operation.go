// Package ops has the table of operations of the REST API: each with what it needs. A
// handler cannot be reached in another way, and what is not in the table is denied.
package ops

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

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
	Here            // a command with the registry's own URL: it is not served
)

// Operation is a row of the table.
type Operation struct {
	ID      string // such as "items.list": also what actions records
	Method  string
	Path    string
	Summary string // in the imperative
	About   string // more, for the document
	Status  int    // of a success; 0: 200

	// Command is the command that carries it out, such as "item note ID TEXT": words, and in
	// capitals the fields that are arguments. The others are flags, Summary and About are its
	// help, and examples are made of the fields'. "": its command is written by hand, or it has
	// none.
	Command string

	Access  Access
	Needs   permission.Permission // for Holders
	Or      permission.Permission // is enough, too, for a part of what the operation does, which the handler checks
	Session bool                  // no token may do it
	Fresh   bool                  // a person must have proved who they are within ten minutes
	Person  bool                  // it is the decision of a person: the token of a service may not do it
	Once    bool                  // it is sent with an Idempotency-Key only
	Audit   bool                  // it is recorded in actions, refusals too
	Secret  bool                  // its answer has a secret, which is not kept with an Idempotency-Key
	Body    int64                 // bytes that a request may have; 0: a MiB, or 16 KiB for Anyone
	Table   bool                  // its answer is a [Table], which Accept: text/csv asks for as such
	Answers []int                 // statuses of problems that few other operations have

	streams bool // its answer is [Content]
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

// Takes reports whether a request may be for an operation.
func (o Operation) Takes(method, path string) bool {
	own, parts := strings.Split(o.Path, "/"), strings.Split(path, "/")
	if o.Method != method || len(own) != len(parts) {
		return false
	}
	for i, part := range own {
		if part != parts[i] && !strings.HasPrefix(part, "{") {
			return false
		}
	}
	return true
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
	case (o.Session || o.Fresh && !c.Operator) && !c.Browser():
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
	case o.Access == Here && !c.Operator:
		return NotFound()
	case o.Access == Holders && !c.Holds(o.Needs) && (o.Or == "" || !c.Holds(o.Or)):
		return Problem(http.StatusForbidden, CodeNotAllowed, "your role does not have the permission "+string(o.Needs))
	case c.Operator:
		return nil
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
	Missing http.Handler // answers browsers where there is no page; nil: they get a problem, as programs do

	// For says whether an operation is to be answered at all; nil: all are. A process that asks
	// one thing need not prepare the others, which takes longer than the answer.
	For func(Operation) bool

	huma     huma.API
	mux      *http.ServeMux
	registry *registry.Registry
	caller   func(*http.Request) (access.Caller, error)
	log      *slog.Logger
	limits   *limit.Limits
	budget   *request.Budget
	rate     int // requests a second
	rows     []Row
	lists    bool // operations are listed only
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

// schemaName is the name of a type in the document. What package explain says of a record is
// told apart from the record.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if path.Base(t.PkgPath()) == "explain" {
		return "Explained" + name
	}
	return name
}

// Register adds an operation to the table. A row that does not say who it is for, or names a
// permission that nobody has, is for nobody.
func Register[I, O any](a *API, o Operation, handler func(context.Context, access.Caller, *I) (*O, error)) {
	if !a.add(o, reflect.TypeFor[I](), reflect.TypeFor[O]()) {
		return
	}
	defer a.document(o)
	huma.Register(a.huma, a.documented(o), func(ctx context.Context, in *I) (*O, error) {
		c, _ := ctx.Value(callerKey{}).(access.Caller)
		out, err := handler(ctx, c, in)
		if err == nil {
			return out, nil
		}
		p, ours := problemOf(err)
		if c.Operator {
			p = toOperator(p, err, ours)
		}
		if o.Method == http.MethodGet && p.Status == http.StatusConflict { // there is nothing to be in conflict with: the request is wrong
			p = Problem(http.StatusBadRequest, CodeBadRequest, p.Detail)
		}
		if ours && !c.Operator && ctx.Err() == nil {
			a.log.WarnContext(ctx, "request failed; the caller was asked to try again", "operation", o.ID, "err", err)
		}
		return nil, p
	})
}

// add adds a row, unless it is not to be answered. It reports whether there is more to do.
func (a *API) add(o Operation, in, out reflect.Type) bool {
	if !a.lists && (a.For != nil && !a.For(o) || a.For == nil && o.Access == Here) {
		return false
	}
	a.rows = append(a.rows, rowOf(o, in, out))
	return !a.lists
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
	if o.tagged() {
		h.Parameters = append(h.Parameters, &huma.Param{
			Name: "If-None-Match", In: "header", Description: "ETags of answers that you have: if the answer is one of them, it is 304 without a body.",
			Schema: &huma.Schema{Type: huma.TypeString},
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
