package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
)

var (
	// ErrNotFound says that the bucket answered and has no such key. To HEAD, S3
	// gives the same answer for a missing bucket; package storage tells them apart.
	ErrNotFound = errors.New("not found")
	// ErrChanged says that the object is no longer the one that was asked for, or
	// that someone else writes the same key at this moment.
	ErrChanged = errors.New("changed")
	// ErrDenied says that no retry will help until a person changes permissions,
	// credentials or configuration; a bucket that does not exist counts as such. It
	// always comes with a [fault.Error].
	ErrDenied = errors.New("denied")
	// ErrDigest says that bytes are not those that their digest promised. It comes with
	// a [fault.Error] of the kind wrong-answer where the bytes were checked as they left
	// and the server has others: it refused them with BadDigest, or answered with
	// another digest. It comes without one where the bytes differ before they leave,
	// and where a copy made by the server differs from what the caller expects of the
	// source: that is the content's failure.
	ErrDigest = errors.New("digest mismatch")
	// ErrArchived says that the object is in a storage class that has to be
	// restored before it can be read.
	ErrArchived = errors.New("archived")
	// ErrUnsupported says that the server does not know the operation.
	ErrUnsupported = errors.New("not supported by the server")
	// ErrNoBucket is [ErrDenied] where the reason is that the bucket is not there.
	ErrNoBucket error = noBucket{}
	// ErrNoUpload says that the multipart upload was completed, aborted, or never was.
	ErrNoUpload = errors.New("no such upload")
)

type noBucket struct{}

// Error says what is the case: nobody refused anything.
func (noBucket) Error() string { return "no such bucket" }

// Is has callers that look for [ErrDenied] find it.
func (noBucket) Is(target error) bool { return target == ErrDenied }

// An answer is an error that a server gave, in words short enough for a note.
type answer struct {
	kind  error // nil for what may be retried
	text  string
	cause error
}

func (e *answer) Error() string {
	if e.kind == nil {
		return e.text
	}
	return e.kind.Error() + ": " + e.text
}

func (e *answer) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

// Explain translates an error of [Conn.Send] or of the SDK, and says whose failure it is. What ended
// since the caller's time was up, or since it was asked to stop, is nobody's failure.
func (c *Conn) Explain(ctx context.Context, err error) error {
	if known := fault.In(err); known != nil {
		return err
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return c.answered(api, err)
	}
	if ctx.Err() != nil {
		return bare(err)
	}
	var strange *strangeAnswer
	var response *smithyhttp.ResponseError
	var sending *smithyhttp.RequestSendError
	var reading *smithy.DeserializationError
	k, said, ok := fault.Network(err)
	switch {
	case ok:
		return c.Fault(k, said, bare(err))
	case errors.As(err, &strange):
		return c.Wrong(strange)
	case errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusMultipleChoices:
		return c.page(response.HTTPStatusCode(), err)
	case errors.As(err, &reading):
		return c.Wrong(reading)
	case errors.As(err, &sending):
		return c.Fault(fault.Unavailable, "connection failed", bare(err))
	}
	return bare(err)
}

// bare leaves the URL out, which says nothing that key and bucket do not.
func bare(err error) error {
	var request *url.Error
	var sending *smithyhttp.RequestSendError
	switch {
	case errors.As(err, &request):
		return request.Err
	case errors.As(err, &sending):
		return sending.Err
	}
	return err
}

// answered is an error that S3 gave in its own words or, to HEAD, by its status.
func (c *Conn) answered(api smithy.APIError, err error) error {
	status, head, code, operation := 0, false, api.ErrorCode(), operationOf(err)
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
		head = response.Response.Request != nil && response.Response.Request.Method == http.MethodHead
	}
	text := fmt.Sprintf("%s (HTTP %d)", code, status)
	if m := api.ErrorMessage(); m != "" && m != code {
		text = fmt.Sprintf("%s: %s (HTTP %d)", code, m, status)
	}
	said := fmt.Sprintf("%d %s", status, code)
	var skewed *skewedError
	if errors.As(err, &skewed) {
		return c.Fault(fault.Skewed, skewed.said(status), &answer{text: text + ", " + skewed.apart(), cause: err})
	}
	if !head && status == http.StatusNotFound && wordless(code) && !ofUpload(operation) {
		return c.Fault(fault.WrongAnswer, said, &answer{text: text + ", which is not an answer of S3", cause: err})
	}
	k, ok := fault.OfS3(operation, code, status)
	e := &answer{kind: kindOf(operation, code, status, k), text: text, cause: err}
	if !ok && status >= http.StatusMultipleChoices && status < http.StatusBadRequest {
		k, ok = fault.WrongAnswer, true // a redirection that S3 does not give
	}
	if !ok {
		return e
	}
	return c.Fault(k, said, e)
}

// operationOf is the name of the operation that an error is of.
func operationOf(err error) string {
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		return operation.OperationName
	}
	return ""
}

// ofUpload reports whether an operation is about an upload in parts: what is not there then
// is the upload, whatever the server calls it.
func ofUpload(operation string) bool {
	switch operation {
	case "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload", "ListParts":
		return true
	}
	return false
}

// wordless are the codes that the SDK makes of a status where there is no body.
func wordless(code string) bool { return code == "" || code == "UnknownError" || code == "NotFound" }

// page is an answer whose status is no success and that is not in the words of S3.
func (c *Conn) page(status int, err error) error {
	said := fmt.Sprintf("%d %s", status, http.StatusText(status))
	k, ok := fault.OfS3("", "", status)
	if !ok || k == fault.Refused {
		k = fault.WrongAnswer
	}
	return c.Fault(k, said, &answer{kind: kindOf("", "", 0, k), text: "HTTP " + said + ", which is not an answer of S3", cause: err})
}

// kindOf sorts S3's error codes and, for answers without a body (HEAD), the
// HTTP status. What it does not name is transient.
func kindOf(operation, code string, status int, k fault.Kind) error {
	if ofUpload(operation) && (code == "NoSuchKey" || status == http.StatusNotFound && wordless(code)) {
		return ErrNoUpload
	}
	switch code {
	case "NoSuchKey", "NoSuchVersion":
		return ErrNotFound
	case "NoSuchUpload":
		return ErrNoUpload
	case "PreconditionFailed", "ConditionalRequestConflict":
		return ErrChanged
	case "InvalidObjectState":
		return ErrArchived
	case "NotImplemented", "MethodNotAllowed", "UnsupportedOperation", "XNotImplemented":
		return ErrUnsupported
	case "BadDigest", "XAmzContentSHA256Mismatch":
		return ErrDigest
	}
	switch k {
	case fault.Denied:
		return ErrDenied
	case fault.Missing:
		return ErrNoBucket
	case "":
		return ofStatus(status)
	default:
		return nil
	}
}

// ofStatus sorts an answer whose code says nothing.
func ofStatus(status int) error {
	switch status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusPreconditionFailed:
		return ErrChanged
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return ErrUnsupported
	}
	return nil
}

// Words are the code and the message of an error in S3's words; "" without any.
func Words(err error) (code, message string) {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode(), api.ErrorMessage()
	}
	return "", ""
}

// Unsupported reports whether the server does not know the operation, of an error that is not explained yet.
func Unsupported(err error) bool {
	code, _ := Words(err)
	if code == "" {
		return false
	}
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	return errors.Is(kindOf("", code, status, ""), ErrUnsupported)
}

// OtherWay reports whether an error may be about the way in which something was asked, and
// not about what: another way may be open.
func OtherWay(err error) bool {
	f := fault.In(err)
	return f != nil && f.Kind == fault.Refused || errors.Is(err, ErrUnsupported)
}

// ErrorOf is the error of one key in the answer to a batch, which has no status for each.
func (c *Conn) ErrorOf(operation, code, message string) error {
	k, ok := fault.OfS3(operation, code, 0)
	err := errors.New(strings.TrimSuffix(code+": "+message, ": "))
	if kind := kindOf("", code, 0, k); kind != nil {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	if ok {
		err = c.Fault(k, code, err)
	}
	return err
}

// Fault is a failure of this bucket's.
func (c *Conn) Fault(k fault.Kind, said string, err error) error {
	return &fault.Error{Service: c.Service(), Kind: k, Said: said, Err: err}
}

// Wrong is an answer that is none to what was asked.
func (c *Conn) Wrong(err error) error {
	return c.Fault(fault.WrongAnswer, "not an answer of S3", err)
}

// Lied is [ErrDigest] where it is the server, or the way to it, that has other bytes
// than it was sent.
func (c *Conn) Lied(format string, args ...any) error {
	return c.Fault(fault.WrongAnswer, "the stored bytes differ from the bytes sent", fmt.Errorf("%w: "+format, append([]any{ErrDigest}, args...)...))
}

// Wrap names the operation, the bucket and the key.
func (c *Conn) Wrap(op, key string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, c.Name(), key, err)
}
