package storage

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// Parts says how an object is uploaded piece by piece.
type Parts struct {
	Size   int64      // bytes of every part but the last; 0 is [PartSize]'s, or 64 MiB
	SHA256 [][32]byte // of each part in order; nil if not known, and then not checked
	MD5    [][16]byte // likewise; used where the server keeps no SHA-256

	// Open reads length bytes at offset of the content. It is called for several
	// parts at a time, and again for a part that did not get through.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)

	Resume string                                     // ID of an upload begun earlier, "" for none
	SaveID func(ctx context.Context, id string) error // keeps the ID of a new upload for Resume; nil if nobody will

	// Sent is called for each part that the server has, those that it had before first;
	// nil if nobody wants to know. It may be called for several parts at a time,
	// and must be quick.
	Sent func(bytes int64, before bool)
}

// PutParts writes an object of more than [PartSize] allows in one request.
// A part is sent from Open as it comes, several at a time, each checked as in
// [Bucket.Put] and tried again if it fails.
//
// With p.Resume, parts that the server has already and whose checksum is right
// are not sent again; an upload that it no longer knows starts again, unless the
// object itself is there and right. On an error that waiting cannot cure the
// upload is aborted; on others it stays for Resume, if p.SaveID kept its ID.
func (b *Bucket) PutParts(ctx context.Context, key string, up Upload, p Parts) (Object, error) {
	if p.Open == nil {
		return Object{}, b.conn.Wrap("put", key, errors.New("nothing to open parts with"))
	}
	o, err := b.inParts(ctx, key, up, p, ability.PartSHA256, b.ofParts(), func(ctx context.Context, part part) (types.CompletedPart, error) {
		return b.sendPart(ctx, part, p.Open)
	})
	if err != nil {
		return Object{}, b.conn.Wrap("put", key, err)
	}
	return o, nil
}

// A part of an upload.
type part struct {
	*upload
	number         int32 // from 1
	offset, length int64
	sum            [32]byte // zero: not known
	md5            [16]byte // likewise
}

// Evidence is what tells that the server has the bytes that it was sent.
type evidence int

const (
	byDigest  evidence = iota // those that are known beforehand
	byTrailer                 // a checksum that follows the bytes
	byETag                    // the MD5 of the bytes
)

// A transfer brings one part to the server, from here or from another object.
type transfer func(ctx context.Context, p part) (types.CompletedPart, error)

// An upload in parts, and what is known of its parts on the server.
type upload struct {
	bucket  *Bucket
	key     string
	up      Upload
	parts   Parts
	proof   evidence
	id      string // "" before it is begun
	kept    bool   // the ID is in safe hands, so that the upload can be resumed
	onlyNew bool   // no other object may be replaced
	blind   bool   // likewise, and nobody looks for one first
	ended   bool   // by the caller's word, which is nothing against the upload

	unproven atomic.Bool // nothing that the server says proves one of the parts
	mixed    bool        // of an earlier upload, whose parts were sent in the other way

	mu   sync.Mutex
	done map[int32]types.CompletedPart
	sent map[int32][32]byte // the SHA-256 of those that were sent from here
}

// count is the number of parts that size bytes make.
func (p Parts) count(size int64) (int32, error) {
	n := (size + p.Size - 1) / p.Size
	switch {
	case p.Size < 0 || n < 1 || n > maxParts:
		return 0, fmt.Errorf("%d bytes cannot be split into parts of %d", size, p.Size)
	case p.SHA256 != nil && int64(len(p.SHA256)) != n:
		return 0, fmt.Errorf("%d digests for %d parts", len(p.SHA256), n)
	case p.MD5 != nil && int64(len(p.MD5)) != n:
		return 0, fmt.Errorf("%d MD5 digests for %d parts", len(p.MD5), n)
	}
	return int32(n), nil // at most maxParts
}

// ofParts is how parts that are sent from here are proved.
func (b *Bucket) ofParts() evidence {
	if b.can(ability.PartSHA256) {
		return byDigest
	}
	return byETag
}

// inParts makes an object of parts that send brings. If the server does not take them with
// checksums, it begins again without, and remembers that of the way.
func (b *Bucket) inParts(ctx context.Context, key string, up Upload, p Parts, way ability.Way, how evidence, send transfer) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, err
	}
	o, err := b.inPartsOnce(ctx, key, up, p, how, send)
	if err == nil || !wire.OtherWay(err) || ctx.Err() != nil || how != byDigest || p.SHA256 == nil || !b.conn.Target.Checksum.Measured() {
		return o, err
	}
	p.Resume = "" // it was aborted
	o, again := b.inPartsOnce(ctx, key, up, p, byETag, send)
	if again == nil {
		b.learn(way, err)
		return o, nil
	}
	if wire.OtherWay(again) {
		return Object{}, err
	}
	return Object{}, again // which is not about the way: the source may be gone
}

func (b *Bucket) inPartsOnce(ctx context.Context, key string, up Upload, p Parts, how evidence, send transfer) (Object, error) {
	p.Size = cmp.Or(p.Size, PartSize(up.Size), smallestPart)
	count, err := p.count(up.Size)
	if err != nil {
		return Object{}, err
	}
	u := &upload{bucket: b, key: key, up: up, parts: p, proof: how, done: map[int32]types.CompletedPart{}, sent: map[int32][32]byte{}}
	if o, err := u.resume(ctx); err != nil || o.Key != "" {
		return o, err
	}
	return u.finish(ctx, func() error { return u.sendMissing(ctx, count, send) })
}

// finish begins the upload unless it was, and makes an object of the parts that send
// brings. If that fails, the upload stays only where it can be resumed.
func (u *upload) finish(ctx context.Context, send func() error) (Object, error) {
	if u.id == "" {
		if err := u.create(ctx); err != nil {
			return Object{}, err
		}
	}
	err := send()
	if err == nil {
		var o Object
		if o, err = u.complete(ctx); err == nil {
			return o, nil
		}
	}
	if !u.kept || !u.ended && ctx.Err() == nil && final(ctx, err) {
		u.abort(ctx)
	}
	return Object{}, err
}

func (u *upload) part(number int32) part {
	p := part{upload: u, number: number, offset: int64(number-1) * u.parts.Size}
	p.length = min(u.parts.Size, u.up.Size-p.offset)
	if number >= 1 && int(number) <= len(u.parts.SHA256) {
		p.sum = u.parts.SHA256[number-1]
	}
	if number >= 1 && int(number) <= len(u.parts.MD5) {
		p.md5 = u.parts.MD5[number-1]
	}
	return p
}

// create begins an upload. If we die before SaveID has kept its ID, nobody can
// resume it, and [Bucket.AbortUploads] will find it.
func (u *upload) create(ctx context.Context) error {
	u.up = u.bucket.fits(u.up)
	begin := func(up Upload, sum bool) error { return u.begin(ctx, up, sum) }
	err := begin(u.up, u.checksums())
	if err != nil {
		err = u.bucket.around(ability.PartSHA256, u.up, u.checksums(), err, begin)
	}
	if err != nil || u.parts.SaveID == nil {
		return err
	}
	if err := u.parts.SaveID(ctx, u.id); err != nil {
		u.abort(ctx)
		return fmt.Errorf("upload %s: keep its ID: %w", u.id, err)
	}
	u.kept = true
	return nil
}

// begin has the server begin an upload, with or without checksums. One that it has begun in
// another way ends.
func (u *upload) begin(ctx context.Context, up Upload, sum bool) error {
	in := &s3.CreateMultipartUploadInput{
		Bucket:       &u.bucket.conn.Target.Bucket,
		Key:          &u.key,
		ContentType:  nonEmpty(up.ContentType),
		Metadata:     up.Metadata,
		StorageClass: types.StorageClass(u.bucket.conn.Target.StorageClass),

		ServerSideEncryption: types.ServerSideEncryption(u.bucket.conn.Target.Encryption),
		SSEKMSKeyId:          nonEmpty(u.bucket.conn.Target.KMSKey),
	}
	if sum {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmSha256
		in.ChecksumType = types.ChecksumTypeComposite
	}
	out, err := u.bucket.conn.API.CreateMultipartUpload(ctx, in)
	if err != nil {
		return u.bucket.conn.Explain(ctx, err)
	}
	if aws.ToString(out.UploadId) == "" {
		return u.bucket.conn.Wrong(errors.New("the answer has no upload ID"))
	}
	if u.id != "" {
		u.abort(ctx)
	}
	u.id, u.up = *out.UploadId, up
	if err := u.bucket.encrypted(string(out.ServerSideEncryption)); err != nil {
		u.abort(ctx)
		return err
	}
	if !sum && u.checksums() {
		u.proof = byETag
	}
	return nil
}

// checksums reports whether the server is to keep one of each part.
func (u *upload) checksums() bool {
	return u.proof == byTrailer || u.proof == byDigest && u.parts.SHA256 != nil
}

func (u *upload) sendMissing(ctx context.Context, count int32, send transfer) error {
	var missing []part
	for number := int32(1); number <= count; number++ {
		if _, ok := u.done[number]; !ok {
			missing = append(missing, u.part(number))
			continue
		}
		u.tell(u.part(number), true)
	}
	group, partsCtx := errgroup.WithContext(ctx)
	group.SetLimit(u.bucket.options.Concurrency)
	for _, p := range missing {
		if partsCtx.Err() != nil {
			break
		}
		group.Go(func() error { return u.send(partsCtx, p, send) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err() // a cancel between two parts is not an error of either
}

func (u *upload) send(ctx context.Context, p part, send transfer) error {
	var sent types.CompletedPart
	err := u.bucket.retried(ctx, func() (err error) {
		sent, err = send(ctx, p)
		return err
	})
	if err != nil {
		return fmt.Errorf("part %d: %w", p.number, err)
	}
	u.mu.Lock()
	u.done[p.number] = sent
	u.mu.Unlock()
	u.tell(p, false)
	return nil
}

func (u *upload) tell(p part, before bool) {
	if u.parts.Sent != nil {
		u.parts.Sent(p.length, before)
	}
}

// sendPart uploads a part from the bytes that open reads.
func (b *Bucket) sendPart(
	ctx context.Context, p part, open func(ctx context.Context, offset, length int64) (io.ReadCloser, error),
) (types.CompletedPart, error) {
	src, err := open(ctx, p.offset, p.length)
	if err != nil {
		return types.CompletedPart{}, err
	}
	defer src.Close() //nolint:errcheck // what was read of it has been checked
	return b.uploadPart(ctx, p, src)
}

// uploadPart reads as many bytes as the part has.
func (b *Bucket) uploadPart(ctx context.Context, p part, src io.Reader) (types.CompletedPart, error) {
	body := wire.NewBody(src, p.length, p.sum, b.wantsMD5(p))
	if p.proof == byTrailer {
		body.SHA256 = nil
	}
	reader, signed, err := b.conn.Prepare(body)
	if err != nil {
		return types.CompletedPart{}, err
	}
	out, err := b.conn.API.UploadPart(ctx, p.input(reader), signed)
	switch {
	case err != nil && body.Err() == nil && p.refused(err):
		return types.CompletedPart{}, fmt.Errorf("%w: %w", errNoTrailers, b.conn.Explain(ctx, err))
	case err != nil:
		return types.CompletedPart{}, b.conn.Unsent(ctx, body, err)
	case p.proof == byTrailer && out.ChecksumSHA256 == nil:
		return types.CompletedPart{}, fmt.Errorf("%w: the answer has none", errNoTrailers)
	}
	if p.proof == byTrailer {
		b.learn(ability.Trailers, nil)
		sums, _ := s3.GetComputedInputChecksumsMetadata(out.ResultMetadata)
		body.Trailer = sums.ComputedChecksums[string(types.ChecksumAlgorithmSha256)]
	}
	if out.ETag == nil {
		if out.ETag, err = b.listedETag(ctx, p); err != nil {
			return types.CompletedPart{}, err
		}
	}
	etag := wire.Unquoted(*out.ETag)
	if err := b.judge(p, body, etag, aws.ToString(out.ChecksumSHA256)); err != nil {
		return types.CompletedPart{}, err
	}
	p.mu.Lock()
	p.sent[p.number] = body.Sum()
	p.mu.Unlock()
	return types.CompletedPart{PartNumber: &p.number, ETag: aws.String(wire.Quoted(etag)), ChecksumSHA256: out.ChecksumSHA256}, nil
}

// input is the request that sends the part.
func (p part) input(body io.Reader) *s3.UploadPartInput {
	in := &s3.UploadPartInput{
		Bucket: &p.bucket.conn.Target.Bucket, Key: &p.key, UploadId: &p.id,
		PartNumber: &p.number, ContentLength: &p.length, Body: body,
	}
	switch {
	case p.proof == byTrailer:
		in.ChecksumAlgorithm = types.ChecksumAlgorithmSha256
	case p.proof == byETag && known(p.md5[:]):
		in.ContentMD5 = aws.String(base64.StdEncoding.EncodeToString(p.md5[:]))
	case p.proof == byDigest && p.checksums():
		in.ChecksumSHA256 = aws.String(ExpectedChecksum(p.sum, nil))
	}
	return in
}

// listedETag is that of a part of whose making the answer said too little.
func (b *Bucket) listedETag(ctx context.Context, p part) (*string, error) {
	b.store.Detour()
	out, err := b.conn.API.ListParts(ctx, &s3.ListPartsInput{
		Bucket: &b.conn.Target.Bucket, Key: &p.key, UploadId: &p.id, MaxParts: aws.Int32(1), PartNumberMarker: aws.String(strconv.Itoa(int(p.number - 1))),
	})
	if err != nil {
		return nil, b.conn.Explain(ctx, err)
	}
	for _, have := range out.Parts {
		if aws.ToInt32(have.PartNumber) == p.number && aws.ToInt64(have.Size) == p.length && have.ETag != nil {
			return have.ETag, nil
		}
	}
	return nil, b.conn.Wrong(errors.New("the answer has no ETag, and the part is not listed"))
}

// wantsMD5 reports whether the ETag of a part may have to prove it.
func (b *Bucket) wantsMD5(p part) bool {
	keeps, seen := b.Can(ability.PartSHA256)
	return b.can(ability.ETagMD5) && (p.proof == byETag || p.proof == byDigest && p.checksums() && (!keeps || !seen))
}

// judge holds what the server says of a part against what was sent, and notes a part that
// nothing proves.
func (b *Bucket) judge(p part, sent *wire.Body, etag, checksum string) error {
	proved, err := b.compare(sent, etag, checksum)
	if err != nil {
		return err
	}
	if p.proof == byDigest && p.checksums() {
		b.learnKept(ability.PartSHA256, checksum)
	}
	switch {
	case proved, known(p.md5[:]) && etag == ExpectedETag(p.md5, nil):
	case p.checksums(), sent.MD5 != nil, !b.can(ability.ETagMD5):
		p.unproven.Store(true)
	}
	return nil
}

// complete makes the parts an object. The answer to an earlier try may have been
// lost on the way: then the upload is gone, and the object decides.
func (u *upload) complete(ctx context.Context) (Object, error) {
	parts := slices.SortedFunc(maps.Values(u.done), func(a, b types.CompletedPart) int {
		return cmp.Compare(*a.PartNumber, *b.PartNumber)
	})
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &u.bucket.conn.Target.Bucket, Key: &u.key, UploadId: &u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	out, err := u.completeNew(ctx, in)
	if err != nil {
		err = fmt.Errorf("complete: %w", u.bucket.conn.Explain(ctx, err))
		if !errors.Is(err, wire.ErrNoUpload) {
			return Object{}, err
		}
		if o, headErr := u.finished(ctx); headErr == nil {
			return o, nil
		}
		return Object{}, err
	}
	o := u.bucket.written(u.key, u.up, wire.Unquoted(aws.ToString(out.ETag)), aws.ToString(out.ChecksumSHA256), aws.ToString(out.VersionId))
	bare := o.ETag == ""
	if bare {
		o, err = u.found(ctx, o)
	}
	if err == nil {
		err = u.prove(ctx, o)
	}
	if err == nil && !bare {
		o = u.named(ctx, o)
	}
	if errors.Is(err, ErrDigest) {
		return Object{}, u.bucket.discard(ctx, u.key, err)
	}
	return o, err
}

// named has the ETag by which the store knows the object from now on. The first upload in parts to
// a store is looked at, and then those to one that answers with another. What was proved is enough
// where the look fails.
func (u *upload) named(ctx context.Context, said Object) Object {
	can, seen := u.bucket.Can(ability.CompleteETag)
	if can && !seen {
		if !u.bucket.store.Looking.TryLock() {
			return said
		}
		defer u.bucket.store.Looking.Unlock()
		can, seen = u.bucket.Can(ability.CompleteETag)
	}
	if can && seen {
		return said
	}
	if o, err := u.found(ctx, said); err == nil {
		return o
	}
	return said
}

// found looks at the finished object, and learns whether the answer had its ETag.
func (u *upload) found(ctx context.Context, said Object) (Object, error) {
	o, err := u.bucket.lookedAt(ctx, u.key, u.up.Size)
	if err != nil {
		return Object{}, fmt.Errorf("complete: %w", err)
	}
	var other error
	if o.ETag != said.ETag {
		other = fmt.Errorf("the answer to CompleteMultipartUpload has the ETag %q, the object %q", said.ETag, o.ETag)
	}
	u.bucket.learn(ability.CompleteETag, other)
	return o, nil
}

// completeNew replaces no other object if none may be. Of a store that was not seen to refuse such a
// request, the object is asked for a moment before: it may leave conditions unheeded. Of two who
// write there at once, the last one wins.
func (u *upload) completeNew(ctx context.Context, in *s3.CompleteMultipartUploadInput) (*s3.CompleteMultipartUploadOutput, error) {
	b := u.bucket
	can, seen := b.Can(ability.CreateOnly)
	if u.onlyNew && !u.blind && (!can || !seen) {
		if _, err := b.Head(ctx, u.key); !errors.Is(err, ErrNotFound) {
			return nil, cmp.Or(err, ErrChanged)
		}
	}
	if !u.onlyNew || !can && !u.blind {
		return b.conn.Work.CompleteMultipartUpload(ctx, in)
	}
	in.IfNoneMatch = aws.String("*")
	out, err := b.conn.Work.CompleteMultipartUpload(ctx, in)
	if err == nil {
		return out, nil
	}
	why := b.conn.Explain(ctx, err)
	if u.blind {
		return nil, err
	}
	if errors.Is(why, ErrChanged) {
		b.learn(ability.CreateOnly, nil)
	}
	if !wire.OtherWay(why) {
		return nil, err
	}
	in.IfNoneMatch = nil
	if seen { // and so nobody has looked yet
		b.learn(ability.CreateOnly, why)
		return u.completeNew(ctx, in)
	}
	if out, err = b.conn.Work.CompleteMultipartUpload(ctx, in); err == nil {
		b.learn(ability.CreateOnly, why)
	}
	return out, err
}

// prove holds a finished object against what is known of its parts: by the server's checksum,
// by its ETag or, if that tells nothing and a part was not proved, by reading it.
func (u *upload) prove(ctx context.Context, o Object) error {
	sum, etag := u.composite(), u.etag()
	switch {
	case sum != "" && o.SHA256 == sum:
		return nil
	case sum != "" && o.SHA256 != "":
		return u.bucket.conn.Lied("the server has SHA-256 %s, expected %s", o.SHA256, sum)
	case etag != "" && o.ETag != etag && u.mustBe(o.ETag):
		return u.bucket.conn.Lied("the server has ETag %s, expected %s", o.ETag, etag)
	case u.proved(etag != "" && o.ETag == etag), u.up.Later, !u.canReadBack():
		return nil
	}
	return u.readBack(ctx)
}

// canReadBack reports whether it is known what the object's bytes have to be.
func (u *upload) canReadBack() bool {
	return known(u.up.SHA256[:]) || len(u.sent) > 0 && len(u.sent) == len(u.done)
}

// readBack reads the object as a whole, or by its parts if they are all that is known.
func (u *upload) readBack(ctx context.Context) error {
	if known(u.up.SHA256[:]) {
		return u.bucket.readBack(ctx, u.key, Range{Length: -1}, u.up.SHA256)
	}
	for number := int32(1); int(number) <= len(u.sent); number++ {
		r := Range{Offset: u.part(number).offset, Length: u.part(number).length}
		if int(number) == len(u.sent) {
			r.Length = -1 // what is behind the end shows
		}
		if err := u.bucket.readBack(ctx, u.key, r, u.sent[number]); err != nil {
			return fmt.Errorf("part %d: %w", number, err)
		}
	}
	return nil
}

// mustBe reports whether an ETag has to be that of the parts: people say so, or nothing else
// could prove the object and it looks like one.
func (u *upload) mustBe(etag string) bool {
	return u.bucket.conn.Target.Checksum == ChecksumETag || u.proof == byETag && !u.canReadBack() && likeETag(etag, len(u.done))
}

// proved reports whether what was seen of the parts is enough; same says that the ETag is theirs.
func (u *upload) proved(same bool) bool {
	if u.unproven.Load() {
		return same && u.parts.MD5 != nil
	}
	return same || u.proof != byETag
}

// likeETag reports whether an ETag is made as S3 makes that of so many parts: some stores have
// others, which tell nothing.
func likeETag(etag string, parts int) bool { return strings.HasSuffix(etag, fmt.Sprintf("-%d", parts)) }

// abort frees what the parts occupy. If it does not get through,
// [Bucket.AbortUploads] does the same later.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	_ = u.bucket.abort(ctx, u.key, u.id)
}

func (b *Bucket) abort(ctx context.Context, key, id string) error {
	_, err := b.conn.API.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &b.conn.Target.Bucket, Key: &key, UploadId: &id,
	})
	if err == nil {
		return nil
	}
	if err = b.conn.Explain(ctx, err); errors.Is(err, wire.ErrNoUpload) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return fmt.Errorf("abort upload %s of %s/%s: %w", id, b.conn.Name(), key, err)
}

// retried calls f until it succeeds, fails for good, or has failed often enough: a store that asks for
// patience is given it.
func (b *Bucket) retried(ctx context.Context, f func() error) error {
	began, failed := time.Now(), 0
	for {
		err := f()
		if !wire.AsksPatience(err) || time.Since(began) > b.options.Patience {
			failed++
		}
		if err == nil || failed == wire.Attempts || final(ctx, err) {
			return err
		}
		limit := min(400*time.Millisecond<<failed, wire.MaxBackoff)
		if !retry.Pause(ctx, rand.N(limit)) {
			return err
		}
	}
}
