package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

// A request asks for one of the four operations that move objects: HEAD, GET, PUT and
// copy. They pass by the SDK's stack of middleware, which costs more CPU than signing,
// TLS and HTTP together. What decides anything is the SDK's all the same: its signer,
// its rules for what is tried again and when, its kinds of errors. All other operations
// are rare, and use the SDK as a whole.
type request struct {
	operation string // as S3 calls it
	method    string
	key       string
	query     string      // encoded
	header    http.Header // with canonical names
	payload   string      // what the signature says of the body
	content   []byte      // a body that can be sent again
	stream    *body       // one that cannot; at most one of the two is there
}

// A reply is a success that has passed examine. Only that of a GET has a body that has to be
// closed.
type reply struct {
	header http.Header
	size   int64 // of the content; below 0: unknown
	body   io.ReadCloser
}

// send asks, and returns the answer.
func (b *Bucket) send(ctx context.Context, r *request) (*reply, error) {
	if r.key == "" {
		return nil, errors.New("the key is empty") // and the request would be about the bucket
	}
	began := time.Now()
	response, err := b.sendAgain(ctx, r) //nolint:bodyclose // the caller closes it
	b.heard(began, err)
	if err != nil {
		return nil, &smithy.OperationError{ServiceID: s3.ServiceID, OperationName: r.operation, Err: err}
	}
	b.store.note(response.Header)
	return &reply{response.Header, response.ContentLength, response.Body}, nil
}

// sendAgain tries as often as the SDK would, with the same pauses.
func (b *Bucket) sendAgain(ctx context.Context, r *request) (*http.Response, error) {
	most := b.retryer.MaxAttempts()
	if r.stream != nil {
		most = 1
	}
	for attempt := 1; ; attempt++ {
		offset := b.clock.signWith()
		response, err := b.sendOnce(ctx, r, time.Now().Add(offset))
		err = b.clock.judged(err, offset)
		if err == nil || attempt == most || !b.retryer.IsErrorRetryable(err) {
			return response, err
		}
		pause, err := b.retryer.RetryDelay(attempt, err)
		if err != nil {
			return nil, err
		}
		if !retry.Pause(ctx, pause) {
			return nil, &smithy.CanceledError{Err: ctx.Err()}
		}
	}
}

func (b *Bucket) sendOnce(ctx context.Context, r *request, at time.Time) (*http.Response, error) {
	out := b.build(ctx, r)
	key := aws.Credentials{AccessKeyID: b.target.AccessKeyID, SecretAccessKey: string(b.target.SecretAccessKey)}
	if err := b.signer.sign(ctx, key, out, r.payload, "s3", b.target.region(), at); err != nil {
		return nil, err
	}
	transport := b.direct
	if r.operation == "CopyObject" {
		transport = b.directWork
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
func (b *Bucket) build(ctx context.Context, r *request) *http.Request {
	out := (&http.Request{
		Method: r.method,
		URL: &url.URL{
			Scheme: b.at.Scheme, Host: b.at.Host, RawQuery: r.query,
			Path: b.at.Path + "/" + r.key, RawPath: b.at.EscapedPath() + "/" + escapeKey(r.key),
		},
		Host: b.at.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.header.Clone(),
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
		out.ContentLength = r.stream.left
		out.Body = &lentBody{src: r.stream}
	}
	if out.ContentLength >= announced {
		out.Header["Expect"] = []string{"100-continue"}
	}
	return out
}

// A lentBody belongs to net/http until the request has ended. It may go on reading
// after that, for instance when the server has answered before the end.
type lentBody struct {
	mu  sync.Mutex
	src io.Reader
}

func (l *lentBody) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.src == nil {
		return 0, io.ErrClosedPipe
	}
	return l.src.Read(p)
}

// Close returns when nobody reads any more.
func (l *lentBody) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.src = nil
	return nil
}

// describe adds what an object is to be, in the headers of a PUT or a copy.
func (b *Bucket) describe(h http.Header, up Upload) {
	set(h, "Content-Type", up.ContentType)
	set(h, "X-Amz-Storage-Class", b.target.StorageClass)
	for name, value := range up.Metadata {
		h[http.CanonicalHeaderKey("X-Amz-Meta-"+name)] = []string{value}
	}
}

// set leaves out a header that would be empty. The name is canonical.
func set(h http.Header, name, value string) {
	if value != "" {
		h[name] = []string{value}
	}
}

// quoted is an ETag as headers have it, and "" for none.
func quoted(etag string) string {
	if etag == "" {
		return ""
	}
	return `"` + etag + `"`
}
