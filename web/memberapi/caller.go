package memberapi

import (
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/web/access"
)

// Headers that tools send instead of Authorization.
const (
	userHeader = "X-Pharos-API-User"
	keyHeader  = "X-Pharos-API-Key"
)

// caller identifies who sends a request, by the two headers or by a bearer token. The
// cookie of a browser does not count: no tool has one, and a page of another site could
// have the browser send it.
func (a *API) caller(r *http.Request) (access.Caller, error) {
	email, key := strings.TrimSpace(r.Header.Get(userHeader)), strings.TrimSpace(r.Header.Get(keyHeader))
	if r.Header.Get("Authorization") != "" {
		return a.Web.Tokens.Caller(r) //nolint:wrapcheck // it is the answer
	}
	if email == "" || key == "" {
		return access.Caller{}, unknown("send your e-mail in the header " + userHeader + " and a personal token in " + keyHeader + ", or the header Authorization: Bearer TOKEN")
	}
	bearer := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}}).WithContext(r.Context())
	c, err := a.Web.Tokens.Caller(bearer)
	if err != nil {
		return access.Caller{}, err //nolint:wrapcheck // it is the answer
	}
	if c.Person.ID == 0 || !strings.EqualFold(c.Person.Email, email) {
		return access.Caller{}, unknown("the token is not valid or has expired") // as if there were none
	}
	return c, nil
}

func unknown(reason string) error {
	return &access.Error{Status: http.StatusUnauthorized, Reason: reason}
}
