package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// A Source is an object to copy.
type Source struct {
	Bucket  *Bucket
	Key     string
	IfMatch string // unquoted ETag the object must still have; "" accepts any
}

// Copy writes up into b from an object elsewhere; content type, metadata and
// storage class are those of up and of b, not the source's. Between buckets of
// one endpoint and one access key the server makes the copy; if it cannot, or
// between endpoints, the bytes come through here. Large objects go in parts as
// in [Bucket.PutParts], where p.Open is not used.
//
// A copy that the server says has another SHA-256 than up is deleted again, and
// the error is [ErrDigest].
func (b *Bucket) Copy(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, b.errorf("copy to", key, err)
	}
	if b.reaches(src.Bucket) {
		o, err := b.copyThere(ctx, src, key, up, p)
		if !errors.Is(err, errUnsupported) && !errors.Is(err, ErrDenied) {
			return o, wrapped(b, src, key, err)
		}
	}
	o, err := b.copyThrough(ctx, src, key, up, p)
	return o, wrapped(b, src, key, err)
}

func wrapped(b *Bucket, src Source, key string, err error) error {
	if err == nil {
		return nil
	}
	return b.errorf(fmt.Sprintf("copy %s/%s to", src.Bucket.target.name(), src.Key), key, err)
}

// reaches reports whether our requests are allowed to name objects of src.
func (b *Bucket) reaches(src *Bucket) bool {
	return *b.endpoint == *src.endpoint &&
		b.target.AccessKeyID == src.target.AccessKeyID &&
		b.target.SecretAccessKey == src.target.SecretAccessKey
}

func (b *Bucket) copyThere(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	if up.Size <= b.options.CopyAbove {
		return b.copyWhole(ctx, src, key, up)
	}
	return b.inParts(ctx, key, up, p, func(ctx context.Context, part part) (types.CompletedPart, error) {
		return b.copyPart(ctx, src, part)
	})
}

func (s Source) ifMatch() *string {
	if s.IfMatch == "" {
		return nil
	}
	return aws.String(`"` + s.IfMatch + `"`)
}

func (s Source) path() *string {
	return aws.String(s.Bucket.target.Bucket + "/" + escapeKey(s.Key))
}

func (b *Bucket) copyWhole(ctx context.Context, src Source, key string, up Upload) (Object, error) {
	in := &s3.CopyObjectInput{
		Bucket:            &b.target.Bucket,
		Key:               &key,
		CopySource:        src.path(),
		CopySourceIfMatch: src.ifMatch(),
		MetadataDirective: types.MetadataDirectiveReplace,
		ContentType:       nonEmpty(up.ContentType),
		Metadata:          up.Metadata,
		StorageClass:      types.StorageClass(b.target.StorageClass),
	}
	if b.keepsSHA256() {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmSha256
	}
	out, err := b.work.CopyObject(ctx, in)
	if err != nil {
		return Object{}, explain(err)
	}
	o := Object{
		Key: key, Size: up.Size, ContentType: up.ContentType, Metadata: up.Metadata,
		StorageClass: b.target.StorageClass, VersionID: aws.ToString(out.VersionId),
	}
	if r := out.CopyObjectResult; r != nil {
		o.ETag, o.SHA256, o.LastModified = unquote(r.ETag), aws.ToString(r.ChecksumSHA256), aws.ToTime(r.LastModified)
	}
	if err := differs(o.SHA256, up.SHA256); err != nil {
		return Object{}, b.discard(ctx, key, err)
	}
	return o, nil
}

// differs compares what both sides know.
func differs(checksum string, want [32]byte) error {
	if expected := ExpectedChecksum(want, nil); checksum != "" && known(want[:]) && checksum != expected {
		return fmt.Errorf("%w: the copy has SHA-256 %s, expected %s", ErrDigest, checksum, expected)
	}
	return nil
}

func (b *Bucket) copyPart(ctx context.Context, src Source, p part) (types.CompletedPart, error) {
	out, err := b.work.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &b.target.Bucket, Key: &p.key, UploadId: &p.upload, PartNumber: &p.number,
		CopySource:        src.path(),
		CopySourceIfMatch: src.ifMatch(),
		CopySourceRange:   aws.String(fmt.Sprintf("bytes=%d-%d", p.offset, p.offset+p.length-1)),
	})
	if err != nil {
		return types.CompletedPart{}, explain(err)
	}
	r := out.CopyPartResult
	if r == nil {
		return types.CompletedPart{}, errors.New("the answer has no result")
	}
	if err := differs(aws.ToString(r.ChecksumSHA256), p.sum); err != nil {
		return types.CompletedPart{}, err
	}
	return types.CompletedPart{PartNumber: &p.number, ETag: r.ETag, ChecksumSHA256: r.ChecksumSHA256}, nil
}

// copyThrough reads the source and writes it here, without keeping it.
func (b *Bucket) copyThrough(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	open := func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		return src.Bucket.Get(ctx, src.Key, Range{Offset: offset, Length: length, IfMatch: src.IfMatch})
	}
	if PartSize(up.Size) > 0 {
		return b.inParts(ctx, key, up, p, func(ctx context.Context, part part) (types.CompletedPart, error) {
			return b.sendPart(ctx, part, open)
		})
	}
	var o Object
	err := retried(ctx, func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		body, err := open(ctx, 0, up.Size)
		if err != nil {
			return err
		}
		defer body.Close() //nolint:errcheck // reading is over, one way or the other
		o, err = b.put(ctx, key, body, up)
		return err
	})
	return o, err
}
