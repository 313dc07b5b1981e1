// Package trial tries in a bucket what the pipeline does there. What comes in is a bucket and
// what its process needs; what goes out is each operation with its error. By the way the client
// learns what the bucket's store can do: see [ability.Known].
package trial

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// Options say what is tried. Listing, and reading a key that is not there, are tried always.
type Options struct {
	Object  bool            // write a small object, read it and delete it
	Uploads bool            // begin a multipart upload, list its parts and abort it; it has none, so nothing is stored
	Delete  bool            // delete a key that is not there, if the bucket keeps no versions; not needed with Object
	Erase   bool            // ask for versions, and where they are kept, list those of the key and remove one that is not there
	From    *storage.Bucket // with Object: have the server copy an object from there, if it can
	Ways    bool            // with Object: what a store can do: uploads in parts, copied parts, conditions, deletion of many; about 15 MiB
	Signed  bool            // send a part by a signed URL, as a browser does
	Origin  string          // with Signed: of the pages that send parts; "": none
}

// A Tried is an operation that was tried, and what came of it. Err is nil if we
// may do that.
type Tried struct {
	Right string // such as "PUT" or "abort multipart upload"
	Err   error
}

// Delete is the right that not all processes need.
const Delete = "DELETE"

const (
	lastWrite = 10 * time.Second // to clean up after a caller who has been cancelled
	part      = 5 << 20          // the smallest that S3 takes for a part but the last
	longValue = 1400             // bytes of the longest value of metadata that the pipeline writes
)

// Try finds out which operations the bucket allows. What it writes is under key
// and gone when it returns, with all versions; if it is not, the last Tried is
// "remove the trial object". It ends early when ctx does.
func Try(ctx context.Context, b *storage.Bucket, key string, o Options) []Tried {
	r := &trial{bucket: b, ctx: ctx, key: key}
	r.do("LIST", func() error {
		for _, err := range b.List(ctx, key, "") {
			return err
		}
		return nil
	})
	if o.Object {
		r.object(o) //nolint:contextcheck // what it writes is removed also for a caller who has been cancelled
	} else {
		r.do("HEAD", func() error { return absent(b.Head(ctx, key)) })
		r.do("GET", func() error {
			body, err := b.Get(ctx, key, storage.Range{Length: 1})
			if err == nil {
				err = body.Close()
			}
			return absent(storage.Object{}, err)
		})
	}
	if o.Uploads || o.Signed {
		r.upload(o) //nolint:contextcheck // likewise
	}
	if o.Erase {
		r.versions()
		if !o.Object {
			r.do(Delete, func() error { return b.MayErase(ctx, key) })
		}
	}
	if o.Delete && !o.Object {
		r.deleteNothing()
	}
	return r.done
}

// absent is nil for an answer that only says that a key is not there.
func absent(_ storage.Object, err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

type trial struct {
	bucket *storage.Bucket
	ctx    context.Context //nolint:containedctx // it lasts for one call of Try
	key    string
	wrote  []string // other keys
	done   []Tried
}

// do tries something, and reports whether it went well.
func (r *trial) do(right string, what func() error) bool {
	err := what()
	r.done = append(r.done, Tried{right, err})
	return err == nil
}

// content is what a trial writes.
func content() ([]byte, storage.Upload) {
	text := []byte("farol check: this object is a trial, and may be deleted\n")
	return text, describe(text)
}

func describe(content []byte) storage.Upload {
	return storage.Upload{
		Size: int64(len(content)), SHA256: sha256.Sum256(content), MD5: md5.Sum(content), ContentType: "text/plain",
		Metadata: map[string]string{"bagpath-encoded": strings.Repeat("trial", longValue/5)},
	}
}

func (r *trial) object(o Options) {
	b, ctx := r.bucket, r.ctx
	text, up := content()
	put := r.do("PUT", func() error { _, err := b.Put(ctx, r.key, bytes.NewReader(text), up); return err })
	defer r.erase() // what DELETE left: versions, or all
	if put {
		r.do("HEAD", func() error {
			head, err := b.Head(ctx, r.key)
			if err == nil {
				b.Described(head, up)
			}
			return err
		})
		r.do("GET", func() error { return readAll(ctx, b, r.key, text) })
	}
	if o.From != nil && b.Reaches(o.From) {
		r.copyFrom(o.From, text, up, o.Ways)
	}
	if put && o.Ways {
		r.ways(text, up)
	}
	if put {
		r.do(Delete, func() error { return b.Delete(ctx, r.key) })
	}
}

// readAll reads under the condition that the object is still the one that was written.
func readAll(ctx context.Context, b *storage.Bucket, key string, want []byte) error {
	o, err := b.Head(ctx, key)
	if err != nil {
		return nil // which HEAD has said
	}
	body, err := b.Get(ctx, key, storage.Range{Length: -1, IfMatch: o.ETag})
	switch {
	case errors.Is(err, storage.ErrArchived):
		return nil // it says so, instead of refusing us
	case err != nil:
		return err
	}
	defer body.Close() //nolint:errcheck // it was read to its end
	got, err := io.ReadAll(body)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("get %s: %w: it is not what was written", key, storage.ErrDigest)
	}
	return err
}

// large is content of two parts.
func large() (storage.Upload, storage.Parts) {
	text := bytes.Repeat([]byte("farol check: a trial of two parts; "), part/35+40)
	p := storage.Parts{Size: part, Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text[offset : offset+length])), nil
	}}
	for from := 0; from < len(text); from += part {
		one := text[from:min(from+part, len(text))]
		p.SHA256, p.MD5 = append(p.SHA256, sha256.Sum256(one)), append(p.MD5, md5.Sum(one))
	}
	return describe(text), p
}

// ways tries what stores differ in.
func (r *trial) ways(text []byte, up storage.Upload) {
	b, ctx := r.bucket, r.ctx
	whole, parts := large()
	r.do("PUT in parts", func() error {
		_, err := b.PutParts(ctx, r.name("-large"), whole, parts)
		return err
	})
	r.do("DELETE of several", func() error {
		keys := []string{r.name("-one"), r.name("-two")}
		for _, key := range keys {
			if _, err := b.Put(ctx, key, bytes.NewReader(text), up); err != nil {
				return nil //nolint:nilerr // which PUT has said
			}
		}
		return b.Delete(ctx, keys...)
	})
}

// name is another key that the trial may write.
func (r *trial) name(suffix string) string {
	r.wrote = append(r.wrote, r.key+suffix)
	return r.key + suffix
}

// copyFrom has the server copy an object of its own from another bucket, and two parts of one
// that was uploaded in parts, as Store does. A source that takes no objects is that bucket's
// failure, and reported there.
func (r *trial) copyFrom(from *storage.Bucket, text []byte, up storage.Upload, inParts bool) {
	source := &trial{bucket: from, ctx: r.ctx, key: r.key + "-copied"}
	o, err := from.Put(r.ctx, source.key, bytes.NewReader(text), up)
	if err != nil {
		return
	}
	defer func() {
		source.erase()
		r.done = append(r.done, source.done...)
	}()
	r.do("COPY from "+from.TargetName(), func() error {
		_, err := r.bucket.CopyWhole(r.ctx, storage.Source{Bucket: from, Key: source.key, IfMatch: o.ETag}, r.name("-copy"), up)
		if errors.Is(err, storage.ErrUnsupported) {
			return nil // then the bytes go through the worker
		}
		return err
	})
	if !inParts {
		return
	}
	whole, parts := large()
	plain := storage.Parts{Size: part, Open: parts.Open} // the tar in staging has no digests either
	if o, err = from.PutParts(r.ctx, source.name("-large"), storage.Upload{Size: whole.Size}, plain); err != nil {
		return
	}
	r.do("COPY of parts from "+from.TargetName(), func() error {
		_, err := r.bucket.Copy(r.ctx, storage.Source{Bucket: from, Key: source.key + "-large", IfMatch: o.ETag, Range: true}, r.name("-copies"), whole, parts)
		return err
	})
}

// erase removes what was written, also for a caller who has been cancelled.
func (r *trial) erase() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastWrite)
	defer cancel()
	if err := r.bucket.Erase(ctx, append(r.wrote, r.key)...); err != nil {
		r.done = append(r.done, Tried{"remove the trial object", err})
	}
}

func (r *trial) upload(o Options) {
	b := r.bucket
	var u storage.OpenUpload
	if !r.do("create multipart upload", func() (err error) { u, err = b.BeginUpload(r.ctx, r.key+"-parts", "text/plain"); return err }) {
		return
	}
	if o.Signed {
		r.do("PUT by a signed URL", func() error { return r.signed(u, o.Origin) })
	}
	r.do("list parts", func() error { _, err := b.SentParts(r.ctx, u); return err })
	if o.Object && o.Signed {
		r.do("PUT if there is none", func() error { return r.onlyNew(u) })
	}
	r.do("list multipart uploads", func() error {
		for _, err := range b.OpenUploads(r.ctx) {
			return err
		}
		return nil
	})
	r.do("abort multipart upload", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastWrite)
		defer cancel()
		return b.Abort(ctx, u)
	})
}

// signed sends a part as a browser does: after the question whether a page may, without our key.
func (r *trial) signed(u storage.OpenUpload, origin string) error {
	text, up := content()
	signed, err := r.bucket.SignPart(r.ctx, u, 1, up.Size, up.SHA256, time.Minute)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: r.bucket.Conn().Transport()}
	if origin != "" {
		ask, err := http.NewRequestWithContext(r.ctx, http.MethodOptions, signed.URL, nil)
		if err != nil {
			return fmt.Errorf("ask for a page: %w", err)
		}
		ask.Header.Set("Origin", origin)
		ask.Header.Set("Access-Control-Request-Method", http.MethodPut)
		ask.Header.Set("Access-Control-Request-Headers", "x-amz-checksum-sha256")
		answer, err := answered(client, ask)
		if allowed := answer.Get("Access-Control-Allow-Origin"); err == nil && allowed != "*" && allowed != origin {
			err = fmt.Errorf("pages of %s may not upload: the answer to a browser's question allows %q", origin, allowed)
		}
		if err != nil {
			return err
		}
	}
	send, err := http.NewRequestWithContext(r.ctx, http.MethodPut, signed.URL, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("send a part: %w", err)
	}
	send.Header = signed.Header.Clone()
	_, err = answered(client, send)
	return err
}

// answered returns the header of an answer that is a success.
func answered(client *http.Client, ask *http.Request) (http.Header, error) {
	const most = 4096
	response, err := client.Do(ask)
	if err != nil {
		return nil, fmt.Errorf("%s by a signed URL: %w", ask.Method, errors.New(storage.Redact(err.Error())))
	}
	defer response.Body.Close() //nolint:errcheck // what counts has been read
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s by a signed URL: HTTP %s: %s", ask.Method, response.Status, strings.Join(strings.Fields(string(text)), " "))
	}
	return response.Header, err
}

// onlyNew completes the upload under a key that has an object already.
func (r *trial) onlyNew(u storage.OpenUpload) error {
	text, up := content()
	if _, err := r.bucket.Put(r.ctx, u.Key, bytes.NewReader(text), up); err != nil {
		return nil // which PUT has said
	}
	defer func() {
		(&trial{bucket: r.bucket, ctx: r.ctx, key: u.Key}).erase()
	}()
	return r.bucket.TryCreateOnly(r.ctx, u, up.Size)
}

func (r *trial) versions() {
	keeps := false
	r.do("GET versioning", func() (err error) { keeps, err = r.bucket.KeepsVersions(r.ctx); return err })
	r.do("LIST versions", func() error {
		if !keeps {
			return nil // which is not needed then
		}
		for _, err := range r.bucket.Versions(r.ctx, r.key) {
			return err
		}
		return nil
	})
}

// deleteNothing deletes a key that is not there. Where versions are kept that would
// leave a marker, and is not tried.
func (r *trial) deleteNothing() {
	if versioned, err := r.bucket.KeepsVersions(r.ctx); err != nil || versioned {
		return
	}
	r.do(Delete, func() error { return r.bucket.Delete(r.ctx, r.key) })
}
