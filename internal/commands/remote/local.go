package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/handlers"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// local answers the requests of a command in its own process, by the handlers of the REST API
// on the registry whose URL the command has.
type local struct {
	services *connect.Services
	handlers func() *api.API // made once
	items    func() *api.API // with what is known of items outside the database
	caller   access.Caller
}

// open makes a server of this process. program names it to the database's administrators.
func open(ctx context.Context, program string, warnings io.Writer) (*local, error) {
	config, err := connect.Load(settings.Operator{})
	if err != nil {
		return nil, err
	}
	s, err := connect.Open(ctx, program, connect.Needs{Database: &config.Database})
	if err != nil {
		return nil, err
	}
	log := slog.New(plain{slog.DiscardHandler, warnings})
	with := func(parts handlers.Part) func() *api.API {
		return sync.OnceValue(func() *api.API {
			a := handlers.Of(context.WithoutCancel(ctx), s, config.API, log, parts)
			a.Web = &access.Web{}
			return a
		})
	}
	return &local{s, with(0), with(handlers.All), access.Operator(people.Person{}, "")}, nil
}

// as is the same for a person who decided on paper. The registry refuses who is nobody.
func (l *local) as(ctx context.Context, email, onPaper string) (*local, error) {
	p, err := people.In(l.services.Registry).ByEmail(ctx, email)
	if errors.Is(err, registry.ErrNotFound) {
		p, err = people.Person{Email: email}, nil
	}
	return &local{l.services, l.handlers, l.items, access.Operator(p, onPaper)}, err
}

// RoundTrip is of http.RoundTripper. Only the operations that a request may be for are prepared.
func (l *local) RoundTrip(r *http.Request) (*http.Response, error) {
	mux := http.NewServeMux()
	made := l.handlers
	if strings.HasPrefix(r.URL.Path, "/api/v1/items/") || strings.HasPrefix(r.URL.Path, "/api/v1/mirror") {
		made = l.items
	}
	made().TableOf(mux, func(o ops.Operation) bool { return o.Takes(r.Method, r.URL.Path) })
	body, to := io.Pipe()
	a := &answer{header: http.Header{}, begun: make(chan struct{}), to: to}
	go func() { //nolint:contextcheck // the request has it
		mux.ServeHTTP(a, r.WithContext(ops.As(r.Context(), l.caller)))
		a.WriteHeader(http.StatusOK) // unless there was one
		to.Close()                   //nolint:errcheck // of a pipe it is nil
	}()
	select {
	case <-a.begun:
	case <-r.Context().Done():
		to.CloseWithError(r.Context().Err())
		return nil, fmt.Errorf("wait for the answer: %w", r.Context().Err())
	}
	return &http.Response{StatusCode: a.status, Header: a.header, Body: body, ContentLength: -1, Request: r}, nil
}

// answer is on its way to who asked.
type answer struct {
	header http.Header
	status int
	once   sync.Once
	begun  chan struct{}
	to     *io.PipeWriter
}

// Header is of http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader is of http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.header = status, a.header.Clone()
		close(a.begun)
	})
}

// Write is of http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(p) //nolint:wrapcheck // as a network would
}

// plain shows warnings of the handlers to a person: the sentence, and why.
type plain struct {
	slog.Handler

	to io.Writer
}

// Enabled is of slog.Handler.
func (p plain) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle is of slog.Handler.
func (p plain) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text += ": " + a.Value.String()
		}
		return true
	})
	_, err := fmt.Fprintln(p.to, text)
	return err //nolint:wrapcheck // of standard error
}
