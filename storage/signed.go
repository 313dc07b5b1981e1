package storage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// What follows is for uploads whose parts a program without our key sends, such as a page in
// a browser: it gets a signed URL for each part.

// ErrIncomplete says that the parts of an upload are not those of the object.
var ErrIncomplete = errors.New("the parts that were uploaded do not make up the object")

// signedPart is the size of the smallest part, in bytes.
const signedPart = 16 * mebibyte

// MaxObject is how many bytes an object may have at most.
const MaxObject = 5 << 40

// SignedPartSize is the size in bytes of the parts but the last in which a program sends an
// object of a size. It depends on nothing else, so that an upload can be resumed anywhere.
func SignedPartSize(size int64) int64 {
	part := (size + maxParts - 1) / maxParts
	return max((part+mebibyte-1)/mebibyte*mebibyte, signedPart)
}

// SentPart is a part that the server has.
type SentPart struct {
	Number int
	Size   int64  // bytes
	SHA256 string // base64; "" if the server keeps none
	etag   string // with its quotes
}

// BeginUpload begins an upload in parts. The server checks and keeps the SHA-256 of each part, if it can.
// The upload stays until it is completed or aborted.
func (b *Bucket) BeginUpload(ctx context.Context, key, contentType string) (OpenUpload, error) {
	up := Upload{ContentType: contentType}
	if err := up.check(); err != nil {
		return OpenUpload{}, b.conn.Wrap("begin the upload of", key, err)
	}
	u := &upload{bucket: b, key: key, up: up, proof: byETag}
	if b.can(ability.PartSHA256) {
		u.proof = byTrailer
	}
	if err := u.create(ctx); err != nil {
		return OpenUpload{}, b.conn.Wrap("begin the upload of", key, err)
	}
	return OpenUpload{Key: key, ID: u.id}, nil
}

// SentParts returns the parts that the server has, in their order. An upload that is not of
// this bucket and key, or no longer there, is [ErrNotFound].
func (b *Bucket) SentParts(ctx context.Context, u OpenUpload) ([]SentPart, error) {
	var parts []SentPart
	for p, err := range b.parts(ctx, u.Key, u.ID) {
		if err != nil {
			return nil, b.conn.Wrap("list the parts of", u.Key, noUpload(err))
		}
		parts = append(parts, SentPart{int(aws.ToInt32(p.PartNumber)), aws.ToInt64(p.Size), aws.ToString(p.ChecksumSHA256), aws.ToString(p.ETag)})
	}
	return parts, nil
}

// noUpload makes [ErrNotFound] of the error that an upload is not there.
func noUpload(err error) error {
	if errors.Is(err, wire.ErrNoUpload) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// PartURL is what a program needs to send a part: it is good for one part of a length and a
// SHA-256, which the server checks if it can.
type PartURL struct {
	URL    string
	Header http.Header // that the program has to send
}

// SignPart signs the PUT of a part for some time. It sends nothing. The URL leads to the
// endpoint of this bucket's target, which the program must reach under that name.
func (b *Bucket) SignPart(ctx context.Context, u OpenUpload, number int, length int64, sum [32]byte, valid time.Duration) (PartURL, error) {
	r := wire.NewRequest("UploadPart", http.MethodPut, u.Key)
	r.Query = "partNumber=" + strconv.Itoa(number) + "&uploadId=" + wire.EscapeKey(u.ID)
	if b.can(ability.PartSHA256) {
		r.Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
	}
	url, err := b.conn.Presign(ctx, r, length, valid)
	if err != nil {
		return PartURL{}, b.conn.Wrap("sign a part of", u.Key, err)
	}
	return PartURL{url, r.Header}, nil
}

// CompleteUpload makes an object of a size of the parts that were sent. It fails with
// [ErrIncomplete] if one is missing, or is not as long as it should be; with [ErrChanged] if
// there is another object of the key, unless it may be replaced; and with [ErrNotFound] as
// [Bucket.SentParts] does.
func (b *Bucket) CompleteUpload(ctx context.Context, open OpenUpload, size int64, replace bool) (Object, error) {
	u, err := b.sentUpload(ctx, open, size)
	if err != nil {
		return Object{}, err
	}
	u.onlyNew = !replace
	o, err := u.complete(ctx)
	if err != nil {
		return Object{}, b.conn.Wrap("complete the upload of", open.Key, noUpload(err))
	}
	return o, nil
}

// TryCreateOnly finds out whether the store heeds the condition of [CreateOnly]: it completes an
// upload under a key that has an object, which may be replaced. Errors are those of
// [Bucket.CompleteUpload] and of the service; a store without the condition is none.
func (b *Bucket) TryCreateOnly(ctx context.Context, open OpenUpload, size int64) error {
	u, err := b.sentUpload(ctx, open, size)
	if err != nil {
		return err
	}
	u.onlyNew, u.blind = true, true
	_, err = u.complete(ctx)
	switch {
	case err == nil:
		b.learn(ability.CreateOnly, errors.New("it replaced an object"))
	case errors.Is(err, ErrChanged):
		b.learn(ability.CreateOnly, nil)
	case wire.OtherWay(err):
		b.learn(ability.CreateOnly, err)
	default:
		return b.conn.Wrap("complete the upload of", open.Key, noUpload(err))
	}
	return nil
}

// sentUpload is an upload whose parts are all there.
func (b *Bucket) sentUpload(ctx context.Context, open OpenUpload, size int64) (*upload, error) {
	sent, err := b.SentParts(ctx, open)
	if err != nil {
		return nil, err
	}
	u := &upload{
		bucket: b, key: open.Key, up: Upload{Size: size}, parts: Parts{Size: SignedPartSize(size)}, proof: byTrailer,
		id: open.ID, done: map[int32]types.CompletedPart{},
	}
	count, err := u.parts.count(size)
	if err != nil {
		return nil, b.conn.Wrap("complete the upload of", open.Key, fmt.Errorf("%w: %w", ErrIncomplete, err))
	}
	for i, p := range sent {
		number := int32(i + 1)
		if p.Number != i+1 || number > count || p.Size != u.part(number).length {
			return nil, b.conn.Wrap("complete the upload of", open.Key, fmt.Errorf("%w: part %d has %d bytes", ErrIncomplete, p.Number, p.Size))
		}
		u.done[number] = types.CompletedPart{PartNumber: &number, ETag: aws.String(p.etag), ChecksumSHA256: nonEmpty(p.SHA256)}
	}
	if len(sent) < int(count) {
		return nil, b.conn.Wrap("complete the upload of", open.Key, fmt.Errorf("%w: part %d of %d is missing", ErrIncomplete, len(sent)+1, count))
	}
	return u, nil
}
