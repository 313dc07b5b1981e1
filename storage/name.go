package storage

import (
	"cmp"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/storage/wire"
)

// Library is the software by which this package speaks to S3, for the record.
const Library = "AWS SDK for Go v" + aws.SDKVersion

// Name is the bucket's name at its provider.
func (b *Bucket) Name() string { return b.conn.Target.Bucket }

// TargetName is what logs and errors call the bucket: its target's name, or else
// its own.
func (b *Bucket) TargetName() string { return b.conn.Name() }

// Provider is who keeps the bucket, as its target names it: AWS, Wasabi-VA, ….
func (b *Bucket) Provider() string { return b.conn.Target.Provider }

// Class is the storage class of objects that are written here, STANDARD too.
func (b *Bucket) Class() string { return cmp.Or(b.conn.Target.StorageClass, standard) }

// Priority is the place of the bucket among those that a file may be restored
// from; lower is preferred.
func (b *Bucket) Priority() int { return b.conn.Target.RestorePriority }

// Service is the name of the bucket as a service, see [fault.Bucket].
func (b *Bucket) Service() string { return b.conn.Service() }

// URL is where an object is, and the name under which a stored file is recorded: see [wire.Conn.URL].
func (b *Bucket) URL(key string) string { return b.conn.URL(key) }

// Conn is the way to the bucket, for requests that are not about its objects.
func (b *Bucket) Conn() *wire.Conn { return b.conn }

// Endpoint is where the bucket's store is, without the bucket.
func (b *Bucket) Endpoint() string { return b.conn.Endpoint.String() }
