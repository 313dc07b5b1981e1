// Package storage keeps objects in S3 buckets and reads them back: receiving,
// staging, preservation and restoration.
//
// A [Client] owns the connections, a [Bucket] is one place on them. Every
// method may be called at the same time as any other and again after an error;
// writing the same bytes under the same key twice is not a change.
//
// Bytes are checked where they pass: an upload whose body is not what its
// SHA-256 promised never becomes an object, and a download that ends early
// never looks complete. Errors that waiting cannot cure wrap [ErrNotFound],
// [ErrChanged], [ErrDenied], [ErrDigest] or [ErrArchived]; all others are
// worth another try. No total limit is set on a transfer: it may take days, but
// not fall silent.
//
// How a request gets to a bucket, and what its answer means, is in [wire]; what is about a bucket as a
// whole is in package setup, and about Object Lock in package lock.
package storage

import "time"

// An Object is what a bucket says about one key. Fields that an operation does
// not learn are zero: [Bucket.List] knows no content type, metadata or SHA256,
// and a write reports what the server answered to it.
type Object struct {
	Key          string
	Size         int64             // bytes
	ETag         string            // without its quotes
	LastModified time.Time         // by the server's clock
	ContentType  string            // media type as uploaded
	Metadata     map[string]string // user metadata, keys in lower case without x-amz-meta-
	StorageClass string            // S3's name of the class, STANDARD too
	SHA256       string            // base64; of a multipart upload "…-N", see [ExpectedChecksum]; "" if the server keeps none or did not say
	VersionID    string            // "" if the bucket keeps no versions
	Restoration  Restoration       // of an archived object; only [Bucket.Head] tells
}

// standard is the class that S3 does not mention.
const standard = "STANDARD"

// A Range says which bytes of an object to read, and of which object.
type Range struct {
	Offset  int64  // first byte, from 0
	Length  int64  // bytes; 0 reads nothing, < 0 reads to the end
	IfMatch string // unquoted ETag the object must still have; "" accepts any
	Version string // ID of the version to read; "" is the newest
}

// An Upload says what an object must be.
type Upload struct {
	Size        int64    // bytes; a body is read for exactly this many
	SHA256      [32]byte // of the whole content; zero if it is not known, and then not checked
	MD5         [16]byte // of the whole content; zero if not known; sent where the server keeps no SHA-256
	ContentType string   // "" leaves it to the server
	Later       bool     // the caller proves the object by itself: what the server cannot prove is not read back here

	// Metadata has lower-case keys. Values are printable ASCII without space at
	// either end, since headers carry nothing else unharmed; others are refused.
	// Of a value that is too long for the server its beginning is kept: see [Beginning].
	Metadata map[string]string
}
