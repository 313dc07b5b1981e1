package wire

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage/credentials"
)

// keys are the credentials that requests for a bucket are signed by. Each try has those of its
// moment: the SDK would sign all tries of a request by the same.
type keys struct {
	*credentials.Provider

	service string
}

type keyKey struct{}

// now returns the credentials, and notes for judged by which a request of the SDK's is signed.
func (k *keys) now(ctx context.Context) (aws.Credentials, error) {
	key, err := k.Retrieve(ctx)
	if f := fault.In(err); f != nil {
		of := *f
		of.Service = k.service
		return key, &of
	}
	if signed, ok := ctx.Value(keyKey{}).(*aws.Credentials); ok {
		*signed = key
	}
	return key, err
}

// ID names the middleware.
func (*keys) ID() string { return "FarolKeys" }

// HandleFinalize is around each try of a request of the SDK's.
func (k *keys) HandleFinalize(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (middleware.FinalizeOutput, middleware.Metadata, error) {
	var signed aws.Credentials
	out, metadata, err := next.HandleFinalize(context.WithValue(ctx, keyKey{}, &signed), in)
	return out, metadata, k.judged(ctx, err, signed)
}

// judged is the error of a request, as a staleError if its key was refused and there is another.
func (k *keys) judged(ctx context.Context, err error, signed aws.Credentials) error {
	if err != nil && blamesKey(err) && k.Refused(ctx, signed) {
		return &staleError{err}
	}
	return err
}

// blamesKey reports whether a store may have refused a request for its key. The answer to a HEAD has
// no words.
func blamesKey(err error) bool {
	var api smithy.APIError
	var response *smithyhttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &response) {
		return false
	}
	switch api.ErrorCode() {
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound":
		return true
	}
	status := response.HTTPStatusCode()
	return response.Response.Request != nil && response.Response.Request.Method == http.MethodHead &&
		(status == http.StatusForbidden || status == http.StatusUnauthorized || status == http.StatusBadRequest)
}

// A staleError is the refusal of a key that there is a newer one for.
type staleError struct{ err error }

func (e *staleError) Error() string { return e.err.Error() }
func (e *staleError) Unwrap() error { return e.err }

// RetryableError tells the SDK to try again.
func (*staleError) RetryableError() bool { return true }
