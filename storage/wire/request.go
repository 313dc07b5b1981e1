package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/retry"
)

// agent names us to servers, which write it into their logs.
const agent = "farol aws-sdk-go-v2/" + aws.SDKVersion

// noContent is the SHA-256 of no bytes, by which a request without a body is signed.
const noContent = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// announced is how large a body is, in bytes, for which the server is asked first
// whether it wants it.
const announced = 2 * mebibyte

// A Request asks for one of the four operations that move objects: HEAD, GET, PUT and
// copy. They pass by the SDK's stack of middleware, which costs more CPU than signing,
// TLS and HTTP together. What decides anything is the SDK's all the same: its signer,
// its rules for what is tried again and when, its kinds of errors. All other operations
// are rare, and use the SDK as a whole.
type Request struct {
	Operation string // as S3 calls it
	Method    string
	Key       string
	Query     string      // encoded
	Header    http.Header // with canonical names
	payload   string      // what the signature says of the body
	content   []byte      // a body that can be sent again
	stream    *Body       // one that cannot; at most one of the two is there
}

// NewRequest returns a request without a body; see [Conn.Carry].
func NewRequest(operation, method, key string) *Request {
	return &Request{Operation: operation, Method: method, Key: key, Header: make(http.Header), payload: noContent}
}

// Set adds a header, unless it would be empty. The name is canonical.
func (r *Request) Set(name, value string) {
	if value != "" {
		r.Header[name] = []string{value}
	}
}

// Plain reports whether a header carries a text unharmed: printable ASCII without space at its ends.
func Plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return strings.Trim(s, " ") == s
}

// A Reply is a success that has passed [examine]. Only that of a GET has a body that has to be
// closed.
type Reply struct {
	Header http.Header
	Size   int64 // of the content; below 0: unknown
	Body   io.ReadCloser
}

// Send asks, and returns the answer. Its error is for [Conn.Explain].
func (c *Conn) Send(ctx context.Context, r *Request) (*Reply, error) {
	if r.Key == "" {
		return nil, errors.New("the key is empty") // and the request would be about the bucket
	}
	ctx, end := c.called(ctx, r.Operation)
	reply, err := c.send(ctx, r)
	end(err)
	return reply, err
}

func (c *Conn) send(ctx context.Context, r *Request) (*Reply, error) {
	began := time.Now()
	response, err := c.sendAgain(ctx, r)
	if err == nil {
		response, err = c.sized(ctx, r, response) //nolint:bodyclose // the caller closes it
	}
	if err != nil {
		c.heard(ctx, began, nil, err)
		return nil, &smithy.OperationError{ServiceID: s3.ServiceID, OperationName: r.Operation, Err: err}
	}
	c.heard(ctx, began, response.Header, nil)
	return &Reply{response.Header, response.ContentLength, response.Body}, nil
}

// sendAgain tries as often as the SDK would, with the same pauses, and for longer where the store asks for
// patience. A body that can be sent only once is, unless the answer came before its first byte left.
func (c *Conn) sendAgain(ctx context.Context, r *Request) (*http.Response, error) {
	began, failed := time.Now(), 0
	for attempt := 1; ; attempt++ {
		ended, err := c.pace.wait(ctx)
		if err != nil {
			return nil, &smithy.CanceledError{Err: ctx.Err()}
		}
		unsent, offset := r.left(), c.clock.signWith()
		key, err := c.keys.now(ctx)
		if err != nil {
			ended(nil)
			return nil, err
		}
		response, err := c.sendOnce(ctx, r, key, time.Now().Add(offset))
		ended(err)
		err = c.keys.judged(ctx, c.clock.judged(err, offset), key)
		patient := c.pace.asksPatience(err) && time.Since(began) < c.pace.patience
		if !patient {
			failed++
		}
		if err == nil || failed == Attempts || r.left() != unsent || r.stream != nil && !patient || !c.retryer.IsErrorRetryable(err) {
			return response, err
		}
		pause, err := c.retryer.RetryDelay(attempt, err)
		if err != nil {
			return nil, err
		}
		if !retry.Pause(ctx, pause) {
			return nil, &smithy.CanceledError{Err: ctx.Err()}
		}
	}
}

// left is how much of a body that can be sent only once has not left yet.
func (r *Request) left() int64 {
	if r.stream == nil {
		return 0
	}
	return r.stream.Left
}

func (c *Conn) sendOnce(ctx context.Context, r *Request, key aws.Credentials, at time.Time) (*http.Response, error) {
	out := c.build(ctx, r)
	if err := c.signer.sign(ctx, key, out, r.payload, "s3", c.Region(), at); err != nil {
		return nil, err
	}
	transport := c.direct
	if r.Operation == "CopyObject" {
		transport = c.directWork
	}
	response, err := transport.RoundTrip(out)
	if out.Body != nil {
		_ = out.Body.Close() // never fails; the caller may use what it gave us again
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &smithy.CanceledError{Err: ctx.Err()}
	case err != nil:
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	if err := r.accept(response); err != nil {
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: response}, Err: err}
	}
	return response, nil
}

// build makes a request that is not signed yet.
func (c *Conn) build(ctx context.Context, r *Request) *http.Request {
	out := (&http.Request{
		Method: r.Method,
		URL: &url.URL{
			Scheme: c.at.Scheme, Host: c.at.Host, RawQuery: r.Query,
			Path: c.at.Path + "/" + r.Key, RawPath: c.at.EscapedPath() + "/" + EscapeKey(r.Key),
		},
		Host: c.at.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header.Clone(),
	}).WithContext(ctx)
	out.Header["X-Amz-Content-Sha256"] = []string{r.payload}
	out.Header["Accept-Encoding"] = []string{"identity"} // bytes are to arrive as they are kept
	out.Header["User-Agent"] = []string{agent}
	switch {
	case len(r.content) > 0:
		out.ContentLength = int64(len(r.content))
		// With it, a connection that the server has just closed costs no pause.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.content)), nil }
		out.Body = io.NopCloser(bytes.NewReader(r.content))
	case r.stream != nil:
		out.ContentLength = r.stream.Left
		out.Body = &lentBody{src: r.stream}
	}
	if out.ContentLength >= announced || r.stream != nil && c.pace.slow() {
		out.Header["Expect"] = []string{"100-continue"}
	}
	return out
}

// Presign signs a request whose body others will send, of a length in bytes, and returns the URL that
// is valid for some time. It sends nothing. Its user sends the headers of r, and no others.
func (c *Conn) Presign(ctx context.Context, r *Request, length int64, valid time.Duration) (string, error) {
	out := c.build(ctx, r)
	out.ContentLength, out.Header = length, r.Header
	out.URL.RawQuery = "X-Amz-Expires=" + strconv.Itoa(int(valid.Seconds())) + "&" + r.Query
	key, err := c.keys.now(ctx)
	if err != nil {
		return "", err
	}
	at := time.Now().Add(c.clock.signWith())
	signed, _, err := c.signer.PresignHTTP(ctx, key, out, unsigned, "s3", c.Region(), at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping, o.DisableHeaderHoisting = true, true
	})
	return signed, err
}
