// Package client is for programs that use Farol over HTTP: they post messages to its
// queues and pull them, process the stages of its pipeline that were added for them, and
// read the registry and decide about its records ([Client.Registry]).
//
// Calls that fail temporarily are retried with a backoff. [Client.Work] and
// [Client.WorkStage] are whole workers: they pull or claim, call a function for each
// message or item, answer, and shut down in order when their context ends.
//
// Work must be idempotent: if a worker dies or its answer is lost, another worker gets
// the same message or item.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options say how to reach a server. All are optional.
type Options struct {
	Token    string        // created by farol token add
	HTTP     *http.Client  // nil: the client makes its own
	RetryFor time.Duration // how long a call that fails temporarily is retried; 0 is a minute, negative is not at all
	// AnswerTimeout is how long the server has to answer one attempt, in addition to the time
	// that it is asked to wait; 0 is a minute.
	AnswerTimeout time.Duration
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
	o     Options

	learning   sync.Mutex
	operations map[string]described // that the server has; nil: it was not asked yet
}

// New returns a client of the server at a URL such as http://127.0.0.1:4180.
func New(server string, o Options) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's URL is %q; it must be http:// or https:// and host:port", server)
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), token: o.Token, http: o.HTTP, o: o}
	if c.http == nil {
		t, _ := http.DefaultTransport.(*http.Transport)
		t = t.Clone()
		t.MaxIdleConnsPerHost = 100
		c.http = &http.Client{Transport: t}
	}
	if c.o.RetryFor == 0 {
		c.o.RetryFor = time.Minute
	}
	if c.o.AnswerTimeout <= 0 {
		c.o.AnswerTimeout = time.Minute
	}
	return c, nil
}

// Error is the answer of a server that refused a request.
type Error struct {
	Status int    // of HTTP
	Code   string // stable, of the registry and the lease API; "" of the queues
	// Outcome is how the claim had been ended before, if the code is "ended".
	Outcome string
	Text    string // for people

	// Rule and Args say what refuses, of the registry; Next is what the caller can do about it.
	Rule string
	Args map[string]string
	Next string

	again bool // the server asks for the request once more
}

// Error is the text for people, with what to do.
func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Next != "" {
		return e.Text + ". " + e.Next
	}
	return e.Text
}

// ErrLost says that this worker has lost an item: its lease lapsed, or a person changed
// the item. Drop the work.
var ErrLost = errors.New("the claim is lost: the item belongs to another worker")

// retryable reports whether a retry may help. A conflict that passes is that with the same
// request, which is still in work.
func retryable(err error) bool {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Status >= 500 || answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusConflict && answer.again
	}
	return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
	// mostAnswer bounds what is read of an answer, in bytes.
	mostAnswer = 512 << 20
)

// pause waits after so many failures in a row. It reports false if ctx ended before.
func pause(ctx context.Context, failures int) bool {
	d := min(firstPause<<min(failures-1, 10), mostPause)
	t := time.NewTimer(d - rand.N(d/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// request is what is sent, as often as it is sent.
type request struct {
	method, path string
	header       http.Header
	body         []byte // nil: none
	once         bool   // it may be carried out as often as it is sent
}

// call posts a request to the queues or the lease API until it is answered, and reads the
// answer, which stays as it is if there is nothing (204). wait is how long the server may
// wait before it answers.
func (c *Client) call(ctx context.Context, path string, sent, answer any, wait time.Duration) error {
	body, err := json.Marshal(sent)
	if err != nil {
		return fmt.Errorf("call %s: %w", path, err)
	}
	_, err = c.send(ctx, request{method: http.MethodPost, path: path, body: body}, answer, wait)
	return err
}

// send sends a request until it is answered, and returns the header of the answer.
func (c *Client) send(ctx context.Context, r request, answer any, wait time.Duration) (http.Header, error) {
	end := time.Now().Add(c.o.RetryFor)
	for failures := 1; ; failures++ {
		header, err := c.try(ctx, r, answer, wait)
		if err == nil {
			return header, nil
		}
		if r.once || !retryable(err) || ctx.Err() != nil || time.Now().After(end) || !pause(ctx, failures) {
			return nil, fmt.Errorf("call %s: %w", r.path, err)
		}
	}
}

// try sends a request once. A server that does not answer is one that failed.
func (c *Client) try(ctx context.Context, r request, answer any, wait time.Duration) (http.Header, error) {
	timed, cancel := context.WithTimeout(ctx, wait+c.o.AnswerTimeout)
	defer cancel()
	header, err := c.once(timed, r, answer)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("the server does not answer within %v", wait+c.o.AnswerTimeout)
	}
	return header, err
}

func (c *Client) once(ctx context.Context, sent request, answer any) (http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, sent.method, c.base+sent.path, bytes.NewReader(sent.body))
	if err != nil {
		return nil, err
	}
	if sent.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range sent.header {
		r.Header[name] = values
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, refusal(response, text)
	case response.StatusCode == http.StatusNoContent || answer == nil:
		return response.Header, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return response.Header, nil
}

// workers calls step repeatedly in so many goroutines until ctx is done, with a pause
// after each failure. It returns the first error that a retry cannot help.
func workers(ctx context.Context, slots int, step func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for range max(slots, 1) {
		working.Go(func() {
			for failures := 0; ctx.Err() == nil; {
				switch err := step(ctx); {
				case err == nil:
					failures = 0
				case retryable(err):
					failures++
					pause(ctx, failures)
				default:
					cancel(err)
				}
			}
		})
	}
	working.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func refusal(r *http.Response, text []byte) error {
	var said struct {
		Code    string            `json:"code"`
		Detail  string            `json:"detail"`
		Outcome string            `json:"outcome"`
		Rule    string            `json:"rule"`
		Args    map[string]string `json:"args"`
		Next    string            `json:"next"`
	}
	e := &Error{Status: r.StatusCode, again: r.Header.Get("Retry-After") != ""}
	if json.Unmarshal(text, &said) == nil {
		e.Code, e.Outcome, e.Text = said.Code, said.Outcome, said.Detail
		e.Rule, e.Args, e.Next = said.Rule, said.Args, said.Next
	}
	return e
}
