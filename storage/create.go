package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/storage/wire"
)

// ErrTaken says that a bucket of this name is another account's.
var ErrTaken = errors.New("the name of the bucket is taken")

// A Protection is what a bucket does so that its objects stay.
type Protection struct {
	Versions bool   // it keeps a version of each object that is replaced or deleted
	Lock     bool   // Object Lock is enabled; it implies Versions
	Mode     string // of the default retention, GOVERNANCE or COMPLIANCE; "": there is none
	Days     int    // of the default retention
}

// Create makes the bucket. One that is there already and ours is success.
func (b *Bucket) Create(ctx context.Context) error {
	_, err := b.Make(ctx, false)
	return err
}

// Make makes the bucket, with Object Lock enabled if lock is true, and reports whether it was
// not there before. One that is there and ours stays as it is. The error is [ErrTaken] for a
// name that another account has, and [ErrDenied] if we may not make it.
func (b *Bucket) Make(ctx context.Context, lock bool) (made bool, err error) {
	in := &s3.CreateBucketInput{Bucket: &b.conn.Target.Bucket}
	if lock {
		in.ObjectLockEnabledForBucket = aws.Bool(true)
	}
	if b.isAWS() {
		in.CreateBucketConfiguration = b.location()
	}
	_, err = b.conn.API.CreateBucket(ctx, in)
	if code, _ := wire.Words(err); code == "IllegalLocationConstraintException" && in.CreateBucketConfiguration == nil {
		in.CreateBucketConfiguration = b.location() // Wasabi and newer gateways want it, Ceph refuses one that it does not know
		_, err = b.conn.API.CreateBucket(ctx, in)
	}
	var owned *types.BucketAlreadyOwnedByYou
	var taken *types.BucketAlreadyExists
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &owned):
		return false, nil
	case errors.As(err, &taken):
		return false, fmt.Errorf("create bucket %s: %w: %q", b.conn.Name(), ErrTaken, b.conn.Target.Bucket)
	}
	return false, fmt.Errorf("create bucket %s: %w", b.conn.Name(), b.conn.Explain(ctx, err))
}

func (b *Bucket) isAWS() bool {
	host := b.conn.Endpoint.Hostname()
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

// location is nil for us-east-1, which S3 does not accept by its name.
func (b *Bucket) location() *types.CreateBucketConfiguration {
	if b.conn.Region() == "us-east-1" {
		return nil
	}
	return &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(b.conn.Region())}
}

// Protection asks how the bucket protects its objects. A server that does not know versions or
// Object Lock has none.
func (b *Bucket) Protection(ctx context.Context) (p Protection, err error) {
	versions, err := b.conn.API.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.conn.Target.Bucket})
	switch {
	case wire.Unsupported(err):
	case err != nil:
		return p, fmt.Errorf("versioning of %s: %w", b.conn.Name(), b.conn.Explain(ctx, err))
	default:
		p.Versions = versions.Status == types.BucketVersioningStatusEnabled
	}
	lock, err := b.conn.API.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &b.conn.Target.Bucket})
	switch code, _ := wire.Words(err); {
	case wire.Unsupported(err), code == "ObjectLockConfigurationNotFoundError":
		return p, nil
	case err != nil:
		return p, fmt.Errorf("lock configuration of %s: %w", b.conn.Name(), b.conn.Explain(ctx, err))
	case lock.ObjectLockConfiguration == nil:
		return p, nil
	}
	p.Lock = lock.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled
	if rule := lock.ObjectLockConfiguration.Rule; rule != nil && rule.DefaultRetention != nil {
		const daysInYear = 365 // as S3 counts
		p.Mode = string(rule.DefaultRetention.Mode)
		p.Days = int(aws.ToInt32(rule.DefaultRetention.Days)) + daysInYear*int(aws.ToInt32(rule.DefaultRetention.Years))
	}
	return p, nil
}

// EnableVersions has the bucket keep a version of each object that is replaced or deleted from
// now on.
func (b *Bucket) EnableVersions(ctx context.Context) error {
	_, err := b.conn.API.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &b.conn.Target.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}, withMD5)
	if err != nil {
		return fmt.Errorf("enable versions in %s: %w", b.conn.Name(), b.conn.Explain(ctx, err))
	}
	b.versioned.Store(aws.Bool(true))
	return nil
}

// SetRetention has new objects in a bucket with Object Lock be kept for some days, in the mode
// GOVERNANCE or COMPLIANCE.
func (b *Bucket) SetRetention(ctx context.Context, mode string, days int) error {
	_, err := b.conn.API.PutObjectLockConfiguration(ctx, &s3.PutObjectLockConfigurationInput{
		Bucket: &b.conn.Target.Bucket,
		ObjectLockConfiguration: &types.ObjectLockConfiguration{
			ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{
				Mode: types.ObjectLockRetentionMode(mode), Days: aws.Int32(int32(days)), //nolint:gosec // some thousand
			}},
		},
	}, withMD5)
	if err != nil {
		return fmt.Errorf("set the default retention of %s: %w", b.conn.Name(), b.conn.Explain(ctx, err))
	}
	return nil
}

// Unsupported reports whether the server does not know the operation that failed.
func Unsupported(err error) bool { return errors.Is(err, ErrUnsupported) }

// withMD5 adds the digest that some servers demand of such a request, next to the SDK's.
func withMD5(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
}
