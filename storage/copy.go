package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Source is an object to copy, or a range of one.
type Source struct {
	Bucket  *Bucket
	Key     string
	IfMatch string // unquoted ETag the object must still have; "" accepts any
	Version string // ID of the version to copy; "" is the newest

	Range  bool  // only so many bytes as the copy has, from Offset on
	Offset int64 // bytes
}

// Copy writes up into b from an object elsewhere; content type, metadata and
// storage class are those of up and of b, not the source's. Between buckets of
// one endpoint and one access key the server makes the copy; if it cannot, or
// between endpoints, the bytes come through here. Large objects go in parts as in
// [Bucket.PutParts], where p.Open is not used. A range goes in parts wherever the
// server copies it, in a single one if it is small: it has no other way. A part
// that the server copied, and whose checksum it does not know, comes through here too:
// there is nothing that could be compared with p.
//
// A copy that the server says has another SHA-256 than up is deleted again, and
// the error is [ErrDigest].
func (b *Bucket) Copy(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	o, err := b.copy(ctx, src, key, up, p)
	if err != nil {
		return Object{}, b.conn.Wrap(fmt.Sprintf("copy %s/%s to", src.Bucket.conn.Name(), src.Key), key, err)
	}
	return o, nil
}

func (b *Bucket) copy(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, err
	}
	if !b.Reaches(src.Bucket) {
		return b.copyThrough(ctx, src, key, up, p)
	}
	switch {
	case src.Range && up.Size == 0:
		return b.copyThrough(ctx, src, key, up, p)
	case src.Range && !src.inParts(up, p):
		return b.copyInParts(ctx, src, key, up, up.asPart())
	case src.Range, up.Size > b.options.CopyAbove:
		return b.copyInParts(ctx, src, key, up, p)
	}
	o, err := b.CopyWhole(ctx, src, key, up)
	if !unable(err) {
		return o, err
	}
	o, again := b.copyThrough(ctx, src, key, up, p)
	if again == nil && errors.Is(err, ErrUnsupported) && inWords(err) {
		b.learn(ability.ServerCopy, err)
	}
	return o, again
}

// inWords reports whether an error is what the server said, and not what we made of it.
func inWords(err error) bool {
	code, _ := wire.Words(err)
	return code != ""
}

// asPart has the content go as a single part.
func (up Upload) asPart() Parts {
	p := Parts{Size: up.Size}
	if known(up.SHA256[:]) {
		p.SHA256 = [][32]byte{up.SHA256}
	}
	if known(up.MD5[:]) {
		p.MD5 = [][16]byte{up.MD5}
	}
	return p
}

// inParts reports whether the content is to go in parts.
func (s Source) inParts(up Upload, p Parts) bool {
	return PartSize(up.Size) > 0 || s.Range && p.Size > 0
}

// Reaches reports whether requests to b may name objects of src: both are at one endpoint, with
// one key.
func (b *Bucket) Reaches(src *Bucket) bool {
	return *b.conn.Endpoint == *src.conn.Endpoint && b.conn.Target.Credentials().Identity() == src.conn.Target.Credentials().Identity()
}

// unable reports whether the bytes should be tried by way of this process. If it
// is the source or the target that is closed to us, that will say so again.
func unable(err error) bool { return wire.OtherWay(err) || errors.Is(err, ErrDenied) }

// copyInParts stays with one upload whichever way its parts come, so that what
// has been brought by either way counts when it is resumed. A server that does not compute a
// checksum of what it copies is asked for none.
func (b *Bucket) copyInParts(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	how := byDigest
	if !b.can(ability.CopiedSHA256) || !b.can(ability.PartSHA256) {
		how = byETag
	}
	through := atomic.Bool{}
	through.Store(!b.can(ability.ServerCopy) || !b.can(ability.CopyPart) || src.IfMatch != "" && !b.can(ability.CopyIfMatch))
	return b.inParts(ctx, key, up, p, ability.CopiedSHA256, how, func(ctx context.Context, part part) (types.CompletedPart, error) {
		if through.Load() {
			return b.sendPart(ctx, part, src.open)
		}
		done, err := b.copyPart(ctx, src, part)
		if wire.OtherWay(err) && !errors.Is(err, ErrUnsupported) && part.proof == byDigest && part.checksums() {
			return done, err // the upload begins again, without checksums
		}
		if !unable(err) {
			return done, err
		}
		through.Store(true)
		sent, again := b.sendPart(ctx, part, src.open)
		if again == nil && wire.OtherWay(err) && inWords(err) {
			b.learn(ability.CopyPart, err)
		}
		return sent, again
	})
}

// copyThrough reads the source and writes it here, without keeping it.
func (b *Bucket) copyThrough(ctx context.Context, src Source, key string, up Upload, p Parts) (Object, error) {
	if src.inParts(up, p) {
		return b.inParts(ctx, key, up, p, ability.PartSHA256, b.ofParts(), func(ctx context.Context, part part) (types.CompletedPart, error) {
			return b.sendPart(ctx, part, src.open)
		})
	}
	var o Object
	body := io.NopCloser(http.NoBody)
	defer func() { _ = body.Close() }() // what was read of it has been checked
	err := b.retried(ctx, func() (err error) {
		o, err = b.putFrom(ctx, key, up, func() (io.Reader, error) {
			again, err := src.open(ctx, 0, up.Size)
			if err == nil {
				_ = body.Close() // nobody reads the first any more
				body = again
			}
			return again, err
		})
		return err
	})
	return o, err
}

func (s Source) open(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	return s.Bucket.Get(ctx, s.Key, Range{Offset: s.Offset + offset, Length: length, IfMatch: s.IfMatch, Version: s.Version})
}

func (s Source) path() string {
	path := s.Bucket.conn.Target.Bucket + "/" + wire.EscapeKey(s.Key)
	if s.Version != "" {
		path += "?" + ofVersion(s.Version)
	}
	return path
}

// CopyWhole has the server copy an object by one request, and tries no other way than [Bucket.Copy]'s
// first: what the server cannot do is [ErrUnsupported]. It is asked for the checksum of the copy,
// if it can give one.
func (b *Bucket) CopyWhole(ctx context.Context, src Source, key string, up Upload) (Object, error) {
	if !b.can(ability.ServerCopy) || src.IfMatch != "" && !b.can(ability.CopyIfMatch) {
		return Object{}, ErrUnsupported
	}
	up, sum := b.fits(up), b.can(ability.SHA256)
	o, err := b.copyOnce(ctx, src, key, up, sum)
	if err == nil || !wire.OtherWay(err) {
		return o, err
	}
	err = b.around(ability.SHA256, up, sum, err, func(up Upload, sum bool) error {
		made, err := b.copyOnce(ctx, src, key, up, sum)
		if err == nil {
			o = made
		}
		return err
	})
	return o, err
}

func (b *Bucket) copyOnce(ctx context.Context, src Source, key string, up Upload, sum bool) (Object, error) {
	r := wire.NewRequest("CopyObject", http.MethodPut, key)
	b.describe(r, up)
	r.Set("X-Amz-Copy-Source", src.path())
	r.Set("X-Amz-Copy-Source-If-Match", wire.Quoted(src.IfMatch))
	r.Set("X-Amz-Metadata-Directive", "REPLACE")
	if sum {
		r.Set("X-Amz-Checksum-Algorithm", "SHA256")
	}
	out, err := b.conn.Send(ctx, r)
	if err != nil {
		return Object{}, b.notCopied(ctx, src, b.conn.Explain(ctx, err))
	}
	made, err := out.Copied()
	if err != nil {
		return Object{}, b.conn.Wrong(err)
	}
	b.learn(ability.ServerCopy, nil)
	if src.IfMatch != "" {
		b.learn(ability.CopyIfMatch, nil)
	}
	o, err := b.kept(ctx, key, up, out.Header, made.ETag, made.ChecksumSHA256)
	if err != nil {
		return Object{}, err
	}
	if made.ETag != "" {
		o.LastModified = made.LastModified
	}
	if strings.Contains(o.SHA256, "-") { // that of the source's parts, which its store has kept
		o.SHA256 = ""
	}
	err = differs(o.SHA256, up.SHA256)
	proved := o.SHA256 != "" || known(up.MD5[:]) && o.ETag == ExpectedETag(up.MD5, nil)
	if err == nil && !proved && known(up.SHA256[:]) && !up.Later {
		err = b.readBack(ctx, key, Range{Length: -1}, up.SHA256)
	}
	if errors.Is(err, ErrDigest) {
		return Object{}, b.discard(ctx, key, err)
	}
	return o, err
}

// lookedAt describes an object of whose making the answer said too little.
func (b *Bucket) lookedAt(ctx context.Context, key string, size int64) (Object, error) {
	b.store.Detour()
	o, err := b.Head(ctx, key)
	if errors.Is(err, ErrNotFound) || err == nil && o.Size != size {
		return Object{}, b.conn.Wrong(fmt.Errorf("the object has %d bytes, expected %d: %w", o.Size, size, cmp.Or(err, errOther)))
	}
	return o, err
}

// notCopied finds out whether a store refused a copy for the condition alone: some keep another
// ETag of what was uploaded in parts than they compare.
func (b *Bucket) notCopied(ctx context.Context, src Source, err error) error {
	if src.IfMatch == "" || !errors.Is(err, ErrChanged) || !src.Bucket.still(ctx, src.Key, src.Version, src.IfMatch) {
		return err
	}
	b.learn(ability.CopyIfMatch, err)
	return fmt.Errorf("%w: a copy under a condition: %v", ErrUnsupported, err) //nolint:errorlint // it is not changed
}

// still reports whether a version of an object has an ETag, without a condition.
func (b *Bucket) still(ctx context.Context, key, version, etag string) bool {
	got, err := b.conn.Send(ctx, about("HeadObject", http.MethodHead, key, version))
	b.store.Detour()
	return err == nil && got.ETag() == etag
}

// differs compares what both sides know.
func differs(checksum string, want [32]byte) error {
	if expected := ExpectedChecksum(want, nil); checksum != "" && known(want[:]) && checksum != expected {
		return fmt.Errorf("%w: the copy has SHA-256 %s, expected %s", ErrDigest, checksum, expected)
	}
	return nil
}

// alike compares a copied part with what is known of it, and tells whether that proves it.
func (b *Bucket) alike(r *types.CopyPartResult, p part) (proved bool, err error) {
	checksum, etag := aws.ToString(r.ChecksumSHA256), wire.Unquoted(aws.ToString(r.ETag))
	switch {
	case checksum != "":
		return true, differs(checksum, p.sum)
	case !known(p.md5[:]):
		return !known(p.sum[:]), nil // there is nothing to compare with
	case etag == ExpectedETag(p.md5, nil):
		return true, nil
	case b.conn.Target.Checksum == ChecksumETag:
		return false, fmt.Errorf("%w: the copy has ETag %s, expected %x", ErrDigest, etag, p.md5)
	}
	return false, nil
}

func (b *Bucket) copyPart(ctx context.Context, src Source, p part) (types.CompletedPart, error) {
	out, err := b.conn.Work.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
		Bucket: &b.conn.Target.Bucket, Key: &p.key, UploadId: &p.id, PartNumber: &p.number,
		CopySource:        aws.String(src.path()),
		CopySourceIfMatch: nonEmpty(wire.Quoted(src.IfMatch)),
		CopySourceRange:   aws.String(fmt.Sprintf("bytes=%d-%d", src.Offset+p.offset, src.Offset+p.offset+p.length-1)),
	})
	if err != nil {
		return types.CompletedPart{}, b.notCopied(ctx, src, b.conn.Explain(ctx, err))
	}
	r := out.CopyPartResult
	if r == nil || aws.ToString(r.ETag) == "" {
		return types.CompletedPart{}, fmt.Errorf("%w: copied part: the answer has no ETag", ErrUnsupported)
	}
	b.learn(ability.CopyPart, nil)
	proved, err := b.alike(r, p)
	if err != nil {
		// Some servers report the checksum of the whole source here. If it is the
		// source that is wrong, reading it will tell.
		return types.CompletedPart{}, fmt.Errorf("%w: copied part: %w", ErrUnsupported, err)
	}
	if p.checksums() {
		b.learnKept(ability.CopiedSHA256, aws.ToString(r.ChecksumSHA256))
	}
	if !proved {
		p.unproven.Store(true)
	}
	return types.CompletedPart{PartNumber: &p.number, ETag: r.ETag, ChecksumSHA256: r.ChecksumSHA256}, nil
}
