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

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// Head describes an object. Archived objects answer too.
func (b *Bucket) Head(ctx context.Context, key string) (Object, error) {
	began := time.Now()
	got, err := b.head(ctx, key, "", 0)
	if err != nil {
		err = b.conn.Explain(ctx, err)
		if errors.Is(err, ErrNotFound) {
			err = cmp.Or(b.gone(ctx, began.Add(-believedFor)), err)
		}
		return Object{}, b.conn.Wrap("head", key, err)
	}
	at, err := got.Modified()
	if err != nil {
		return Object{}, b.conn.Wrap("head", key, b.conn.Wrong(err))
	}
	return Object{
		Key:          key,
		Size:         got.Size,
		ETag:         got.ETag(),
		LastModified: at,
		ContentType:  got.Header.Get("Content-Type"),
		Metadata:     got.Metadata(),
		StorageClass: cmp.Or(got.Header.Get("X-Amz-Storage-Class"), standard),
		SHA256:       got.Header.Get("X-Amz-Checksum-Sha256"),
		VersionID:    got.Header.Get("X-Amz-Version-Id"),
		Restoration:  restoration(got.Header.Get("X-Amz-Restore")),
	}, nil
}

// head asks for an object or, if part is not 0, for one of its parts. The size in the reply is that
// of what was asked for.
func (b *Bucket) head(ctx context.Context, key, ifMatch string, part int) (*wire.Reply, error) {
	r := about("HeadObject", http.MethodHead, key, "")
	if b.can(ability.SHA256) {
		r.Set("X-Amz-Checksum-Mode", "ENABLED")
	}
	if part > 0 {
		r.Query = fmt.Sprintf("partNumber=%d", part)
	}
	return b.sendIf(ctx, r, "", ifMatch)
}

// about is a request about a version of an object; "" is the newest.
func about(operation, method, key, version string) *wire.Request {
	r := wire.NewRequest(operation, method, key)
	if version != "" {
		r.Query = ofVersion(version)
	}
	return r
}

func ofVersion(id string) string { return "versionId=" + url.QueryEscape(id) }

// sendIf reads a version of an object that has an ETag; "" is any. A store that compares the condition with
// another ETag than it shows, as some do of what was uploaded in parts, is asked without: then
// the ETag of the answer decides.
func (b *Bucket) sendIf(ctx context.Context, r *wire.Request, version, etag string) (*wire.Reply, error) {
	if etag != "" && b.can(ability.ReadIfMatch) {
		r.Set("If-Match", wire.Quoted(etag))
		got, err := b.conn.Send(ctx, r)
		switch {
		case err == nil && got.ETag() == etag:
			b.learn(ability.ReadIfMatch, nil)
			return got, nil
		case err == nil: // the condition went unheeded, or the answer is another request's
			return got, b.other(ctx, r.Key, version, etag, got)
		case !errors.Is(b.conn.Explain(ctx, err), ErrChanged) || !b.still(ctx, r.Key, version, etag):
			return got, err
		}
		b.learn(ability.ReadIfMatch, b.conn.Explain(ctx, err))
		delete(r.Header, "If-Match")
	}
	got, err := b.conn.Send(ctx, r)
	if err == nil && etag != "" && got.ETag() != etag {
		return nil, b.other(ctx, r.Key, version, etag, got)
	}
	return got, err
}

// other is the error of an answer with another ETag than was asked for: the object has changed,
// unless another look says that it has not.
func (b *Bucket) other(ctx context.Context, key, version, etag string, got *wire.Reply) error {
	if got.Body != nil {
		_ = got.Body.Close() // nobody reads it
	}
	if b.still(ctx, key, version, etag) {
		return b.conn.Wrong(fmt.Errorf("asked for the object with ETag %s, answered with that of ETag %s", etag, got.ETag()))
	}
	return fmt.Errorf("%w: its ETag is %s, and not %s", ErrChanged, got.ETag(), etag)
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
func (b *Bucket) get(ctx context.Context, key string, r Range, proven bool) (*download, *wire.Reply, error) {
	ask := about("GetObject", http.MethodGet, key, r.Version)
	if proven {
		ask.Set("X-Amz-Checksum-Mode", "ENABLED")
	}
	switch {
	case r.Length > 0:
		ask.Set("Range", fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	case r.Offset > 0:
		ask.Set("Range", fmt.Sprintf("bytes=%d-", r.Offset))
	}
	out, err := b.sendIf(ctx, ask, r.Version, r.IfMatch)
	if err != nil {
		return nil, nil, b.conn.Wrap("get", key, b.conn.Explain(ctx, err))
	}
	if err := b.checkRange(r, ask.Header["Range"] != nil, out); err != nil {
		_ = out.Body.Close()
		return nil, nil, b.conn.Wrap("get", key, err)
	}
	return &download{
		body: out.Body, left: out.Size,
		fail: func(err error) error { return b.conn.Wrap("read", key, b.conn.Explain(ctx, err)) },
	}, out, nil
}

// checkRange holds the answer against the question: a server or a cache that
// ignores ranges would otherwise hand out the wrong bytes.
func (b *Bucket) checkRange(r Range, asked bool, out *wire.Reply) error {
	if out.Size < 0 {
		return b.conn.Wrong(errors.New("the answer has no length"))
	}
	got := out.Header.Get("Content-Range")
	if asked && !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", r.Offset)) {
		return b.conn.Wrong(fmt.Errorf("asked for bytes from %d, answered %q", r.Offset, got))
	}
	if r.Length > 0 && out.Size != r.Length {
		err := fmt.Errorf("%w: %d of the %d bytes at %d", io.ErrUnexpectedEOF, out.Size, r.Length, r.Offset)
		if strings.HasSuffix(got, fmt.Sprintf("/%d", r.Offset+out.Size)) {
			return err // the object ends there
		}
		return b.conn.Wrong(err)
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
			return 0, b.conn.Wrap("read", key, fmt.Errorf("negative offset %d", offset))
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
	return b.listing(ctx, s3.ListObjectsV2Input{Prefix: nonEmpty(prefix), StartAfter: nonEmpty(startAfter)})
}

// listing walks what a listing has, page by page: objects, and names before a delimiter without
// any more about them. It ends at the first error, which comes with a zero Object.
func (b *Bucket) listing(ctx context.Context, in s3.ListObjectsV2Input) iter.Seq2[Object, error] {
	in.Bucket, in.EncodingType = &b.conn.Target.Bucket, types.EncodingTypeUrl // XML has no control characters, keys may
	return func(yield func(Object, error) bool) {
		each := func(o Object, err error) bool {
			if err != nil {
				yield(Object{}, b.conn.Wrap("list", aws.ToString(in.Prefix), err))
				return false
			}
			return yield(o, nil)
		}
		for {
			out, err := b.page(ctx, &in)
			if err != nil {
				each(Object{}, err)
				return
			}
			for i := range out.CommonPrefixes {
				name, err := decoded(aws.ToString(out.CommonPrefixes[i].Prefix), out.EncodingType)
				if !each(Object{Key: name}, err) {
					return
				}
			}
			for i := range out.Contents {
				if !each(listed(&out.Contents[i], out.EncodingType)) {
					return
				}
			}
			if !*out.IsTruncated {
				return
			}
			if in.ContinuationToken = out.NextContinuationToken; aws.ToString(in.ContinuationToken) == "" {
				each(Object{}, b.conn.Wrong(errors.New("the listing is truncated but has no token for the next page")))
				return
			}
		}
	}
}

func (b *Bucket) page(ctx context.Context, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output, error) {
	out, err := b.conn.API.ListObjectsV2(ctx, in)
	switch {
	case err != nil:
		return nil, b.conn.Explain(ctx, err)
	case out.IsTruncated == nil:
		return nil, b.conn.Wrong(errNotWhole)
	}
	return out, nil
}

// listed is an object of a listing.
func listed(o *types.Object, encoding types.EncodingType) (Object, error) {
	key, err := decoded(aws.ToString(o.Key), encoding)
	if err != nil {
		return Object{}, fmt.Errorf("key %q: %w", aws.ToString(o.Key), err)
	}
	return Object{
		Key:          key,
		Size:         aws.ToInt64(o.Size),
		ETag:         wire.Unquoted(aws.ToString(o.ETag)),
		LastModified: aws.ToTime(o.LastModified),
		StorageClass: cmp.Or(string(o.StorageClass), standard),
	}, nil
}

// decoded is a name as it was, if the server says that it has encoded it.
func decoded(name string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return name, nil
	}
	return url.QueryUnescape(name)
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
