// Package memberapi serves /member-api/v3, with which depositors' existing tools read.
//
// It answers as the registry did that these tools were written for: the same paths,
// parameters and fields, an envelope with links to the pages around, and zero values where
// nothing is known. It changes nothing. docs/member-api.md says what differs.
package memberapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

// API are the handlers, with what they need.
type API struct {
	Registry *registry.Registry
	Web      *access.Web
	Limit    func(http.ResponseWriter, access.Caller) error // refuses a caller who asks too often
	Log      *slog.Logger
}

// root is the path of everything that is served.
const root = "/member-api/v3/"

// request is one that a handler answers.
type request struct {
	*http.Request

	caller  access.Caller
	records browse.Records
	people  people.Records
	header  http.Header // of the answer
}

// handler makes an answer that is sent as JSON.
type handler func(*request) (any, error)

// Register adds the handlers to a mux.
func (a *API) Register(mux *http.ServeMux) {
	for name, list := range map[string]struct {
		needs      permission.Permission
		list, show handler
		path       string // of a record
	}{
		"items":     {permission.ItemsRead, items, showItem, "{id}"},
		"objects":   {permission.ObjectsRead, objects, showObject, "{id...}"},
		"files":     {permission.FilesRead, files, showFile, "{id...}"},
		"events":    {permission.EventsRead, events, showEvent, "{id...}"},
		"checksums": {permission.ChecksumsRead, checksums, showChecksum, "{id}"},
		"deletions": {permission.DeletionsRead, deletions, showDeletion, "{id}"},
		"alerts":    {permission.AlertsRead, alerts, showAlert, "{id}/{user}"},
	} {
		mux.Handle("GET "+root+name, a.answers(list.needs, list.list))
		mux.Handle("GET "+root+name+"/{$}", a.answers(list.needs, list.list))
		mux.Handle("GET "+root+name+"/show/"+list.path, a.answers(list.needs, list.show))
	}
	mux.HandleFunc("/member-api/", nothing)
	mux.HandleFunc("/admin-api/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "there is no admin API here: read with /member-api/v3, and use /api/v1 for everything else; GET /api lists its operations")
	})
	mux.HandleFunc("GET /work_items/show/{id}", redirect("/items/"))
	mux.HandleFunc("GET /objects/show/{id...}", redirect("/objects/"))
	mux.HandleFunc("GET /files/show/{id...}", redirect("/files/"))
}

// redirect leads from a page that tools link to, to the page of the console.
func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+url.PathEscape(r.PathValue("id")), http.StatusFound)
	}
}

// nothing answers a request that no handler takes.
func nothing(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "/member-api/v3 only reads: send GET or HEAD")
		return
	}
	refuse(w, http.StatusNotFound, "there is nothing at this path; /member-api/v3 has items, objects, files, events, checksums, deletions and alerts")
}

// answers identifies the caller, and refuses one who may not, before the request is read.
func (a *API) answers(needs permission.Permission, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", userHeader+", "+keyHeader)
		c, err := a.caller(r)
		c.IP = a.Web.IP(r)
		if limited := a.Limit(w, c); limited != nil {
			err = limited
		}
		if err == nil && !c.Holds(needs) {
			refuse(w, http.StatusForbidden, "your role or token does not have the permission "+string(needs))
			return
		}
		var answer any
		if err == nil {
			answer, err = h(&request{r, c, browse.In(a.Registry, c.Scope), people.In(a.Registry), w.Header()})
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		reply.JSON(w, http.StatusOK, answer) //nolint:errcheck // a caller who is gone reads nothing
	})
}

// failure is the answer of a handler that is not a success.
type failure struct {
	Status int    `json:"StatusCode"`
	Text   string `json:"Error"`
}

// Error is the text.
func (f failure) Error() string { return f.Text }

// refuse answers before any handler.
func refuse(w http.ResponseWriter, status int, text string) {
	reply.JSON(w, status, map[string]string{"error": text}) //nolint:errcheck // a caller who is gone reads nothing
}

// fail answers with what went wrong. Of a failure of the service nothing is shown.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ours := failureOf(w.Header(), err)
	if ours && r.Context().Err() == nil {
		a.Log.WarnContext(r.Context(), "request failed; the caller was asked to try again", "path", r.URL.Path, "err", err)
	}
	reply.JSON(w, f.Status, f) //nolint:errcheck // a caller who is gone reads nothing
}

// failureOf is how an error is answered. ours says that the caller did nothing wrong.
func failureOf(h http.Header, err error) (f failure, ours bool) {
	var denied *access.Error
	var problem *reply.Problem
	switch {
	case errors.As(err, &f):
		return f, false
	case errors.As(err, &denied):
		return failure{denied.Status, denied.Reason}, false
	case errors.As(err, &problem):
		h.Set("Retry-After", problem.RetryAfter)
		return failure{problem.Status, problem.Detail}, false
	case errors.Is(err, registry.ErrNotFound):
		return failure{http.StatusNotFound, "there is no such record, or it is not yours to see"}, false
	case errors.Is(err, browse.ErrTooBroad):
		return failure{http.StatusBadRequest, "the filter is " + after(err, browse.ErrTooBroad.Error())}, false
	case errors.Is(err, registry.ErrRefused):
		return failure{http.StatusBadRequest, strings.TrimPrefix(after(err, registry.ErrRefused.Error()), registry.ErrRefused.Error()+": ")}, false
	}
	h.Set("Retry-After", "5")
	return failure{http.StatusServiceUnavailable, "Farol cannot answer now; try again in a moment"}, true
}

// after is the text of an error from a part of it on, without what the program was doing.
func after(err error, part string) string {
	text := err.Error()
	if i := strings.Index(text, part); i >= 0 {
		return text[i:]
	}
	return text
}
