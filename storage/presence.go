package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage/wire"
)

const (
	// probeTime bounds a probe. A bucket that takes longer than that to say that it is
	// there would not serve well.
	probeTime = 5 * time.Second
	// believedFor is how long a bucket is believed to be there since it last answered.
	believedFor = 5 * time.Second
)

// Probe asks with one cheap signed request whether the bucket answers us, and waits a
// few seconds for it. A bucket that does not carries a [fault.Error].
func (b *Bucket) Probe(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := b.Check(limited)
	if err != nil && fault.In(err) == nil && ctx.Err() == nil && limited.Err() != nil {
		return b.conn.Fault(fault.Unavailable, "no answer before the timeout", err)
	}
	return err
}

// Check asks whether the bucket is there and open to us. A bucket that is
// missing or closed is [ErrDenied].
func (b *Bucket) Check(ctx context.Context) error {
	_, err := b.conn.API.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.conn.Target.Bucket})
	if err != nil && ctx.Err() == nil && refused(err) {
		// The answer to a HEAD has a status and no words. Those tell an unknown key from a
		// missing bucket or a wrong clock.
		_, err = b.conn.API.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.conn.Target.Bucket, MaxKeys: aws.Int32(1)})
	}
	if err == nil {
		return nil
	}
	err = b.conn.Explain(ctx, err)
	if errors.Is(err, ErrNotFound) {
		err = b.conn.Fault(fault.Missing, "404", fmt.Errorf("%w: %q", wire.ErrNoBucket, b.conn.Target.Bucket))
	}
	return fmt.Errorf("check bucket %s: %w", b.conn.Name(), err)
}

// refused reports whether the answer is a refusal, and no failure of the server's.
func refused(err error) bool {
	var api smithy.APIError
	var response *smithyhttp.ResponseError
	return errors.As(err, &api) && errors.As(err, &response) && response.HTTPStatusCode() < http.StatusTooManyRequests
}

// heard notes what came of a request that began at a time: whether it shows that the bucket is there,
// and what the answer says of the store.
func (b *Bucket) heard(ctx context.Context, began time.Time, h http.Header, err error) {
	if err == nil || speaksOfKeys(err) {
		fault.Answered(ctx, b.Service())
		b.lastAnswer.Store(began.UnixNano())
	}
	b.store.Heard(h)
}

// speaksOfKeys reports whether an error is about a key in a bucket that is there.
func speaksOfKeys(err error) bool {
	switch code, _ := wire.Words(err); code {
	case "NoSuchKey", "NoSuchVersion", "NoSuchUpload":
		return true
	}
	return false
}

// gone makes sure that it is a key that a HEAD did not find, and not the bucket, to
// which the answer is the same. An answer of the bucket to a request that began after
// since is proof; while the bucket is in use, that costs no request.
func (b *Bucket) gone(ctx context.Context, since time.Time) error {
	for b.lastAnswer.Load() < since.UnixNano() {
		asked := b.asking.DoChan("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite) // others wait for it too
			defer cancel()
			return nil, b.Check(ctx)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case answer := <-asked:
			if answer.Err != nil {
				return answer.Err
			}
		}
	}
	return nil
}
