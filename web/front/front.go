// Package front puts together what a server for people serves: the REST API, the one for
// depositors' tools, the pages on which people sign in, and the console.
package front

import (
	"net/http"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/console"
	"github.com/farol-preservation/farol/web/memberapi"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/signin"
)

// Handler serves people to requests that a guard lets through. observed counts those for
// the routes of a mux.
func Handler(a *api.API, g access.Guard, observed func(*http.ServeMux) http.Handler) (http.Handler, *ops.API) {
	mux := http.NewServeMux()
	t := a.Table(mux)
	pages := console.New(a, t)
	pages.Routes(mux)
	(&signin.Pages{Auth: a.Auth, Web: a.Web, Log: a.Log, Providers: a.Providers, Style: pages.Style()}).Routes(mux)
	t.Missing = pages.Missing()
	(&memberapi.API{Registry: a.Registry, Web: a.Web, Limit: t.Limit, Log: a.Log}).Register(mux)
	handler := reply.Guarded(g, t.Handler(observed(mux)))
	if !a.Web.Secure {
		return handler, t
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000") // RFC 6797: a year without plain HTTP
		handler.ServeHTTP(w, r)
	}), t
}
