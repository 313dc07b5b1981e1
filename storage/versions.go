package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Version is one state of a key that a bucket keeps.
type Version struct {
	Key          string
	ID           string    // "" on a server that knows no versions: the object itself
	DeleteMarker bool      // it stands for the key's absence, and has no content
	Size         int64     // bytes
	ETag         string    // without its quotes
	LastModified time.Time // by the server's clock
}

// Versions walks all versions and delete markers of the keys that begin with
// prefix, on each page of the server's the markers last. On a server that does not
// know versions it walks the objects. It ends at the first error, which comes with a
// zero Version.
func (b *Bucket) Versions(ctx context.Context, prefix string) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		in := &s3.ListObjectVersionsInput{
			Bucket: &b.conn.Target.Bucket, Prefix: nonEmpty(prefix), EncodingType: types.EncodingTypeUrl,
		}
		for {
			out, err := b.conn.API.ListObjectVersions(ctx, in)
			if err != nil && in.KeyMarker == nil && wire.Unsupported(err) {
				b.objects(ctx, prefix, yield)
				return
			}
			if err != nil {
				yield(Version{}, b.conn.Wrap("list the versions of", prefix, b.conn.Explain(ctx, err)))
				return
			}
			page, next, err := listedVersions(out)
			if err != nil {
				yield(Version{}, b.conn.Wrap("list the versions of", prefix, b.conn.Wrong(err)))
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			in.KeyMarker, in.VersionIdMarker = &next, out.NextVersionIdMarker
		}
	}
}

func (b *Bucket) objects(ctx context.Context, prefix string, yield func(Version, error) bool) {
	for o, err := range b.List(ctx, prefix, "") {
		if !yield(Version{Key: o.Key, Size: o.Size, LastModified: o.LastModified}, err) {
			return
		}
	}
}

// listedVersions decodes a page, and the key at which the next one begins.
func listedVersions(out *s3.ListObjectVersionsOutput) (page []Version, next string, err error) {
	for _, v := range out.Versions {
		page = append(page, Version{
			Key: aws.ToString(v.Key), ID: aws.ToString(v.VersionId),
			Size: aws.ToInt64(v.Size), ETag: wire.Unquoted(aws.ToString(v.ETag)), LastModified: aws.ToTime(v.LastModified),
		})
	}
	for _, m := range out.DeleteMarkers {
		page = append(page, Version{
			Key: aws.ToString(m.Key), ID: aws.ToString(m.VersionId),
			DeleteMarker: true, LastModified: aws.ToTime(m.LastModified),
		})
	}
	for i := range page {
		if page[i].Key, err = decoded(page[i].Key, out.EncodingType); err != nil {
			return nil, "", fmt.Errorf("key: %w", err)
		}
	}
	next, err = decoded(aws.ToString(out.NextKeyMarker), out.EncodingType)
	if out.IsTruncated == nil {
		err = errors.Join(err, errNotWhole)
	}
	if aws.ToBool(out.IsTruncated) && next == "" {
		err = errors.Join(err, errors.New("the listing is truncated but has no marker for the next page"))
	}
	return page, next, err
}

// DeleteVersions removes versions and delete markers for good; no marker comes in
// their place. Those that are not there count as removed. After an error some may
// be gone; asking again does the rest.
func (b *Bucket) DeleteVersions(ctx context.Context, versions []Version) error {
	ids := make([]types.ObjectIdentifier, len(versions))
	for i, v := range versions {
		ids[i] = types.ObjectIdentifier{Key: &v.Key, VersionId: nonEmpty(v.ID)}
	}
	return b.remove(ctx, ids)
}

// MayErase returns nil if these credentials may remove objects for good. The server is asked to remove one
// that is not there, or, where versions are kept, a version that is not there: that leaves no marker.
func (b *Bucket) MayErase(ctx context.Context, absent string) error {
	versioned, err := b.KeepsVersions(ctx)
	if err != nil {
		return err
	}
	if versioned {
		return b.DeleteVersions(ctx, []Version{{Key: absent, ID: "null"}}) // the ID of what was before all versions
	}
	return b.Delete(ctx, absent)
}

// Erase removes the keys with all their versions and delete markers. Keys that are
// not there count as removed. To a bucket that keeps no versions it costs what
// [Bucket.Delete] does and one question whether that is so; in others, a listing of
// each key. After an error some may be gone; asking again does the rest. Whether
// nothing is left is for [Bucket.Absent] to say. Where the store keeps a version under
// Object Lock, the error is a [*Kept], and nothing of 1000 keys is removed.
func (b *Bucket) Erase(ctx context.Context, keys ...string) error {
	versioned, err := b.KeepsVersions(ctx)
	if err != nil {
		return err
	}
	if !versioned {
		return b.Delete(ctx, keys...)
	}
	for batch := range slices.Chunk(keys, deleteAtOnce) {
		versions, err := b.versionsOf(ctx, batch...)
		if err == nil {
			err = b.free(ctx, versions)
		}
		if err == nil {
			err = b.DeleteVersions(ctx, versions)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Absent returns nil if nothing is left of exactly this key: HEAD does not find it,
// and no version and no delete marker is listed. What is left is [ErrStillThere]. A
// bucket that is missing or closed to us proves nothing, and is [ErrDenied]. Whether
// the bucket keeps versions is known from the last Erase, or asked once; where it
// keeps none, a HEAD is all.
func (b *Bucket) Absent(ctx context.Context, key string) error {
	versioned := b.versioned.Load()
	if versioned == nil {
		keeps, err := b.KeepsVersions(ctx)
		if err != nil {
			return err
		}
		versioned = &keeps
	}
	var response *smithyhttp.ResponseError
	o, err := b.Head(ctx, key)
	switch {
	case err == nil:
		return b.conn.Wrap("erase", key, fmt.Errorf("%w: %d bytes", ErrStillThere, o.Size))
	case !errors.Is(err, ErrNotFound):
		return err
	case errors.As(err, &response) && response.Response.Header.Get("X-Amz-Delete-Marker") == "true":
		// The bucket has begun to keep versions since we asked.
		return b.conn.Wrap("erase", key, fmt.Errorf("%w: under a delete marker", ErrStillThere))
	case !*versioned:
		return nil
	}
	versions, err := b.versionsOf(ctx, key)
	if err == nil && len(versions) > 0 {
		err = b.conn.Wrap("erase", key, fmt.Errorf("%w: version %s and %d more", ErrStillThere, versions[0].ID, len(versions)-1))
	}
	return err
}

// KeepsVersions asks the server whether the bucket keeps versions of what is replaced or
// deleted, or has kept some, and remembers the answer. A bucket that has ceased
// to keep new versions still has the old ones. One that is missing or closed to us
// is [ErrDenied].
func (b *Bucket) KeepsVersions(ctx context.Context) (bool, error) {
	out, err := b.conn.API.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.conn.Target.Bucket})
	versioned := err == nil && out.Status != ""
	if err != nil {
		if err = b.conn.Explain(ctx, err); errors.Is(err, ErrUnsupported) {
			err = b.Check(ctx)
		}
		if err != nil {
			return false, fmt.Errorf("versioning of %s: %w", b.conn.Name(), err)
		}
	}
	b.versioned.Store(&versioned)
	b.store.Note(b.conn.Target.Bucket, func(f *ability.Facts) { f.Versions = versioned })
	return versioned, nil
}

// Pinned is the ID of the version of a key that has an ETag; "" where the bucket keeps no versions.
// It may have been replaced or deleted since: then the bucket is asked for its versions. If none has
// the ETag, or they cannot be listed, the error is that of the newest: [ErrChanged] or [ErrNotFound].
func (b *Bucket) Pinned(ctx context.Context, key, etag string) (version string, err error) {
	o, err := b.Head(ctx, key)
	switch {
	case err == nil && o.ETag == etag:
		return o.VersionID, nil
	case err == nil:
		err = b.conn.Wrap("pin", key, fmt.Errorf("%w: its ETag is %s, and not %s", ErrChanged, o.ETag, etag))
	case !errors.Is(err, ErrNotFound):
		return "", err
	}
	versions, failed := b.versionsOf(ctx, key)
	if failed != nil && !errors.Is(failed, ErrDenied) && !errors.Is(failed, ErrNotFound) && !errors.Is(failed, ErrUnsupported) {
		return "", failed // and not a word on the upload
	}
	for _, v := range versions {
		if v.ETag == etag && v.ID != "" && !v.DeleteMarker {
			return v.ID, nil
		}
	}
	return "", err
}

// versionsOf lists all versions and delete markers of exactly these keys.
func (b *Bucket) versionsOf(ctx context.Context, keys ...string) ([]Version, error) {
	var mu sync.Mutex
	var all []Version
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.options.Concurrency)
	for _, key := range keys {
		group.Go(func() error {
			for v, err := range b.Versions(ctx, key) {
				if err != nil {
					return err
				}
				if v.Key == key { // and not a longer one
					mu.Lock()
					all = append(all, v)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return all, err
}
