package ops

import (
	"crypto/rand"
	"net/http"
	"path"
	"strings"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
)

// Handler adds to the operations what every answer has: a name of the request, headers that
// keep browsers careful, and a problem where there is no operation.
func (a *API) Handler(operations http.Handler) http.Handler {
	a.nullable()
	a.reference()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Request-Id", rand.Text())
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", "Authorization, Cookie, Accept")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		reply.Begin(w)
		if refused := access.JSONOnly(r); refused != nil && strings.HasPrefix(r.URL.Path, "/api/") {
			reply.Refuse(w, *Problem(refused.Status, CodeBadRequest, refused.Reason))
			return
		}
		if name := twice(r.Header); name != "" && strings.HasPrefix(r.URL.Path, "/api/") {
			reply.Refuse(w, *Problem(http.StatusBadRequest, CodeBadRequest, "the header "+name+" is given more than once"))
			return
		}
		if unclean(r.URL.Path) { // ServeMux would redirect
			a.nothing(w, r)
			return
		}
		if _, route := a.mux.Handler(r); route == "" {
			a.nothing(w, r)
			return
		}
		operations.ServeHTTP(w, r)
	})
}

// twice is a header that a request has more than once, and that decides what is done.
func twice(h http.Header) string {
	for _, name := range []string{"Authorization", "Content-Type", "If-Match", keyHeader} {
		if len(h.Values(name)) > 1 {
			return name
		}
	}
	return ""
}

// unclean reports whether a path of the API has an empty part, or one of dots.
func unclean(p string) bool {
	return strings.HasPrefix(p, "/api/") && path.Clean(p) != strings.TrimSuffix(p, "/")
}

// nothing answers a request that is for no operation.
func (a *API) nothing(w http.ResponseWriter, r *http.Request) {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, route := a.mux.Handler(&other); route != "" && !unclean(r.URL.Path) {
			methods = append(methods, method)
		}
	}
	if len(methods) == 0 && a.Missing != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
		a.Missing.ServeHTTP(w, r)
		return
	}
	if len(methods) == 0 {
		reply.Refuse(w, *Problem(http.StatusNotFound, CodeNotFound, "there is nothing at this path; GET /api lists the operations"))
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	reply.Refuse(w, *Problem(http.StatusMethodNotAllowed, CodeBadRequest, "this path takes "+strings.Join(methods, ", ")))
}
