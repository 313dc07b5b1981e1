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
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
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

func (b *Bucket) put(ctx context.Context, key string, content io.Reader, up Upload) (Object, error) {
	if err := up.check(); err != nil {
		return Object{}, err
	}
	body := newBody(content, up.Size, up.SHA256, !b.KeepsSHA256())
	r := &request{
		operation: "PutObject", method: http.MethodPut, key: key, query: "x-id=PutObject", header: make(http.Header),
		payload: b.payload(up.SHA256), stream: body,
	}
	b.describe(r.header, up)
	if up.ContentType == "" {
		set(r.header, "Content-Type", "application/octet-stream") // as S3 would take it to be
	}
	switch {
	case b.KeepsSHA256() && known(up.SHA256[:]):
		set(r.header, "X-Amz-Checksum-Sha256", ExpectedChecksum(up.SHA256, nil))
	case !b.KeepsSHA256() && known(up.MD5[:]):
		set(r.header, "Content-Md5", base64.StdEncoding.EncodeToString(up.MD5[:]))
	}
	if body.left <= smallBody {
		var err error
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
	if err := b.compare(body, o.ETag, o.SHA256); err != nil {
		return Object{}, b.discard(ctx, key, err)
	}
	return o, nil
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

// compare holds what the server has against what was sent to it.
func (b *Bucket) compare(sent *body, etag, checksum string) error {
	if sent.left > 0 {
		return b.wrong(fmt.Errorf("%w: the server answered %d bytes before the end", io.ErrUnexpectedEOF, sent.left))
	}
	if sent.md5 != nil {
		if want := hex.EncodeToString(sent.md5.Sum(nil)); etag != want {
			return b.lied("ETag is %s, MD5 of the bytes sent is %s", etag, want)
		}
		return nil
	}
	sum := sent.trailer
	if sent.sha != nil {
		sum = base64.StdEncoding.EncodeToString(sent.sha.Sum(nil))
	}
	if checksum != "" && checksum != sum {
		return b.lied("the server has SHA-256 %s, sent was %s", checksum, sum)
	}
	return nil
}
