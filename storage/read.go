package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Head describes an object. Archived objects answer too.
func (b *Bucket) Head(ctx context.Context, key string) (Object, error) {
	began := time.Now()
	h, size, err := b.head(ctx, key, "", 0)
	if err != nil {
		err = b.explain(ctx, err)
		if errors.Is(err, ErrNotFound) {
			err = cmp.Or(b.gone(ctx, began.Add(-believedFor)), err)
		}
		return Object{}, b.errorf("head", key, err)
	}
	at, err := modified(h)
	if err != nil {
		return Object{}, b.errorf("head", key, b.wrong(err))
	}
	return Object{
		Key:          key,
		Size:         size,
		ETag:         etagOf(h),
		LastModified: at,
		ContentType:  h.Get("Content-Type"),
		Metadata:     metadata(h),
		StorageClass: cmp.Or(h.Get("X-Amz-Storage-Class"), standard),
		SHA256:       h.Get("X-Amz-Checksum-Sha256"),
		VersionID:    h.Get("X-Amz-Version-Id"),
		Restoration:  restoration(h.Get("X-Amz-Restore")),
	}, nil
}

// head asks for an object or, if part is not 0, for one of its parts. size is that of what
// was asked for.
func (b *Bucket) head(ctx context.Context, key, ifMatch string, part int) (h http.Header, size int64, err error) {
	r := &request{operation: "HeadObject", method: http.MethodHead, key: key, header: make(http.Header), payload: noContent}
	if b.can(SHA256) {
		set(r.header, "X-Amz-Checksum-Mode", "ENABLED")
	}
	if part > 0 {
		r.query = fmt.Sprintf("partNumber=%d", part)
	}
	got, err := b.sendIf(ctx, r, ifMatch)
	if err != nil {
		return nil, 0, err
	}
	return got.header, got.size, nil
}

// sendIf reads an object that has an ETag; "" is any. A store that compares the condition with
// another ETag than it shows, as some do of what was uploaded in parts, is asked without: then
// the ETag of the answer decides.
func (b *Bucket) sendIf(ctx context.Context, r *request, etag string) (*reply, error) {
	if etag != "" && b.can(ReadIfMatch) {
		set(r.header, "If-Match", quoted(etag))
		got, err := b.send(ctx, r)
		switch {
		case err == nil && etagOf(got.header) == etag:
			b.learn(ReadIfMatch, nil)
			return got, nil
		case err == nil: // the condition went unheeded, or the answer is another request's
			return got, b.other(ctx, r.key, etag, got)
		case !errors.Is(b.explain(ctx, err), ErrChanged) || !b.still(ctx, r.key, etag):
			return got, err
		}
		b.learn(ReadIfMatch, b.explain(ctx, err))
		delete(r.header, "If-Match")
	}
	got, err := b.send(ctx, r)
	if err == nil && etag != "" && etagOf(got.header) != etag {
		return nil, b.other(ctx, r.key, etag, got)
	}
	return got, err
}

// other is the error of an answer with another ETag than was asked for: the object has changed,
// unless another look says that it has not.
func (b *Bucket) other(ctx context.Context, key, etag string, got *reply) error {
	if got.body != nil {
		_ = got.body.Close() // nobody reads it
	}
	if b.still(ctx, key, etag) {
		return b.wrong(fmt.Errorf("asked for the object with ETag %s, answered with that of ETag %s", etag, etagOf(got.header)))
	}
	return fmt.Errorf("%w: its ETag is %s, and not %s", ErrChanged, etagOf(got.header), etag)
}

// Get reads a range of an object. The reader ends with io.EOF only after every
// byte of the range; if the connection breaks first, or the object ends before
// the range does, the error is another one, and transient. An object whose ETag
// is not r.IfMatch is [ErrChanged], one that must be restored first
// [ErrArchived]. ctx governs the reading too.
func (b *Bucket) Get(ctx context.Context, key string, r Range) (io.ReadCloser, error) {
	if r.Length == 0 {
		return http.NoBody, nil // HTTP cannot express an empty range
	}
	body, _, err := b.get(ctx, key, r, false)
	if err != nil {
		return nil, err
	}
	return body, nil
}

// get asks for the server's checksum as well if proven is true. It is not compared here.
func (b *Bucket) get(ctx context.Context, key string, r Range, proven bool) (*download, *reply, error) {
	ask := &request{
		operation: "GetObject", method: http.MethodGet, key: key, header: make(http.Header), payload: noContent,
	}
	if proven {
		set(ask.header, "X-Amz-Checksum-Mode", "ENABLED")
	}
	switch {
	case r.Length > 0:
		set(ask.header, "Range", fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	case r.Offset > 0:
		set(ask.header, "Range", fmt.Sprintf("bytes=%d-", r.Offset))
	}
	out, err := b.sendIf(ctx, ask, r.IfMatch)
	if err != nil {
		return nil, nil, b.errorf("get", key, b.explain(ctx, err))
	}
	if err := b.checkRange(r, ask.header["Range"] != nil, out); err != nil {
		_ = out.body.Close()
		return nil, nil, b.errorf("get", key, err)
	}
	return &download{
		body: out.body, left: out.size,
		fail: func(err error) error { return b.errorf("read", key, b.explain(ctx, err)) },
	}, out, nil
}

// checkRange holds the answer against the question: a server or a cache that
// ignores ranges would otherwise hand out the wrong bytes.
func (b *Bucket) checkRange(r Range, asked bool, out *reply) error {
	if out.size < 0 {
		return b.wrong(errors.New("the answer has no length"))
	}
	got := out.header.Get("Content-Range")
	if asked && !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", r.Offset)) {
		return b.wrong(fmt.Errorf("asked for bytes from %d, answered %q", r.Offset, got))
	}
	if r.Length > 0 && out.size != r.Length {
		err := fmt.Errorf("%w: %d of the %d bytes at %d", io.ErrUnexpectedEOF, out.size, r.Length, r.Offset)
		if strings.HasSuffix(got, fmt.Sprintf("/%d", r.Offset+out.size)) {
			return err // the object ends there
		}
		return b.wrong(err)
	}
	return nil
}

// A download counts down the bytes that were promised.
type download struct {
	body io.ReadCloser
	left int64
	fail func(error) error
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	d.left -= int64(n)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && d.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, d.fail(fmt.Errorf("%d bytes before the end: %w", d.left, err))
}

func (d *download) Close() error { return d.body.Close() }

// ReaderAt reads an object of size bytes at random, one request for each call
// of ReadAt, which may be made at the same time. ifMatch is as in [Range].
// The reader is bound to ctx, since ReadAt takes none.
func (b *Bucket) ReaderAt(ctx context.Context, key string, size int64, ifMatch string) io.ReaderAt {
	return readerAt(func(p []byte, offset int64) (int, error) {
		if offset < 0 {
			return 0, b.errorf("read", key, fmt.Errorf("negative offset %d", offset))
		}
		want := min(int64(len(p)), max(size-offset, 0))
		body, err := b.Get(ctx, key, Range{Offset: offset, Length: want, IfMatch: ifMatch})
		if err != nil {
			return 0, err
		}
		defer body.Close() //nolint:errcheck // all that was promised has been read, or the error is at hand
		n, err := io.ReadFull(body, p[:want])
		if err == nil && int(want) < len(p) {
			err = io.EOF
		}
		return n, err
	})
}

type readerAt func(p []byte, offset int64) (int, error)

func (f readerAt) ReadAt(p []byte, offset int64) (int, error) { return f(p, offset) }

// List walks the objects whose key begins with prefix and comes after
// startAfter, in the order of their bytes. It ends at the first error, which
// comes with a zero Object.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		in := &s3.ListObjectsV2Input{
			Bucket:       &b.target.Bucket,
			Prefix:       nonEmpty(prefix),
			StartAfter:   nonEmpty(startAfter),
			EncodingType: types.EncodingTypeUrl, // XML has no control characters, keys may
		}
		for {
			out, err := b.api.ListObjectsV2(ctx, in)
			if err != nil {
				yield(Object{}, b.errorf("list", prefix, b.explain(ctx, err)))
				return
			}
			if out.IsTruncated == nil {
				yield(Object{}, b.errorf("list", prefix, b.wrong(errNotWhole)))
				return
			}
			for i := range out.Contents {
				o, err := listed(&out.Contents[i], out.EncodingType)
				if err != nil {
					yield(Object{}, b.errorf("list", prefix, err))
					return
				}
				if !yield(o, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			if aws.ToString(out.NextContinuationToken) == "" {
				yield(Object{}, b.errorf("list", prefix, b.wrong(errors.New("the listing is truncated but has no token for the next page"))))
				return
			}
			in.ContinuationToken = out.NextContinuationToken
		}
	}
}

// listed decodes the key only if the server says that it has encoded it.
func listed(o *types.Object, encoding types.EncodingType) (Object, error) {
	key := aws.ToString(o.Key)
	if encoding == types.EncodingTypeUrl {
		plain, err := url.QueryUnescape(key)
		if err != nil {
			return Object{}, fmt.Errorf("key %q: %w", key, err)
		}
		key = plain
	}
	return Object{
		Key:          key,
		Size:         aws.ToInt64(o.Size),
		ETag:         unquote(o.ETag),
		LastModified: aws.ToTime(o.LastModified),
		StorageClass: cmp.Or(string(o.StorageClass), standard),
	}, nil
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
