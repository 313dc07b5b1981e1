package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

var (
	// ErrNotFound says that the bucket answered and has no such key. To HEAD, S3
	// gives the same answer for a missing bucket; [Bucket.Check] tells them apart.
	ErrNotFound = errors.New("not found")
	// ErrChanged says that the object is no longer the one that was asked for, or
	// that someone else writes the same key at this moment.
	ErrChanged = errors.New("changed")
	// ErrDenied says that no retry will help until a person changes permissions,
	// credentials or configuration; a bucket that does not exist counts as such.
	ErrDenied = errors.New("denied")
	// ErrDigest says that bytes are not those that their digest promised.
	ErrDigest = errors.New("digest mismatch")
	// ErrArchived says that the object is in a storage class that has to be
	// restored before it can be read.
	ErrArchived = errors.New("archived")
	// ErrStillThere says that an object was to be gone, and it, a version of it or
	// a delete marker is not.
	ErrStillThere = errors.New("still there")

	// errUnsupported: the server does not know the operation.
	errUnsupported = errors.New("not supported by the server")
	// errNoTrailers: the server does not understand checksums that follow the bytes.
	errNoTrailers = errors.New("no trailing checksums")
	// errNoUpload: the multipart upload was completed, aborted, or never was.
	errNoUpload = errors.New("no such upload")
)

// An answer is an error that a server gave, in words short enough for a note.
type answer struct {
	kind   error // nil for what may be retried
	text   string
	cause  error
	status int
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

// explain translates an error of the SDK at the border of this package.
func explain(err error) error {
	status := 0
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		text := fmt.Sprintf("%s (HTTP %d)", api.ErrorCode(), status)
		if m := api.ErrorMessage(); m != "" && m != api.ErrorCode() {
			text = fmt.Sprintf("%s: %s (HTTP %d)", api.ErrorCode(), m, status)
		}
		return &answer{kind: kindOf(api.ErrorCode(), status), text: text, cause: err, status: status}
	}
	var request *url.Error
	if status == 0 && errors.As(err, &request) {
		return request.Err // the URL says nothing that key and bucket do not
	}
	return err
}

// kindOf sorts S3's error codes and, for answers without a body (HEAD), the
// HTTP status. What it does not name is transient.
func kindOf(code string, status int) error {
	switch code {
	case "NoSuchKey", "NoSuchVersion":
		return ErrNotFound
	case "NoSuchUpload":
		return errNoUpload
	case "PreconditionFailed", "ConditionalRequestConflict":
		return ErrChanged
	case "InvalidObjectState":
		return ErrArchived
	case "NotImplemented", "MethodNotAllowed":
		return errUnsupported
	case "NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed",
		"InvalidToken", "ExpiredToken", "XAdminUserNotFound": // the last is versitygw's InvalidAccessKeyId, a 404
		return ErrDenied
	case "RequestTimeTooSkewed", "RequestTimeout", "SlowDown":
		return nil // the first is a 403, but a clock gets set right
	}
	switch status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusPreconditionFailed:
		return ErrChanged
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMovedPermanently:
		return ErrDenied
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return errUnsupported
	}
	return nil
}

// errorf names the operation, the bucket and the key.
func (b *Bucket) errorf(op, key string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, b.target.name(), key, err)
}

// final reports whether trying the same again at once is of no use.
func final(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	for _, kind := range []error{
		ErrNotFound, ErrChanged, ErrDenied, ErrDigest, ErrArchived, errUnsupported, errNoTrailers, errNoUpload,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	var rewind *RewindError
	return errors.As(err, &rewind)
}
