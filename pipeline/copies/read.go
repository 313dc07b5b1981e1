package copies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// Looked is the result of at most two reads of a copy.
type Looked struct {
	Found   string // SHA-256 in lower-case hex; "": there is no such object
	Bytes   int64  // read in all
	Wavered bool   // the first look had another result
}

// ErrWavers says that two reads of a copy had two results, and neither is the expected one.
// The connection is at fault, and nothing is known of the bytes.
var ErrWavers = errors.New("two reads gave different results")

// Look reads a copy to its end. An unexpected result is believed only if a second read
// confirms it; again is the pause before that.
func Look(ctx context.Context, b *storage.Bucket, key, expected string, again time.Duration) (Looked, error) {
	found, n, err := DigestOf(ctx, b, key)
	l := Looked{Found: found, Bytes: n}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		found = ""
	case err != nil:
		return l, err
	case found == expected:
		return l, nil
	}
	if !retry.Pause(ctx, again) {
		return l, context.Cause(ctx)
	}
	// To a HEAD or GET, a bucket that is missing looks like one that lacks the key.
	if err := b.Check(ctx); err != nil {
		return l, err
	}
	second, n, err := DigestOf(ctx, b, key)
	l.Found, l.Bytes = second, l.Bytes+n
	l.Wavered = second != found
	switch {
	case errors.Is(err, storage.ErrNotFound):
		l.Found, l.Wavered = "", found != ""
	case err != nil:
		return l, err
	}
	if l.Wavered && l.Found != expected {
		return l, fmt.Errorf("%w: %s, and then %s", ErrWavers, OrNothing(found), OrNothing(l.Found))
	}
	return l, nil
}

// Head describes a copy. To a HEAD, a bucket that is missing looks like one that lacks the key: a
// copy is missing only if the bucket answers, and a second request does not find the copy.
func Head(ctx context.Context, b *storage.Bucket, key string) (storage.Object, error) {
	o, err := b.Head(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		if err = b.Check(ctx); err == nil {
			return b.Head(ctx, key)
		}
	}
	return o, err
}

// OrNothing is a digest in words; "" is that of what is not there.
func OrNothing(digest string) string {
	if digest == "" {
		return "nothing"
	}
	return digest
}

// DigestOf reads an object to its end and returns its SHA-256 and size. After a broken
// connection it reads on where that stopped, as long as each connection brings some bytes.
func DigestOf(ctx context.Context, b *storage.Bucket, key string) (sum string, n int64, err error) {
	const inVain = 3 // tries in a row that bring nothing
	sha := sha256.New()
	for failed := 0; ; {
		got, err := addRest(ctx, b, key, n, sha)
		n += got
		switch {
		case err == nil:
			return hex.EncodeToString(sha.Sum(nil)), n, nil
		case got > 0:
			failed = 0
		default:
			failed++
		}
		if n == 0 || failed == inVain || ctx.Err() != nil || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrArchived) ||
			errors.Is(err, storage.ErrDenied) {
			return "", n, err
		}
	}
}

func addRest(ctx context.Context, b *storage.Bucket, key string, offset int64, into hash.Hash) (int64, error) {
	r, err := b.Get(ctx, key, storage.Range{Offset: offset, Length: -1})
	if err != nil {
		return 0, err
	}
	defer r.Close() //nolint:errcheck // it was read to its end, or the error says more
	return addAll(into, r)
}

// A filled is a part of a content and what came behind it.
type filled struct {
	Buf []byte
	Err error
}

// Fill reads until buf is full, or there is no more.
func Fill(r io.Reader, buf []byte) filled {
	n := 0
	for n < len(buf) {
		got, err := r.Read(buf[n:])
		if n += got; err != nil {
			return filled{buf[:n], err}
		}
	}
	return filled{buf, nil}
}

// addAll hashes what a reader has while the next of it arrives: on a fast line the
// one takes about as long as the other.
func addAll(into hash.Hash, r io.Reader) (n int64, err error) {
	const block, blocks = 256 << 10, 4
	add := func(f filled) bool {
		into.Write(f.Buf)
		n += int64(len(f.Buf))
		if err = f.Err; errors.Is(err, io.EOF) {
			err = nil
		}
		return f.Err == nil
	}
	if !add(Fill(r, make([]byte, block))) { // most files are not longer
		return n, err
	}
	free, full := make(chan []byte, blocks), make(chan filled, blocks)
	for range blocks {
		free <- make([]byte, block)
	}
	go func() { // it ends with the content, which ends with its request's ctx
		for buf := range free {
			f := Fill(r, buf)
			if full <- f; f.Err != nil {
				return
			}
		}
	}()
	for f := range full {
		if !add(f) {
			break
		}
		free <- f.Buf
	}
	return n, err
}

// Agreed reads a content of a bucket until two reads have the same SHA-256, and returns that.
// It is called before bytes have consequences: if two reads differ, the connection is at
// fault.
func Agreed(ctx context.Context, b *storage.Bucket, what string, open func() (io.ReadCloser, error)) ([32]byte, error) {
	const most = 4
	var seen [][32]byte
	for range most {
		sum, err := digestOnce(open)
		if err != nil {
			return sum, fmt.Errorf("read %s again: %w", what, err)
		}
		if slices.Contains(seen, sum) {
			return sum, nil
		}
		if seen = append(seen, sum); ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
	}
	return [32]byte{}, cause.WrongAnswer(b, "repeated reads differ", "read %s in %s %d times: the bytes differ each time", what, b.TargetName(), most)
}

func digestOnce(open func() (io.ReadCloser, error)) (sum [32]byte, err error) {
	r, err := open()
	if err != nil {
		return sum, err
	}
	defer r.Close() //nolint:errcheck // it was read to its end, or the error says more
	hash := sha256.New()
	_, err = io.Copy(hash, r)
	return [32]byte(hash.Sum(nil)), err
}
