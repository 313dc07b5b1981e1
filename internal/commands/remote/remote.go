// Package remote has commands work through a server of the REST API, with the rights of a
// token, where there is no database URL.
package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// Server is what answers the operations that a command needs. Its errors are those of the
// registry.
type Server struct {
	client, once client.Registry
	here         *local // nil: it is reached over the network
}

// Once is the server, asked once: a call that fails is not tried again.
func (s *Server) Once() *Server { return &Server{s.once, s.once, s.here} }

// Here reports whether this process answers, from the database.
func (s *Server) Here() bool { return s.here != nil }

// Options say which server that is.
type Options struct{ URL, Token string }

// retryTime is how long a call is tried again: a person waits.
const retryTime = 15 * time.Second

type key struct{}

// With has everything with the context work through a server.
func With(ctx context.Context, o Options) (context.Context, error) {
	patient, err := client.New(o.URL, client.Options{Token: o.Token, RetryFor: retryTime})
	if err != nil {
		return ctx, cli.Usage(err, "give --server the URL of farol serve --web")
	}
	once, err := client.New(o.URL, client.Options{Token: o.Token, RetryFor: -1})
	return context.WithValue(connect.Elsewhere(ctx), key{}, &Server{patient.Registry(), once.Registry(), nil}), err
}

// Do has a command's operations answered, within a minute.
func Do(cmd *cobra.Command, do func(ctx context.Context, s *Server) error) error {
	return DoFor(cmd, time.Minute, do)
}

// DoFor is [Do] for what may take longer; 0 is without a bound. The server is the one that
// --server names; without, this process answers, for which it needs the registry's URL.
func DoFor(cmd *cobra.Command, most time.Duration, do func(ctx context.Context, s *Server) error) error {
	ctx := cmd.Context()
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	if s := From(ctx); s != nil {
		return do(ctx, s)
	}
	here, err := open(ctx, connect.ProgramOf(cmd), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer here.services.Close()
	s, err := here.server()
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// server is this process as a server.
func (l *local) server() (*Server, error) {
	c, err := client.New("http://farol", client.Options{HTTP: &http.Client{Transport: l}, RetryFor: -1, AnswerTimeout: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	return &Server{c.Registry(), c.Registry(), l}, nil
}

// For is the server for what a person has decided on paper, which a command of the archive
// enters. flag names the one that is refused over the network, where everybody decides for
// themselves.
func (s *Server) For(ctx context.Context, flag, email, onPaper string) (*Server, error) {
	switch {
	case email == "" && onPaper == "":
		return s, nil
	case s.here == nil:
		return nil, connect.Refuse(ctx, flag)
	}
	l, err := s.here.as(ctx, email, onPaper)
	if err != nil {
		return nil, err
	}
	return l.server()
}

// From is the server that --server names; nil: there is none.
func From(ctx context.Context) *Server {
	s, _ := ctx.Value(key{}).(*Server)
	return s
}

// RefuseFlags refuses flags that were given, and that work with the database only.
func RefuseFlags(cmd *cobra.Command, flags ...string) error {
	for _, f := range flags {
		if cmd.Flags().Changed(f) {
			if err := connect.Refuse(cmd.Context(), "--"+f); err != nil {
				return err
			}
		}
	}
	return nil
}

// Registry is the server's registry.
func (s *Server) Registry() client.Registry { return s.client }

// Do sends a request and reads its answer into a pointer, unless that is nil. It returns the
// ETag of the record.
func (s *Server) Do(ctx context.Context, call client.Call, answer any) (etag string, err error) {
	etag, err = s.client.Do(ctx, call, answer)
	return etag, Words(err)
}

// Get reads one record.
func Get[T any](ctx context.Context, s *Server, path string, query url.Values) (v T, err error) {
	_, err = s.Do(ctx, client.Call{Path: path, Query: query}, &v)
	return v, err
}

// Send sends a request that changes something, and reads the answer.
func Send[T any](ctx context.Context, s *Server, method, path string, body any) (v T, err error) {
	_, err = s.Do(ctx, client.Call{Method: method, Path: path, Body: body}, &v)
	return v, err
}

// mostOnPage is how many records the server answers at once.
const mostOnPage = 500

// List reads up to n records of a list.
func List[T any](ctx context.Context, s *Server, path string, query url.Values, n int) ([]T, error) {
	list := []T{} // null is no list in JSON
	for v, err := range client.Pages[T](ctx, s.client, path, query, min(n, mostOnPage)) {
		if err != nil {
			return nil, Words(err)
		}
		if list = append(list, v); len(list) == n {
			break
		}
	}
	return list, nil
}

// All reads a list that has no pages.
func All[T any](ctx context.Context, s *Server, path string) ([]T, error) {
	v, err := Get[struct{ Items []T }](ctx, s, path, nil)
	return append([]T{}, v.Items...), err
}

// About is the path of something about a record.
func About(kind string, id int64, what string) string {
	return kind + "/" + strconv.FormatInt(id, 10) + what
}

// answered is an answer of the server's, which is an error of the registry.
type answered struct {
	answer *client.Error
	is     error
}

// Error is the server's text, and the next step of a command: that of the server is for
// programs.
func (a answered) Error() string {
	text := *a.answer
	text.Next = human.Command(a.answer.Rule, a.answer.Args)
	return text.Error()
}

// Unwrap returns both errors.
func (a answered) Unwrap() []error { return []error{a.answer, a.is} }

// Words is an error of the client as one of the registry.
func Words(err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case "not-found":
		return answered{refused, registry.ErrNotFound}
	case "refused":
		return answered{refused, &registry.Refused{Code: refused.Rule, Args: refused.Args, Text: refused.Text, Kind: registry.ErrRefused}}
	case "changed", "too-broad":
		return answered{refused, registry.ErrRefused}
	case "bad-request":
		words := *refused
		words.Text = strings.TrimPrefix(words.Text, "body.") // a person has not sent one
		refused = &words
	case "not-signed-in":
		return cli.Failure{Code: cli.ExitFailed, Err: refused, Next: "make a personal token in the browser, and set FAROL_TOKEN"}
	case "not-allowed", "fresh-proof-needed", "second-factor-needed":
		return cli.Failure{Code: cli.ExitFailed, Err: refused, Next: "`GET /api/v1/me` lists what you may; some decisions need a browser"}
	}
	return cli.Failure{Code: cli.ExitFailed, Err: refused}
}

// Next adds the next step to the error of what was refused, or is not there.
func Next(err error, next string) error {
	if next == "" || !errors.Is(err, registry.ErrRefused) && !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	return cli.Failure{Code: cli.ExitFailed, Err: err, Next: next}
}

// NotAllowed reports whether the caller may not read what was asked for.
func NotAllowed(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Code == "not-allowed"
}

// Final reports whether an error is an answer that stays the same, however often it is asked
// for.
func Final(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests
}

// Query is a filter as the API takes it: pairs of names and values. Empty ones are
// left out.
func Query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	return q
}

// ID is an ID in a filter; 0 is none.
func ID(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// Truth is a truth in a filter.
func Truth(v bool) string {
	if v {
		return "true"
	}
	return ""
}
