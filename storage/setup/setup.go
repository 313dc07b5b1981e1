// Package setup prepares whole buckets for use.
//
// It makes a bucket, has it keep versions, sets its default retention, and lets the pages of an
// origin send parts to it.
package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/storage/lock"
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

// Make makes a bucket, with Object Lock enabled if locked is true, and reports whether it was
// not there before. One that is there and ours stays as it is. The error is [ErrTaken] for a
// name that another account has, and [wire.ErrDenied] if we may not make it.
func Make(ctx context.Context, c *wire.Conn, locked bool) (made bool, err error) {
	in := &s3.CreateBucketInput{Bucket: &c.Target.Bucket}
	if locked {
		in.ObjectLockEnabledForBucket = aws.Bool(true)
	}
	if isAWS(c) {
		in.CreateBucketConfiguration = location(c)
	}
	_, err = c.API.CreateBucket(ctx, in)
	if code, _ := wire.Words(err); code == "IllegalLocationConstraintException" && in.CreateBucketConfiguration == nil {
		in.CreateBucketConfiguration = location(c) // Wasabi and newer gateways want it, Ceph refuses one that it does not know
		_, err = c.API.CreateBucket(ctx, in)
	}
	var owned *types.BucketAlreadyOwnedByYou
	var taken *types.BucketAlreadyExists
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &owned):
		return false, nil
	case errors.As(err, &taken):
		return false, fmt.Errorf("create bucket %s: %w: %q", c.Name(), ErrTaken, c.Target.Bucket)
	}
	return false, fmt.Errorf("create bucket %s: %w", c.Name(), c.Explain(ctx, err))
}

func isAWS(c *wire.Conn) bool {
	host := c.Endpoint.Hostname()
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

// location is nil for us-east-1, which S3 does not accept by its name.
func location(c *wire.Conn) *types.CreateBucketConfiguration {
	if c.Region() == "us-east-1" {
		return nil
	}
	return &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(c.Region())}
}

// ProtectionOf asks how a bucket protects its objects. A server that does not know versions or
// Object Lock has none.
func ProtectionOf(ctx context.Context, c *wire.Conn) (p Protection, err error) {
	versions, err := c.API.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &c.Target.Bucket})
	switch {
	case wire.Unsupported(err):
	case err != nil:
		return p, fmt.Errorf("versioning of %s: %w", c.Name(), c.Explain(ctx, err))
	default:
		p.Versions = versions.Status == types.BucketVersioningStatusEnabled
	}
	has, err := lock.Configured(ctx, c)
	switch code, _ := wire.Words(err); {
	case wire.Unsupported(err), code == "ObjectLockConfigurationNotFoundError", code == "NoSuchObjectLockConfiguration":
		return p, nil
	case err != nil:
		return p, fmt.Errorf("lock configuration of %s: %w", c.Name(), c.Explain(ctx, err))
	}
	p.Lock = has.Enabled
	if r := has.Retention; r != nil {
		const daysInYear = 365 // as S3 counts
		p.Mode, p.Days = string(r.Mode), int(aws.ToInt32(r.Days))+daysInYear*int(aws.ToInt32(r.Years))
	}
	return p, nil
}

// EnableVersions has a bucket keep a version of each object that is replaced or deleted from
// now on.
func EnableVersions(ctx context.Context, c *wire.Conn) error {
	_, err := c.API.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &c.Target.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}, withMD5)
	if err != nil {
		return fmt.Errorf("enable versions in %s: %w", c.Name(), c.Explain(ctx, err))
	}
	return nil
}

// SetRetention has new objects in a bucket with Object Lock be kept for some days, in the mode
// GOVERNANCE or COMPLIANCE.
func SetRetention(ctx context.Context, c *wire.Conn, mode string, days int) error {
	_, err := c.API.PutObjectLockConfiguration(ctx, &s3.PutObjectLockConfigurationInput{
		Bucket: &c.Target.Bucket,
		ObjectLockConfiguration: &types.ObjectLockConfiguration{
			ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{
				Mode: types.ObjectLockRetentionMode(mode), Days: aws.Int32(int32(days)), //nolint:gosec // some thousand
			}},
		},
	}, withMD5)
	if err != nil {
		return fmt.Errorf("set the default retention of %s: %w", c.Name(), c.Explain(ctx, err))
	}
	return nil
}

// withMD5 adds the digest that some servers demand of such a request, next to the SDK's.
func withMD5(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
}
