package storage

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/wire"
)

// Tops walks what is at the top of the bucket: each name before the first slash
// once, with the slash and nothing else known of it, and each object whose key has
// none. It ends at the first error, which comes with a zero Object.
func (b *Bucket) Tops(ctx context.Context) iter.Seq2[Object, error] {
	return b.listing(ctx, s3.ListObjectsV2Input{Delimiter: aws.String("/")})
}

// An OpenUpload is a multipart upload that was begun and neither completed nor
// aborted.
type OpenUpload struct {
	Key   string
	ID    string
	Begun time.Time // by the server's clock
}

// OpenUploads walks the multipart uploads that are not finished. It ends at the
// first error, which comes with a zero OpenUpload.
func (b *Bucket) OpenUploads(ctx context.Context) iter.Seq2[OpenUpload, error] {
	return func(yield func(OpenUpload, error) bool) {
		for u, err := range b.uploads(ctx, "") {
			if err != nil {
				err = b.conn.Wrap("list the uploads of", "", err)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// uploads walks those of keys that begin with prefix.
func (b *Bucket) uploads(ctx context.Context, prefix string) iter.Seq2[OpenUpload, error] {
	return func(yield func(OpenUpload, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &b.conn.Target.Bucket, Prefix: nonEmpty(prefix)}
		for {
			out, err := b.conn.API.ListMultipartUploads(ctx, in)
			if err != nil {
				yield(OpenUpload{}, b.conn.Explain(ctx, err))
				return
			}
			for _, u := range out.Uploads {
				if !yield(OpenUpload{aws.ToString(u.Key), aws.ToString(u.UploadId), aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextKeyMarker) == "" {
				return
			}
			in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
		}
	}
}

// parts walks the parts of an upload that the server has.
func (b *Bucket) parts(ctx context.Context, key, id string) iter.Seq2[types.Part, error] {
	return func(yield func(types.Part, error) bool) {
		in := &s3.ListPartsInput{Bucket: &b.conn.Target.Bucket, Key: &key, UploadId: &id}
		for {
			out, err := b.conn.API.ListParts(ctx, in)
			if err != nil {
				yield(types.Part{}, b.conn.Explain(ctx, err))
				return
			}
			for _, p := range out.Parts {
				if !yield(p, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) || out.NextPartNumberMarker == nil {
				return
			}
			in.PartNumberMarker = out.NextPartNumberMarker
		}
	}
}

// Abort ends a multipart upload and frees its parts. One that is no longer there
// is success.
func (b *Bucket) Abort(ctx context.Context, u OpenUpload) error { return b.abort(ctx, u.Key, u.ID) }

// DeleteMatching removes an object if it still has this ETag, unquoted; another
// one stays, and the error is [ErrChanged]. One that is not there counts as
// removed. The server looks at the ETag once more as it deletes; one that does not
// know conditional deletes (S3 does since September 2025) is trusted with our own
// look a moment before.
func (b *Bucket) DeleteMatching(ctx context.Context, key, etag string) error {
	object, err := b.Head(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if object.ETag != etag {
		return b.conn.Wrap("delete", key, ErrChanged)
	}
	in := &s3.DeleteObjectInput{Bucket: &b.conn.Target.Bucket, Key: &key, IfMatch: aws.String(wire.Quoted(etag))}
	_, err = b.conn.API.DeleteObject(ctx, in)
	if err != nil && wire.Unsupported(err) {
		in.IfMatch = nil
		_, err = b.conn.API.DeleteObject(ctx, in)
	}
	if err == nil {
		return nil
	}
	if err = b.conn.Explain(ctx, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return b.conn.Wrap("delete", key, err)
}
