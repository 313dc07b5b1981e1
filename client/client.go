// Package client is for programs that use Farol over HTTP: its queues, to which they
// post messages and from which they pull them, and the stages of its pipeline that
// are worked on by programs of anyone's.
//
// What fails for a moment is tried again, with pauses that grow. [Client.Work] and
// [Client.WorkStage] are whole workers: they pull or claim, call a function for each
// message or item, answer, and end in an orderly way when their context does.
//
// Work may be repeated: a worker that dies, or whose answer is lost, has its message
// or item given to another. It must be safe to do again.
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
	"time"
)

// Options say how to reach a server. All may be left out.
type Options struct {
	Token string        // that farol token add has made
	HTTP  *http.Client  // nil is one of its own
	Give  time.Duration // how long a call is tried again that fails for a moment; 0 is a minute, negative is not at all
	// Answer is how long the server has to answer one try, in addition to the time that it is
	// asked to wait; 0 is a minute.
	Answer time.Duration
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base   string
	token  string
	http   *http.Client
	give   time.Duration
	answer time.Duration
}

// New returns a client of the server at a URL such as http://127.0.0.1:4180.
func New(server string, o Options) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's URL is %q; it must be http:// or https:// and host:port", server)
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), token: o.Token, http: o.HTTP, give: o.Give, answer: o.Answer}
	if c.http == nil {
		t, _ := http.DefaultTransport.(*http.Transport)
		t = t.Clone()
		t.MaxIdleConnsPerHost = 100
		c.http = &http.Client{Transport: t}
	}
	if c.give == 0 {
		c.give = time.Minute
	}
	if c.answer <= 0 {
		c.answer = time.Minute
	}
	return c, nil
}

// Error is what a server answers that did not do what it was asked.
type Error struct {
	Status int    // of HTTP
	Code   string // stable, of the lease API; "" of the queues
	// Outcome is how a claim had been ended before, of the code "ended".
	Outcome string
	Text    string // for people
}

// Error is what the server says for people.
func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Text
}

// ErrLost says that an item is no longer this worker's: its lease lapsed, or someone
// has done something else with it. Its work is to be dropped.
var ErrLost = errors.New("the claim is lost: the item belongs to another worker")

// passes tells whether trying again may help.
func passes(err error) bool {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Status >= 500 || answer.Status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
	// mostAnswer bounds what is read of an answer, in bytes.
	mostAnswer = 512 << 20
)

// pause waits after so many failures in a row, and tells whether ctx lasted as long.
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

// call sends a request until it is answered, and reads the answer into one, which
// stays as it is if there is nothing (204). The server may wait for so long before it
// answers.
func (c *Client) call(ctx context.Context, path string, request, answer any, wait time.Duration) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("call %s: %w", path, err)
	}
	end := time.Now().Add(c.give)
	for failures := 1; ; failures++ {
		err := c.try(ctx, path, body, answer, wait)
		if err == nil {
			return nil
		}
		if !passes(err) || ctx.Err() != nil || time.Now().After(end) || !pause(ctx, failures) {
			return fmt.Errorf("call %s: %w", path, err)
		}
	}
}

// try sends a request once. A server that is silent is as one that is away.
func (c *Client) try(ctx context.Context, path string, body []byte, answer any, wait time.Duration) error {
	timed, cancel := context.WithTimeout(ctx, wait+c.answer)
	defer cancel()
	err := c.once(timed, path, body, answer)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the server does not answer within %v", wait+c.answer)
	}
	return err
}

func (c *Client) once(ctx context.Context, path string, body []byte, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case response.StatusCode == http.StatusNoContent:
		return nil
	case response.StatusCode != http.StatusOK:
		return refusal(response.StatusCode, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

func refusal(status int, text []byte) error {
	var said struct {
		Code    string `json:"code"`
		Detail  string `json:"detail"`
		Outcome string `json:"outcome"`
	}
	e := &Error{Status: status}
	if json.Unmarshal(text, &said) == nil {
		e.Code, e.Outcome, e.Text = said.Code, said.Outcome, said.Detail
	}
	return e
}
