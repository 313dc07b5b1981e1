package storage

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// unsigned stands for the payload's hash where TLS protects the payload.
const unsigned = "UNSIGNED-PAYLOAD"

// smallBody is read into memory before it is sent, so that the request can be
// repeated, and a connection that the server has just closed costs nothing.
const smallBody = 64 << 10

// Put writes an object in a single request, of at most 5 GiB, from body as it
// comes; see [PartSize]. It reads up.Size bytes and does not touch body after it
// has returned. If they are not those of up.SHA256, the error is [ErrDigest] and
// nothing is written: the last bytes are held back until the digest is right.
// A body of more than 64 KiB is sent only once; to try again, open it again.
func (b *Bucket) Put(ctx context.Context, key string, body io.Reader, up Upload) (Object, error) {
	o, err := b.put(ctx, key, body, up)
	if err != nil {
		return Object{}, b.errorf("put", key, err)
	}
	return o, nil
}

// Beginning is how a value of metadata is kept by a server that takes only short ones: under
// another name, the first 256 bytes or less, and no half of an escaped byte.
func Beginning(name, value string) (shortName, short string) {
	const most = 256
	short = value
	if len(value) > most {
		short = value[:most]
		if i := strings.LastIndexByte(short, '%'); i > most-3 {
			short = short[:i]
		}
		short = strings.TrimRight(short, " ")
	}
	return strings.TrimSuffix(name, beginning) + beginning, short
}

const beginning = "-beginning"

// shortened has no long values, and says whether it had to cut one.
func (up Upload) shortened() (Upload, bool) {
	var short map[string]string
	for name, value := range up.Metadata {
		if len(value) <= 256 {
			continue
		}
		if short == nil {
			short = maps.Clone(up.Metadata)
		}
		delete(short, name)
		name, value = Beginning(name, value)
		short[name] = value
	}
	if short != nil {
		up.Metadata = short
	}
	return up, short != nil
}

// fits cuts what is known to be too long for the server.
func (b *Bucket) fits(up Upload) Upload {
	if !b.can(LongMetadata) {
		up, _ = up.shortened()
	}
	return up
}

// tooLong reports whether an error may come of long metadata: some servers fail internally.
func tooLong(err error) bool {
	var api smithy.APIError
	return refusedWay(err) || errors.As(err, &api) && api.ErrorCode() == "InternalError"
}

// put takes the way that the server is known to go. If it refuses that, put opens the content
// once more and tries the others; what goes well is remembered.
func (b *Bucket) put(ctx context.Context, key string, content io.Reader, up Upload) (Object, error) {
	return b.putFrom(ctx, key, up, again(content, up.Size))
}

// again returns what opens a content once and, if it is small or can be sought, again.
func again(content io.Reader, size int64) func() (io.Reader, error) {
	var start int64
	var kept bytes.Buffer
	opened := false
	seeker, seeks := content.(io.Seeker)
	return func() (r io.Reader, err error) {
		first := !opened
		opened = true
		switch {
		case seeks && first:
			start, err = seeker.Seek(0, io.SeekCurrent)
			return content, err
		case seeks:
			_, err = seeker.Seek(start, io.SeekStart)
			return content, err
		case first && size <= smallBody:
			return io.TeeReader(content, &kept), nil
		case first:
			return content, nil
		case size <= smallBody:
			return io.MultiReader(bytes.NewReader(kept.Bytes()), content), nil
		}
		return nil, errReadOnce
	}
}

func (b *Bucket) putFrom(ctx context.Context, key string, up Upload, open func() (io.Reader, error)) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, err
	}
	up, sum := b.fits(up), b.can(SHA256) && known(up.SHA256[:])
	o, err := b.putOnce(ctx, key, up, sum, open)
	if err == nil {
		if _, long := up.shortened(); long {
			b.learn(LongMetadata, nil)
		}
		return o, nil
	}
	refusal := err
	err = b.around(SHA256, up, sum, refusal, func(up Upload, sum bool) error {
		made, err := b.putOnce(ctx, key, up, sum, open)
		switch {
		case err == nil:
			o = made
		case errors.Is(err, errReadOnce):
			return refusal
		}
		return err
	})
	return o, err
}

var errReadOnce = errors.New("the body can be read only once")

// around asks for what a server has refused in the other ways that there are: without a SHA-256, with short metadata, with neither. It remembers what went well. If nothing does, the error is
// the first that is about more than the way: what was to be read may be gone as well.
func (b *Bucket) around(checksum Way, up Upload, sum bool, refusal error, ask func(up Upload, sum bool) error) error {
	short, cut := up.shortened()
	bare, cut := sum && refusedWay(refusal) && b.target.Checksum.measured(), cut && tooLong(refusal)
	for _, other := range []struct {
		open  bool
		up    Upload
		sum   bool
		lacks []Way
	}{
		{bare, up, false, []Way{checksum}},
		{cut, short, sum, []Way{LongMetadata}},
		{bare && cut, short, false, []Way{checksum, LongMetadata}},
	} {
		if !other.open {
			continue
		}
		err := ask(other.up, other.sum)
		if err != nil && !tooLong(err) {
			return err
		}
		if err == nil && !refusedWay(refusal) && ask(up, sum) == nil {
			return nil // it had failed for another reason, and takes the whole
		}
		if err == nil {
			for _, way := range other.lacks {
				b.learn(way, refusal)
			}
			return nil
		}
	}
	return refusal
}

// putOnce sends one request, with or without a SHA-256, and proves what became of it.
func (b *Bucket) putOnce(ctx context.Context, key string, up Upload, sum bool, open func() (io.Reader, error)) (Object, error) {
	content, err := open()
	if err != nil {
		return Object{}, err
	}
	body := newBody(content, up.Size, up.SHA256, b.can(ETagMD5) && (!b.can(SHA256) || !sum && known(up.SHA256[:])))
	r := &request{
		operation: "PutObject", method: http.MethodPut, key: key, header: make(http.Header),
		payload: b.payload(up.SHA256), stream: body,
	}
	b.describe(r.header, up)
	if up.ContentType == "" {
		set(r.header, "Content-Type", "application/octet-stream") // as S3 would take it to be
	}
	switch {
	case sum:
		set(r.header, "X-Amz-Checksum-Sha256", ExpectedChecksum(up.SHA256, nil))
	case body.md5 != nil && known(up.MD5[:]):
		set(r.header, "Content-Md5", base64.StdEncoding.EncodeToString(up.MD5[:]))
	}
	if body.left <= smallBody {
		if r.content, err = body.inMemory(); err != nil {
			return Object{}, err
		}
		r.stream = nil
	}
	out, err := b.send(ctx, r)
	if err != nil {
		return Object{}, b.unsent(ctx, body, err)
	}
	o := Object{
		Key: key, Size: up.Size, ETag: etagOf(out.header), SHA256: out.header.Get("X-Amz-Checksum-Sha256"),
		ContentType: up.ContentType, Metadata: up.Metadata, StorageClass: b.Class(),
		VersionID: out.header.Get("X-Amz-Version-Id"),
	}
	err = b.proven(ctx, body, &o, up, sum)
	if errors.Is(err, ErrDigest) || body.left > 0 {
		return Object{}, b.discard(ctx, key, err)
	}
	return o, err
}

// proven holds what the server has against what was sent to it: by its checksum, by its ETag,
// or by reading it.
func (b *Bucket) proven(ctx context.Context, sent *body, o *Object, up Upload, sum bool) error {
	proved, err := b.compare(sent, o.ETag, o.SHA256)
	if err != nil {
		return err
	}
	switch {
	case !sum:
	case o.SHA256 != "":
		b.learn(SHA256, nil)
		b.learnETag(up.MD5, o.ETag)
	default:
		if o.SHA256, err = b.keptSHA256(ctx, o.Key); err != nil {
			return err
		}
		proved = o.SHA256 == ExpectedChecksum(up.SHA256, nil) || known(up.MD5[:]) && o.ETag == ExpectedETag(up.MD5, nil)
	}
	if proved || up.Later || !known(up.SHA256[:]) && sent.md5 == nil {
		return nil
	}
	if err := b.readBack(ctx, o.Key, Range{Length: -1}, sent.sum()); err != nil {
		return err
	}
	if sent.md5 != nil {
		b.learn(ETagMD5, fmt.Errorf("ETag %s of an object with another MD5", o.ETag))
	}
	return nil
}

// keptSHA256 asks a store that has not said so at once whether it keeps the SHA-256 of an object;
// "" without asking, if that is known.
func (b *Bucket) keptSHA256(ctx context.Context, key string) (string, error) {
	if _, seen := b.Can(SHA256); seen {
		return "", nil
	}
	h, _, err := b.head(ctx, key, "", 0)
	if err != nil {
		return "", b.explain(ctx, err)
	}
	sum := h.Get("X-Amz-Checksum-Sha256")
	b.learnKept(SHA256, sum)
	return sum, nil
}

// learnETag compares an ETag with the MD5 of an object that the server has, as its checksum proves.
func (b *Bucket) learnETag(sum [16]byte, etag string) {
	switch {
	case !known(sum[:]):
	case etag == ExpectedETag(sum, nil):
		b.learn(ETagMD5, nil)
	default:
		b.learn(ETagMD5, fmt.Errorf("ETag %s of an object with the MD5 %x", etag, sum))
	}
}

// readBack reads a range of an object and hashes it, since its server proves nothing. An object in
// an archive cannot be read, and stays unproven.
func (b *Bucket) readBack(ctx context.Context, key string, r Range, want [sha256.Size]byte) error {
	body, _, err := b.get(ctx, key, r, false)
	if errors.Is(err, ErrArchived) {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // it is read to its end
	h := sha256.New()
	n, err := io.Copy(h, body)
	b.store.bytes.Add(n)
	b.store.detours.Add(1)
	if err != nil {
		return err
	}
	if got := [sha256.Size]byte(h.Sum(nil)); got != want {
		return b.lied("%d bytes with SHA-256 %x were read back at %d, sent were others, with %x", n, got, r.Offset, want)
	}
	return nil
}

// discard deletes what must not be taken for an object, and returns why. If we
// die here, it stays until the key is written again: a caller that has not seen
// Put succeed does not rely on it.
func (b *Bucket) discard(ctx context.Context, key string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	return errors.Join(why, b.Delete(ctx, key))
}

// check refuses what a header cannot carry, before anything is sent.
func (up Upload) check() error {
	if up.Size < 0 {
		return fmt.Errorf("size %d is negative", up.Size)
	}
	if !plain(up.ContentType) {
		return fmt.Errorf("content type %q is not plain ASCII", up.ContentType)
	}
	for name, value := range up.Metadata {
		if name == "" || name != strings.ToLower(name) || !plain(name) || strings.ContainsAny(name, " :") {
			return fmt.Errorf("metadata name %q is not usable in a header", name)
		}
		if !plain(value) {
			return fmt.Errorf("metadata %s=%q is not plain ASCII without space at its ends: encode it", name, value)
		}
	}
	return nil
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return strings.Trim(s, " ") == s
}

// payload is what the signature says of a body with this SHA-256.
func (b *Bucket) payload(sum [32]byte) string {
	if b.endpoint.Scheme == "http" && known(sum[:]) {
		return hex.EncodeToString(sum[:]) // so that nobody on the network can change the bytes
	}
	return unsigned
}

// prepare chooses how the SDK sends the body. A nil reader sends none.
func (b *Bucket) prepare(body *body, sum [32]byte) (io.Reader, func(*s3.Options), error) {
	payload := b.payload(sum)
	if body.left > smallBody {
		return body, func(o *s3.Options) {
			o.Retryer = aws.NopRetryer{}
			signAs(payload)(o)
		}, nil
	}
	content, err := body.inMemory()
	if err != nil || len(content) == 0 {
		return nil, signAs(payload), err
	}
	return bytes.NewReader(content), signAs(payload), nil
}

// signAs names the payload's hash to the signer, which would otherwise read the
// body for it.
func signAs(payload string) func(*s3.Options) {
	return s3.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("FarolPayloadHash", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			return next.HandleInitialize(v4.SetPayloadHash(ctx, payload), in)
		}), middleware.Before)
	})
}

// A body passes on exactly the bytes that were promised, hashing them. It has no
// lock: the SDK lets nobody read it once it has returned, though net/http would.
type body struct {
	src     io.Reader
	left    int64     // bytes to come
	want    [32]byte  // zero: not known
	sha     hash.Hash // nil where the SDK computes it for a trailer
	md5     hash.Hash // nil unless the ETag has to be compared
	trailer string    // SHA-256 that followed the bytes, in base64
	err     error     // what ended the reading early
}

func newBody(src io.Reader, size int64, want [32]byte, withMD5 bool) *body {
	b := &body{src: src, left: size, want: want, sha: sha256.New()}
	if withMD5 {
		b.md5 = md5.New()
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	n, err := b.src.Read(p)
	if b.sha != nil {
		b.sha.Write(p[:n])
	}
	if b.md5 != nil {
		b.md5.Write(p[:n])
	}
	b.left -= int64(n)
	switch {
	case b.left == 0 && (err == nil || errors.Is(err, io.EOF) || known(b.want[:])):
		b.err = b.verify()
	case errors.Is(err, io.EOF):
		b.err = fmt.Errorf("body: %w: %d bytes missing", io.ErrUnexpectedEOF, b.left)
	case err != nil:
		b.err = fmt.Errorf("body: %w", err)
	}
	if b.err != nil && b.left == 0 {
		return 0, b.err // the last bytes stay here, so the server has no object
	}
	return n, b.err
}

// inMemory reads all of a body, and is empty only if the body is.
func (b *body) inMemory() ([]byte, error) {
	content := make([]byte, b.left)
	if len(content) == 0 {
		return nil, b.verify()
	}
	_, err := io.ReadFull(b, content)
	return content, err
}

func (b *body) verify() error {
	if !known(b.want[:]) {
		return nil
	}
	if got := b.sha.Sum(nil); !bytes.Equal(got, b.want[:]) {
		return fmt.Errorf("%w: SHA-256 is %x, expected %x", ErrDigest, got, b.want)
	}
	return nil
}

// unsent prefers the reason why the body ended to what the request made of it.
func (b *Bucket) unsent(ctx context.Context, sent *body, err error) error {
	if sent.err != nil {
		return sent.err
	}
	return b.explain(ctx, err)
}

// sum is the SHA-256 of what was sent.
func (b *body) sum() [sha256.Size]byte {
	if b.sha != nil {
		return [sha256.Size]byte(b.sha.Sum(nil))
	}
	sum, err := base64.StdEncoding.DecodeString(b.trailer)
	if err != nil || len(sum) != sha256.Size {
		return [sha256.Size]byte{} // which no content has
	}
	return [sha256.Size]byte(sum)
}

// compare holds what the server says that it has against what was sent to it, and tells
// whether that proves it.
func (b *Bucket) compare(sent *body, etag, checksum string) (proved bool, err error) {
	if sent.left > 0 {
		return false, b.wrong(fmt.Errorf("%w: the server answered %d bytes before the end", io.ErrUnexpectedEOF, sent.left))
	}
	if checksum != "" {
		if sum := ExpectedChecksum(sent.sum(), nil); checksum != sum {
			return false, b.lied("the server has SHA-256 %s, sent was %s", checksum, sum)
		}
		return true, nil
	}
	if sent.md5 == nil {
		return false, nil
	}
	want := hex.EncodeToString(sent.md5.Sum(nil))
	switch {
	case etag == want:
		b.learn(ETagMD5, nil)
		return true, nil
	case b.target.Checksum == ChecksumETag: // else it may be no MD5 here, and reading the object tells
		return false, b.lied("ETag is %s, MD5 of the bytes sent is %s", etag, want)
	}
	return false, nil
}
