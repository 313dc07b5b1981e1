package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// skewed is how far two clocks are apart that differ. S3 bears 15 minutes.
	skewed = 4 * time.Minute
	// mostSkew is the largest difference that we sign by. A wrong time zone makes up to
	// 14 hours; a clock that is further off has to be set by a person.
	mostSkew = 24 * time.Hour
	// freshDate is how long a request may take whose answer tells the time: that of an
	// answer which lay in a buffer on the way is not that of now.
	freshDate = time.Minute
)

// A clock knows how far the clock of an endpoint is ahead of ours. All buckets of a
// [Pool] at one endpoint share it, so that a skew costs one repeated request and not
// one with each request. The SDK's own correction is per bucket, counts the duration
// of an upload as skew, and does not see the refusal of a HEAD, which has no code.
type clock struct {
	mu     sync.Mutex
	ahead  time.Duration // as last seen in an answer
	known  bool
	offset time.Duration // that requests are signed with

	unasked atomic.Bool // the endpoint takes bodies without being asked first; see [askingTransport]
}

// Skew is how far the server's clock was ahead of ours when it last answered, to a
// second; ok is false before it did.
func (c *Conn) Skew() (ahead time.Duration, ok bool) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.ahead.Round(time.Second), c.clock.known
}

// transport notes the time of the answers.
func (c *clock) transport(t http.RoundTripper) http.RoundTripper { return datedTransport{t, c} }

type datedTransport struct {
	http.RoundTripper
	clock *clock
}

// RoundTrip notes the time as soon as the header is there: a body may take days.
func (t datedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil && time.Since(began) < freshDate {
		t.clock.note(response.Header, time.Now())
	}
	return response, err
}

func (c *clock) note(h http.Header, now time.Time) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil || h.Get("Age") != "" { // that of a cache is the time of another answer
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The header has no fractions. What it took to come here is not known, and is
	// small against what matters.
	c.ahead, c.known = date.Add(time.Second/2).Sub(now), true
	if c.ahead.Abs() < skewed {
		c.offset = 0 // our clock, or the server's, has been set right
	}
}

func (c *clock) signWith() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// adopt has requests signed by the server's clock from now on, since it refused one
// that was signed with an offset. again is false if that would change nothing. An
// offset is taken up only when it is needed: the header may be wrong where the clock
// that judges is right.
func (c *clock) adopt(signed time.Duration) (ahead time.Duration, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known:
		return 0, false
	case (c.ahead-signed).Abs() >= skewed && c.ahead.Abs() <= mostSkew:
		c.offset = c.ahead
		return c.ahead, true
	case c.offset == signed:
		c.offset = 0 // it did not help
	}
	return c.ahead, c.offset != signed
}

type offsetKey struct{}

// HandleFinalize is around each try of a request of the SDK's.
func (c *clock) HandleFinalize(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (middleware.FinalizeOutput, middleware.Metadata, error) {
	signed := c.signWith()
	out, metadata, err := next.HandleFinalize(context.WithValue(ctx, offsetKey{}, signed), in)
	return out, metadata, c.judged(err, signed)
}

// judged is the error of a request, as a skewedError if it is one. signed is the offset
// that the request was signed with.
func (c *clock) judged(err error, signed time.Duration) error {
	if err == nil || !c.blamed(err, signed) {
		return err
	}
	ahead, again := c.adopt(signed)
	return &skewedError{err: err, ahead: ahead, again: again}
}

// blamed reports whether a request was refused for its time. The answer to a HEAD has
// no code that would say so, and other servers have other codes.
func (c *clock) blamed(err error, signed time.Duration) bool {
	var api smithy.APIError
	var response *smithyhttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &response) {
		return false
	}
	if code := api.ErrorCode(); code == "RequestTimeTooSkewed" || code == "RequestExpired" {
		return true
	}
	status := response.HTTPStatusCode()
	if status != http.StatusForbidden && status != http.StatusUnauthorized && status != http.StatusBadRequest ||
		status == http.StatusBadRequest && response.Response.Request.Method != http.MethodHead {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known && (c.ahead-signed).Abs() >= skewed
}

// ID names the middleware.
func (*clock) ID() string { return "FarolClock" }

// A skewedError is a refusal for the time of a request.
type skewedError struct {
	err   error
	ahead time.Duration
	again bool // it was signed with another time than the next will be
}

func (e *skewedError) Error() string { return e.err.Error() }
func (e *skewedError) Unwrap() error { return e.err }

// RetryableError tells the SDK whether to try again.
func (e *skewedError) RetryableError() bool { return e.again }

func (e *skewedError) said(status int) string {
	return fmt.Sprintf("%d RequestTimeTooSkewed, %s", status, e.apart())
}

func (e *skewedError) apart() string {
	if e.ahead < 0 {
		return fmt.Sprintf("its clock is %s behind ours", (-e.ahead).Round(time.Second))
	}
	return fmt.Sprintf("its clock is %s ahead of ours", e.ahead.Round(time.Second))
}
