package storage

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Stream is content of a known length that is only known as it is produced, from
// its beginning to its end.
type Stream struct {
	Size     int64 // bytes in all; a producer that ends earlier or goes on is an error
	PartSize int64 // bytes of every part but the last, 5 MiB at least for S3

	// From produces the content from an offset on: from 0, or with Resume from any
	// multiple of PartSize up to Offset; and again from that of a part that did not get
	// through, or to which the content is rewound. What it returns is read to the end
	// of the stream, by one goroutine at a time, and closed before the next call.
	From func(ctx context.Context, offset int64) (io.ReadCloser, error)

	Resume string                                     // ID of an upload begun earlier, "" for none
	Offset int64                                      // with Resume: what Sent was last called with, or less
	SaveID func(ctx context.Context, id string) error // keeps the ID of a new upload for Resume; nil if nobody will

	// Sent is called with how far the server has the content, after each part: where the next
	// one begins or, at the end, Size. The offset falls if the content is rewound or a
	// new upload is begun. Its error ends the upload, which stays for Resume. It may be
	// nil.
	Sent func(ctx context.Context, offset int64) error
}

// A RewindError is for a producer to return from Read or [Stream.From] when it finds
// that bytes which were sent already are not good: from Offset on the content is
// produced again, and its parts are replaced. It does not unwrap to its cause, which
// may be io.EOF.
type RewindError struct {
	Offset int64 // a multiple of [Stream.PartSize], and not in front of what is being produced
	Err    error
}

// Error says from where on, and why.
func (e *RewindError) Error() string { return fmt.Sprintf("again from byte %d: %v", e.Offset, e.Err) }

// PutStream writes an object in parts, one after the other as they are produced,
// without keeping a part here. Of up it uses neither size nor digests.
//
// Over TLS the server checks each part by a SHA-256 that follows the bytes, keeps it,
// and has to name it. Where it does not know such checksums, over plain HTTP, and
// under [ChecksumETag], its ETag has to be the MD5 of the bytes. What differs is
// [ErrDigest], and becomes no object.
//
// A part that fails is produced and sent again, as in [Bucket.PutParts]. With
// s.Resume it goes on at s.Offset, or further in front if the server has less, and
// with a new upload if it has none of it. On an error that waiting cannot cure the
// upload is aborted; on others it stays for Resume, if s.SaveID kept its ID.
func (b *Bucket) PutStream(ctx context.Context, key string, up Upload, s Stream) (Object, error) {
	how := byETag
	if b.can(ability.Trailers) && b.can(ability.PartSHA256) && b.conn.Endpoint.Scheme == "https" {
		how = byTrailer
	}
	o, err := b.putStream(ctx, key, up, s, how)
	if errors.Is(err, errNoTrailers) { // and so the upload is aborted
		var again error
		if o, again = b.putStream(ctx, key, up, s, byETag); again == nil {
			b.learn(ability.Trailers, err)
		}
		err = again
	}
	if err != nil {
		return Object{}, b.conn.Wrap("put", key, err)
	}
	return o, nil
}

func (b *Bucket) putStream(ctx context.Context, key string, up Upload, s Stream, how evidence) (Object, error) {
	up.Size, up.SHA256, up.MD5 = s.Size, [32]byte{}, [16]byte{}
	if err := up.check(); err != nil {
		return Object{}, err
	}
	if s.Size == 0 {
		up.SHA256, up.MD5 = sha256.Sum256(nil), md5.Sum(nil)
		return b.put(ctx, key, http.NoBody, up)
	}
	p := Parts{Size: s.PartSize, Resume: s.Resume, SaveID: s.SaveID}
	if s.From == nil || s.PartSize <= 0 {
		return Object{}, errors.New("a stream needs a producer and a size of parts")
	}
	if _, err := p.count(s.Size); err != nil {
		return Object{}, err
	}
	u := &upload{bucket: b, key: key, up: up, parts: p, proof: how, done: map[int32]types.CompletedPart{}, sent: map[int32][32]byte{}}
	w := &production{upload: u, stream: s}
	offset, err := w.resumed(ctx)
	if err != nil {
		return Object{}, err
	}
	return u.finish(ctx, func() error { return w.bring(ctx, offset) })
}

// A production is a stream on its way.
type production struct {
	*upload
	stream Stream
	src    io.ReadCloser // at the part that is to be sent; nil if it has to be opened
}

// resumed is how far the server has the upload that is to be taken up.
func (w *production) resumed(ctx context.Context) (int64, error) {
	if w.stream.Resume == "" {
		return 0, nil
	}
	err := w.learn(ctx)
	if err != nil && !errors.Is(err, wire.ErrNoUpload) {
		return 0, fmt.Errorf("upload %s: %w", w.stream.Resume, err)
	}
	w.id, w.kept = w.stream.Resume, true
	first, begun := w.done[1]
	switch {
	case !begun, w.proof == byETag && first.ChecksumSHA256 != nil, // which then all parts would need
		first.ChecksumSHA256 == nil && !w.bucket.can(ability.ETagMD5): // and nobody knows what the parts have to be
		w.abort(ctx)
		clear(w.done)
		w.id, w.kept = "", false
		return 0, nil
	case first.ChecksumSHA256 == nil:
		w.proof = byETag
	}
	offset := int64(0)
	for number := int32(1); ; number++ {
		_, ok := w.done[number]
		next := offset + w.part(number).length
		if !ok || next > w.stream.Offset {
			return offset, nil
		}
		offset = next
	}
}

// bring sends the parts from an offset on, and those that the producer takes back
// once more. All that is in done behind the offset is replaced on the way.
func (w *production) bring(ctx context.Context, offset int64) error {
	defer w.close()
	for offset < w.stream.Size && ctx.Err() == nil { // a producer may rewind without end
		p := w.part(int32(offset/w.stream.PartSize) + 1) //nolint:gosec // one of at most maxParts
		err := w.send(ctx, p, w.produce)
		var rewind *RewindError
		switch {
		case errors.As(err, &rewind):
			if rewind.Offset < 0 || rewind.Offset > offset || rewind.Offset%w.stream.PartSize != 0 {
				return fmt.Errorf("no part to resume from: %w", err)
			}
			offset = rewind.Offset
		case err != nil:
			return err
		default:
			offset += p.length
		}
		if w.stream.Sent == nil {
			continue
		}
		// If we die here, the parts from the last offset on are sent again.
		if err := w.stream.Sent(ctx, offset); err != nil {
			w.ended = true
			return err
		}
	}
	return ctx.Err()
}

// produce sends the part at which the source stands, and opens it there if need be.
func (w *production) produce(ctx context.Context, p part) (types.CompletedPart, error) {
	if w.src == nil {
		src, err := w.stream.From(ctx, p.offset)
		if err != nil {
			return types.CompletedPart{}, err
		}
		w.src = src
	}
	done, err := w.bucket.uploadPart(ctx, p, w.src)
	if err == nil && p.offset+p.length == w.stream.Size {
		err = atEnd(w.src)
	}
	if err != nil {
		w.close()
	}
	return done, err
}

func (w *production) close() {
	if w.src != nil {
		_ = w.src.Close() // what was read of it has been checked
		w.src = nil
	}
}

// atEnd makes sure that the source has no more than was announced.
func atEnd(src io.Reader) error {
	n, err := io.ReadFull(src, make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("the content continues after its end")
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("body: %w", err)
}

// refused reports whether a server answered as those do that do not know
// trailing checksums. After the first part a server cannot mean it, and too much
// would be lost by beginning again.
func (p part) refused(err error) bool {
	code, _ := wire.Words(err)
	if p.proof != byTrailer || p.number > 1 || code == "" {
		return false
	}
	k, _ := fault.OfS3("UploadPart", code, 0)
	return k == fault.Refused || code == "XAmzContentSHA256Mismatch"
}
