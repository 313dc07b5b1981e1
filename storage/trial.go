package storage

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A Trial says what is tried of a bucket, see [Bucket.Try]. Listing, and reading
// a key that is not there, are tried always.
type Trial struct {
	Object  bool    // write a small object, read it and delete it
	Uploads bool    // begin a multipart upload, list its parts and abort it; it has none, so nothing is stored
	Delete  bool    // delete a key that is not there, if the bucket keeps no versions; not needed with Object
	Erase   bool    // ask for versions, and where they are kept, list those of the key
	From    *Bucket // with Object: have the server copy an object from there, if it can
}

// A Tried is an operation that was tried, and what came of it. Err is nil if we
// may do that.
type Tried struct {
	Right string // such as "PUT" or "abort multipart upload"
	Err   error
}

// Try finds out which operations the bucket allows. What it writes is under key
// and gone when it returns, with all versions; if it is not, the last Tried is
// "remove the trial object". It ends early when ctx does.
func (b *Bucket) Try(ctx context.Context, key string, t Trial) []Tried {
	r := &trial{bucket: b, ctx: ctx, key: key}
	r.do("LIST", func() error {
		for _, err := range b.List(ctx, key, "") {
			return err
		}
		return nil
	})
	if t.Object {
		r.object(t.From) //nolint:contextcheck // what it writes is removed also for a caller who has been cancelled
	} else {
		r.do("HEAD", func() error { return absent(b.Head(ctx, key)) })
		r.do("GET", func() error {
			body, err := b.Get(ctx, key, Range{Length: 1})
			if err == nil {
				err = body.Close()
			}
			return absent(Object{}, err)
		})
	}
	if t.Uploads {
		r.upload() //nolint:contextcheck // likewise
	}
	if t.Erase {
		r.do("GET versioning", func() error { _, err := b.keepsVersions(ctx); return err })
		r.do("LIST versions", func() error {
			if versioned := b.versioned.Load(); versioned == nil || !*versioned {
				return nil // which is not needed then
			}
			_, err := b.versionsOf(ctx, key)
			return err
		})
	}
	if t.Delete && !t.Object {
		r.deleteNothing()
	}
	return r.done
}

// absent is nil for an answer that only says that a key is not there.
func absent(_ Object, err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// KeepsVersions asks whether the bucket keeps versions of what is replaced or
// deleted, or has kept some.
func (b *Bucket) KeepsVersions(ctx context.Context) (bool, error) { return b.keepsVersions(ctx) }

type trial struct {
	bucket *Bucket
	ctx    context.Context //nolint:containedctx // it lasts for one call of Try
	key    string
	done   []Tried
}

// do tries something, and reports whether it went well.
func (r *trial) do(right string, what func() error) bool {
	err := what()
	r.done = append(r.done, Tried{right, err})
	return err == nil
}

// content is what a trial writes.
func (r *trial) content() ([]byte, Upload) {
	text := []byte("farol check: this object is a trial, and may be deleted\n")
	return text, Upload{Size: int64(len(text)), SHA256: sha256.Sum256(text), MD5: md5.Sum(text), ContentType: "text/plain"}
}

func (r *trial) object(from *Bucket) {
	b, ctx := r.bucket, r.ctx
	text, up := r.content()
	put := r.do("PUT", func() error { _, err := b.Put(ctx, r.key, bytes.NewReader(text), up); return err })
	if put {
		defer func() { r.erase() }() // what DELETE left: versions, or all
		r.do("HEAD", func() error { _, err := b.Head(ctx, r.key); return err })
		r.do("GET", func() error { return b.readAll(ctx, r.key, text) })
	}
	if from != nil && b.reaches(from) {
		r.copyFrom(from, text, up)
	}
	if put {
		r.do("DELETE", func() error { return b.Delete(ctx, r.key) })
	}
}

func (b *Bucket) readAll(ctx context.Context, key string, want []byte) error {
	body, err := b.Get(ctx, key, Range{Length: -1})
	switch {
	case errors.Is(err, ErrArchived):
		return nil // of which it says so, instead of refusing us
	case err != nil:
		return err
	}
	defer body.Close() //nolint:errcheck // it was read to its end
	got, err := io.ReadAll(body)
	if err == nil && !bytes.Equal(got, want) {
		err = b.errorf("get", key, fmt.Errorf("%w: it is not what was written", ErrDigest))
	}
	return err
}

// copyFrom has the server copy an object of its own from another bucket. A source
// that takes no objects is that bucket's failure, and reported there.
func (r *trial) copyFrom(from *Bucket, text []byte, up Upload) {
	source := &trial{bucket: from, ctx: r.ctx, key: r.key + "-copied"}
	if _, err := from.Put(r.ctx, source.key, bytes.NewReader(text), up); err != nil {
		return
	}
	defer func() {
		source.erase()
		r.done = append(r.done, source.done...)
	}()
	copied := &trial{bucket: r.bucket, ctx: r.ctx, key: r.key + "-copy"}
	if r.do("COPY from "+from.target.name(), func() error {
		_, err := r.bucket.copyWhole(r.ctx, Source{Bucket: from, Key: source.key}, copied.key, up)
		if errors.Is(err, errUnsupported) {
			return nil // then the bytes go through the worker
		}
		return err
	}) {
		copied.erase()
		r.done = append(r.done, copied.done...)
	}
}

// erase removes what was written, also for a caller who has been cancelled.
func (r *trial) erase() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastWrite)
	defer cancel()
	if err := r.bucket.Erase(ctx, r.key); err != nil {
		r.done = append(r.done, Tried{"remove the trial object", err})
	}
}

func (r *trial) upload() {
	b := r.bucket
	u := &upload{bucket: b, key: r.key + "-parts"}
	if !r.do("create multipart upload", func() error { return u.create(r.ctx) }) {
		return
	}
	r.do("list parts", func() error {
		_, err := b.api.ListParts(r.ctx, &s3.ListPartsInput{Bucket: &b.target.Bucket, Key: &u.key, UploadId: aws.String(u.id)})
		if err != nil {
			err = b.explain(r.ctx, err)
		}
		return err
	})
	r.do("list multipart uploads", func() error {
		for _, err := range b.OpenUploads(r.ctx) {
			return err
		}
		return nil
	})
	r.do("abort multipart upload", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastWrite)
		defer cancel()
		return b.abort(ctx, u.key, u.id)
	})
}

// deleteNothing deletes a key that is not there. Where versions are kept that would
// leave a marker, and is not tried.
func (r *trial) deleteNothing() {
	if versioned, err := r.bucket.keepsVersions(r.ctx); err != nil || versioned {
		return
	}
	r.do("DELETE", func() error { return r.bucket.Delete(r.ctx, r.key) })
}
