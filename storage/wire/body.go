package wire

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
	"sync"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
)

// unsigned stands for the payload's hash where TLS protects the payload.
const unsigned = "UNSIGNED-PAYLOAD"

// SmallBody is the size in bytes up to which a body is read into memory before it is sent, so that
// the request can be repeated, and a connection that the server has just closed costs nothing.
const SmallBody = 64 << 10

// A Body passes on exactly the bytes that were promised, hashing them. It has no
// lock: the SDK lets nobody read it once it has returned, though net/http would.
type Body struct {
	Left    int64     // bytes to come
	SHA256  hash.Hash // nil where the SDK computes it for a trailer
	MD5     hash.Hash // nil unless the ETag has to be compared
	Trailer string    // SHA-256 that followed the bytes, in base64

	src  io.Reader
	want [32]byte // zero: not known
	err  error    // what ended the reading early
}

// NewBody returns a body of size bytes from src, with the SHA-256 want; zero is not known, and not
// checked. withMD5 has it compute the MD5 too.
func NewBody(src io.Reader, size int64, want [32]byte, withMD5 bool) *Body {
	b := &Body{src: src, Left: size, want: want, SHA256: sha256.New()}
	if withMD5 {
		b.MD5 = md5.New()
	}
	return b
}

// Read ends with [ErrDigest], and keeps the last bytes back, if they are not those that were promised.
func (b *Body) Read(p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.Left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.Left)]
	n, err := b.src.Read(p)
	if b.SHA256 != nil {
		b.SHA256.Write(p[:n])
	}
	if b.MD5 != nil {
		b.MD5.Write(p[:n])
	}
	b.Left -= int64(n)
	switch {
	case b.Left == 0 && (err == nil || errors.Is(err, io.EOF) || b.want != [32]byte{}):
		b.err = b.verify()
	case errors.Is(err, io.EOF):
		b.err = fmt.Errorf("body: %w: %d bytes missing", io.ErrUnexpectedEOF, b.Left)
	case err != nil:
		b.err = fmt.Errorf("body: %w", err)
	}
	if b.err != nil && b.Left == 0 {
		return 0, b.err // the last bytes stay here, so the server has no object
	}
	return n, b.err
}

// ErrReadOnce says that a large body is gone, and cannot be read again.
var ErrReadOnce = errors.New("the body can be read only once")

// Again returns what opens a content of size bytes once and, if it is small or can be sought, again.
func Again(content io.Reader, size int64) func() (io.Reader, error) {
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
		case first && size <= SmallBody:
			return io.TeeReader(content, &kept), nil
		case first:
			return content, nil
		case size <= SmallBody:
			return io.MultiReader(bytes.NewReader(kept.Bytes()), content), nil
		}
		return nil, ErrReadOnce
	}
}

// inMemory reads all of a body, and is empty only if the body is.
func (b *Body) inMemory() ([]byte, error) {
	content := make([]byte, b.Left)
	if len(content) == 0 {
		return nil, b.verify()
	}
	_, err := io.ReadFull(b, content)
	return content, err
}

func (b *Body) verify() error {
	if b.want == [32]byte{} {
		return nil
	}
	if got := b.SHA256.Sum(nil); !bytes.Equal(got, b.want[:]) {
		return fmt.Errorf("%w: SHA-256 is %x, expected %x", ErrDigest, got, b.want)
	}
	return nil
}

// Sum is the SHA-256 of what was sent.
func (b *Body) Sum() [sha256.Size]byte {
	if b.SHA256 != nil {
		return [sha256.Size]byte(b.SHA256.Sum(nil))
	}
	sum, err := base64.StdEncoding.DecodeString(b.Trailer)
	if err != nil || len(sum) != sha256.Size {
		return [sha256.Size]byte{} // which no content has
	}
	return [sha256.Size]byte(sum)
}

// Err is what ended the reading early; nil if nothing did.
func (b *Body) Err() error { return b.err }

// Unsent explains why a request failed, and prefers the reason why the body ended to what the
// request made of it.
func (c *Conn) Unsent(ctx context.Context, sent *Body, err error) error {
	if sent.err != nil {
		return sent.err
	}
	return c.Explain(ctx, err)
}

// payload is what the signature says of a body with this SHA-256.
func (c *Conn) payload(sum [32]byte) string {
	if c.Endpoint.Scheme == "http" && sum != [32]byte{} {
		return hex.EncodeToString(sum[:]) // so that nobody on the network can change the bytes
	}
	return unsigned
}

// Carry gives a request its body. A large one is sent only once.
func (c *Conn) Carry(r *Request, body *Body) (err error) {
	r.payload = c.payload(body.want)
	if body.Left > SmallBody {
		r.stream = body
		return nil
	}
	r.content, err = body.inMemory()
	return err
}

// Prepare chooses how the SDK sends a body. A nil reader sends none.
func (c *Conn) Prepare(body *Body) (io.Reader, func(*s3.Options), error) {
	payload := c.payload(body.want)
	if body.Left > SmallBody {
		return body, func(o *s3.Options) {
			o.Retryer = once{c.retryer}
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

// A lentBody belongs to net/http until the request has ended. It may go on reading
// after that, for instance when the server has answered before the end.
type lentBody struct {
	mu  sync.Mutex
	src io.Reader
}

func (l *lentBody) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.src == nil {
		return 0, io.ErrClosedPipe
	}
	return l.src.Read(p)
}

// Close returns when nobody reads any more.
func (l *lentBody) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.src = nil
	return nil
}
