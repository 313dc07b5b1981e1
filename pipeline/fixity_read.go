package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// looked is what two looks at a copy came to at most.
type looked struct {
	found   string // SHA-256 in lower-case hex; "": there is no such object
	bytes   int64  // read in all
	wavered bool   // the first look had another result
}

// errWavers says that a copy was read twice with two results of which neither can be
// relied on: it is the way to the bytes that is bad, and nothing is known of them.
var errWavers = errors.New("it was read twice, with two results")

// look reads a copy to its end. What is not as expected is looked at once more before
// it is believed; again is the pause before that.
func look(ctx context.Context, b *storage.Bucket, key, expected string, again time.Duration) (looked, error) {
	found, n, err := digestOf(ctx, b, key)
	l := looked{found: found, bytes: n}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		found = ""
	case err != nil:
		return l, err
	case found == expected:
		return l, nil
	}
	if !pause(ctx, again) {
		return l, context.Cause(ctx)
	}
	// To a HEAD or GET, a bucket that is missing looks like one that lacks the key.
	if err := b.Check(ctx); err != nil {
		return l, err
	}
	second, n, err := digestOf(ctx, b, key)
	l.found, l.bytes = second, l.bytes+n
	l.wavered = second != found
	switch {
	case errors.Is(err, storage.ErrNotFound):
		l.found, l.wavered = "", found != ""
	case err != nil:
		return l, err
	}
	if l.wavered && l.found != expected {
		return l, fmt.Errorf("%w: %s, and then %s", errWavers, orNothing(found), orNothing(l.found))
	}
	return l, nil
}

func orNothing(digest string) string {
	if digest == "" {
		return "nothing"
	}
	return digest
}

// digestOf reads an object to its end and returns its SHA-256 and size. A connection
// that breaks in the middle costs what is left and not the whole, as often as it
// takes, so long as some of it comes through each time.
func digestOf(ctx context.Context, b *storage.Bucket, key string) (sum string, n int64, err error) {
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
	buf []byte
	err error
}

// fill reads until buf is full, or there is no more.
func fill(r io.Reader, buf []byte) filled {
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
		into.Write(f.buf)
		n += int64(len(f.buf))
		if err = f.err; errors.Is(err, io.EOF) {
			err = nil
		}
		return f.err == nil
	}
	if !add(fill(r, make([]byte, block))) { // most files are not longer
		return n, err
	}
	free, full := make(chan []byte, blocks), make(chan filled, blocks)
	for range blocks {
		free <- make([]byte, block)
	}
	go func() { // it ends with the content, which ends with its request's ctx
		for buf := range free {
			f := fill(r, buf)
			if full <- f; f.err != nil {
				return
			}
		}
	}()
	for f := range full {
		if !add(f) {
			break
		}
		free <- f.buf
	}
	return n, err
}
