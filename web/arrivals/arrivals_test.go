package arrivals

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

const token = "a token of a store"

func TestOnlyNotificationsAreTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token, kind, body, origin string
		status                    int
		text                      string
	}{
		"a notification":    {token: "Bearer " + token, kind: "application/json", body: "good", status: http.StatusAccepted},
		"with a charset":    {token: "bearer " + token, kind: "application/json; charset=utf-8", body: "good", status: http.StatusAccepted},
		"no token":          {kind: "application/json", body: "good", status: http.StatusUnauthorized, text: "FAROL_READ_TOKEN"},
		"another token":     {token: "Bearer another token!", kind: "application/json", body: "good", status: http.StatusUnauthorized, text: "FAROL_READ_TOKEN"},
		"a part of it":      {token: "Bearer " + token[:4], kind: "application/json", body: "good", status: http.StatusUnauthorized, text: "FAROL_READ_TOKEN"},
		"another scheme":    {token: "Basic " + token, kind: "application/json", body: "good", status: http.StatusUnauthorized, text: "FAROL_READ_TOKEN"},
		"a form":            {token: "Bearer " + token, kind: "text/plain", body: "good", status: http.StatusUnsupportedMediaType, text: "Content-Type"},
		"a large one":       {token: "Bearer " + token, kind: "application/json", body: strings.Repeat("x", mostBody+1), status: http.StatusRequestEntityTooLarge, text: "262144"},
		"what is none":      {token: "Bearer " + token, kind: "application/json", body: "bad", status: http.StatusBadRequest, text: "bad it is"},
		"nothing":           {token: "Bearer " + token, kind: "application/json", status: http.StatusBadRequest, text: "bad it is"},
		"a page of another": {token: "Bearer " + token, kind: "application/json", body: "good", origin: "https://elsewhere.example", status: http.StatusForbidden, text: "origin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := ""
			mux := http.NewServeMux()
			Routes(func() string { return token }, func(body []byte) error {
				if string(body) != "good" {
					return errors.New("bad it is")
				}
				taken = string(body)
				return nil
			})(mux)
			for _, known := range []bool{true, false} { // a body of a length that is announced, or not
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/arrivals", strings.NewReader(c.body))
				if !known {
					r.ContentLength = -1
				}
				for header, value := range map[string]string{"Authorization": c.token, "Content-Type": c.kind, "Origin": c.origin} {
					if value != "" {
						r.Header.Set(header, value)
					}
				}
				w := httptest.NewRecorder()
				taken = ""
				mux.ServeHTTP(w, r)
				if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
					t.Errorf("%d %s; want %d with %q", w.Code, w.Body, c.status, c.text)
				}
				if (taken != "") != (c.status == http.StatusAccepted) {
					t.Errorf("%q was taken, and the answer is %d", taken, w.Code)
				}
			}
		})
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	Routes(func() string { return token }, func([]byte) error {
		t.Error("something was taken")
		return nil
	})(mux)
	s := httptest.NewServer(mux)
	defer s.Close()
	r := must.Get(http.Get(s.URL + "/arrivals"))(t) //nolint:bodyclose // it is closed below, and ends with the test
	if must.Do(t, r.Body.Close()); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", r.Status)
	}
}
