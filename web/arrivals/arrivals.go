// Package arrivals takes S3 event notifications that stores post.
package arrivals

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
	"github.com/farol-preservation/farol/web/request"
)

// mostBody is how many bytes a notification may have: as many as a message of SQS could always have.
const mostBody = 256 << 10

// Routes adds POST /arrivals, for those who have the token, which may be replaced. take gets the body of each request; its
// error is what the caller gets.
func Routes(token func() string, take func(notification []byte) error) func(*http.ServeMux) {
	budget := request.NewBudget(request.Limits{MostBody: mostBody})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused := refused(token(), r); refused != nil {
			refuse(w, refused)
			return
		}
		body, release, err := budget.Read(w, r, "")
		if err != nil {
			refuse(w, err)
			return
		}
		defer release()
		if err := take(body); err != nil {
			refuse(w, request.Errorf("%v", err))
			return
		}
		reply.JSON(w, http.StatusAccepted, struct{}{}) //nolint:errcheck // a caller who is gone reads nothing
	})
	// Stores reach the server under names that nobody has listed. They have the token, which no
	// page of another origin has.
	guarded := reply.Guarded(access.Guard{AnyHost: true}, handler)
	return func(mux *http.ServeMux) { mux.Handle("POST /arrivals", guarded) }
}

// refused reports why a request is refused before its body is read; nil: it is not.
func refused(token string, r *http.Request) error {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token)) // of one length, whatever was given
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return &access.Error{Status: http.StatusUnauthorized, Reason: "the header Authorization must be: Bearer and the token in FAROL_READ_TOKEN"}
	}
	if refused := access.JSONOnly(r); refused != nil {
		return refused
	}
	return nil
}

// refuse answers with what an error is in every API.
func refuse(w http.ResponseWriter, err error) {
	p, known := reply.ProblemOf(err)
	if !known { // the caller is gone, or its request is broken off
		p = reply.Problem{Status: http.StatusBadRequest, Code: "bad-request", Detail: "the request cannot be read; send it again"}
	}
	reply.Refuse(w, p)
}
