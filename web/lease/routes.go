package lease

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

//go:embed openapi.json
var openAPI []byte

// Routes adds the API's routes to mux.
func (a *API) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/claim", a.identified(a.claim))
	mux.HandleFunc("POST /v1/heartbeat", ofClaim(a, a.heartbeat))
	mux.HandleFunc("POST /v1/finish", ofClaim(a, a.finish))
	mux.HandleFunc("POST /v1/retry", ofClaim(a, a.retry))
	mux.HandleFunc("POST /v1/fail", ofClaim(a, a.fail))
	mux.HandleFunc("POST /v1/release", ofClaim(a, a.release))
	mux.HandleFunc("GET /v1/items/{id}", a.answered(a.item))
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		reply.Begin(w)
		w.Header().Set("Content-Type", "application/json")
		w.Write(openAPI) //nolint:errcheck // a caller who is gone reads nothing
	})
}

// identified identifies the caller before the call is read.
func (a *API) identified(do func(http.ResponseWriter, *http.Request, access.Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.o.Caller(r)
		if err == nil && !c.May(registry.RightLease) {
			err = &access.Error{Status: http.StatusForbidden, Reason: "the token " + c.Name + " may not lease items"}
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		do(w, r, c)
	}
}

// answered makes a handler of a call that does not wait.
func (a *API) answered(do func(context.Context, http.ResponseWriter, *http.Request, access.Caller) (any, error)) http.HandlerFunc {
	return a.identified(func(w http.ResponseWriter, r *http.Request, c access.Caller) {
		ctx, cancel := context.WithTimeout(r.Context(), callTime)
		defer cancel()
		answer, err := do(ctx, w, r, c)
		if err == nil {
			err = reply.JSON(w, http.StatusOK, answer)
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	})
}

// ofClaim makes a handler of a call that names a claim, which the caller may end.
func ofClaim[T interface{ ref() claimRef }](a *API, do func(context.Context, T) (any, error)) http.HandlerFunc {
	return a.answered(func(ctx context.Context, w http.ResponseWriter, r *http.Request, c access.Caller) (any, error) {
		q, err := read[T](a.budget, w, r, c)
		switch {
		case err != nil:
			return nil, err
		case q.ref().ID < 1 || q.ref().Token < 1:
			return nil, request.Errorf("name the claim by id and token, as they were given out")
		}
		if err := a.checkClaim(ctx, c, q.ref().ID, q.ref().Token); err != nil {
			return nil, err
		}
		return do(ctx, q)
	})
}
