package storage

import (
	"cmp"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Library is the software by which this package speaks to S3, for the record.
const Library = "AWS SDK for Go v" + aws.SDKVersion

// Name is the bucket's name at its provider.
func (b *Bucket) Name() string { return b.target.Bucket }

// TargetName is what logs and errors call the bucket: its target's name, or else
// its own.
func (b *Bucket) TargetName() string { return b.target.name() }

// Provider is who keeps the bucket, as its target names it: AWS, Wasabi-VA, ….
func (b *Bucket) Provider() string { return b.target.Provider }

// Class is the storage class of objects that are written here, STANDARD too.
func (b *Bucket) Class() string { return cmp.Or(b.target.StorageClass, standard) }

// Priority is the place of the bucket among those that a file may be restored
// from; lower is preferred.
func (b *Bucket) Priority() int { return b.target.RestorePriority }

// Transport is how requests for the bucket are sent, for those that others have signed.
func (b *Bucket) Transport() http.RoundTripper { return b.direct }

// Endpoint is where the bucket's store is, without the bucket.
func (b *Bucket) Endpoint() string { return b.endpoint.String() }
