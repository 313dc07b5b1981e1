package ops

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/access"
)

type shown struct {
	ETag string `header:"ETag"`
	Body map[string]string
}

// serve returns a server of operations that need no registry.
func serve(t *testing.T, register func(*API)) string {
	t.Helper()
	mux := http.NewServeMux()
	a := New(mux, nil, "test", 1000, func(*http.Request) (access.Caller, error) { return access.Caller{}, nil }, slog.New(slog.DiscardHandler))
	register(a)
	server := httptest.NewServer(a.Handler(mux))
	t.Cleanup(server.Close)
	return server.URL
}

func get(t *testing.T, method, url, tag string) (status int, header http.Header, body io.ReadCloser) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	r.Header.Set("If-None-Match", tag)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() }) //nolint:errcheck // it is read
	return answer.StatusCode, answer.Header, answer.Body
}

// What is shown changes without what decisions depend on, and the caller has to see it.
func TestTagChangesWithEveryByte(t *testing.T) {
	t.Parallel()
	var waitsFor atomic.Value
	waitsFor.Store("a worker")
	url := serve(t, func(a *API) {
		handler := func(context.Context, access.Caller, *struct{}) (*shown, error) {
			return &shown{ETag: `"7.0"`, Body: map[string]string{"waits_for": fmt.Sprint(waitsFor.Load())}}, nil
		}
		Register(a, Operation{ID: "things.show", Method: http.MethodGet, Path: "/api/v1/thing", Access: Anyone}, handler)
		Register(a, Operation{ID: "things.set", Method: http.MethodPost, Path: "/api/v1/thing", Access: Anyone}, handler)
	}) + "/api/v1/thing"
	_, header, _ := get(t, "GET", url, "")
	tag := header.Get("ETag")
	if decision, _, two := strings.Cut(tag, "/"); decision != `"7.0` || !two {
		t.Errorf("the tag is %s", tag)
	}
	if status, _, _ := get(t, "GET", url, tag); status != http.StatusNotModified {
		t.Errorf("the same: %d", status)
	}
	// A change is answered with what it made, whatever the caller has.
	if status, header, _ := get(t, "POST", url, tag); status != http.StatusOK || header.Get("ETag") != tag {
		t.Errorf("POST: %d %v", status, header)
	}
	waitsFor.Store("a service")
	status, header, body := get(t, "GET", url, tag)
	text, err := io.ReadAll(body)
	if status != http.StatusOK || header.Get("ETag") == tag || err != nil || !strings.Contains(string(text), "a service") {
		t.Errorf("another thing: %d %v %s %v", status, header, text, err)
	}
}

// Content is not held until it is whole: it may have any size.
func TestContentIsSentWhileItIsMade(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	url := serve(t, func(a *API) {
		RegisterContent(a, Operation{ID: "things.read", Method: http.MethodGet, Path: "/api/v1/content", Access: Anyone},
			func(context.Context, access.Caller, *struct{}) (*Content, error) {
				return &Content{
					Type: "text/plain", Name: "content", Digest: func() []byte { return nil },
					Write: func(ctx context.Context, w io.Writer) error {
						fmt.Fprint(w, strings.Repeat("begin ", 10_000))
						select {
						case <-read:
							return nil
						case <-time.After(30 * time.Second):
							return fmt.Errorf("nothing arrived: %w", context.Cause(ctx))
						}
					},
				}, nil
			})
	})
	status, header, body := get(t, "GET", url+"/api/v1/content", "*")
	begun := make([]byte, 6)
	if _, err := io.ReadFull(body, begun); status != http.StatusOK || header.Get("ETag") != "" || err != nil || string(begun) != "begin " {
		t.Errorf("%d %v %q %v", status, header, begun, err)
	}
	close(read)
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Error(err)
	}
}
