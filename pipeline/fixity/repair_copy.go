package fixity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// repairedFile is the file of a bad copy, as the stages of an ingest know it.
func repairedFile(w fixity.Repair) (*copies.Content, error) {
	f := &copies.Content{Path: w.Path, Size: w.Size}
	sha, err := hex.DecodeString(w.SHA256)
	if err != nil || len(sha) != len(f.SHA256) {
		return nil, errNoDigest
	}
	f.SHA256 = [32]byte(sha)
	if sum, err := hex.DecodeString(w.MD5); err == nil && len(sum) == len(f.MD5) {
		f.MD5 = [16]byte(sum)
	}
	return f, nil
}

// sources are the other copies that are not known to be bad, the preferred one first.
func (r *Repairer) sources(w fixity.Repair) []record.FixityOtherCopy {
	list := slices.DeleteFunc(slices.Clone(w.Others), func(c record.FixityOtherCopy) bool {
		b := r.Targets[c.Target]
		return c.Bad || b == nil || b.Name() != c.Bucket
	})
	slices.SortStableFunc(list, func(x, y record.FixityOtherCopy) int {
		return cmp.Compare(r.Targets.Priority(x.Target), r.Targets.Priority(y.Target))
	})
	return list
}

// errBadSource says that a copy cannot be what another is replaced by.
var errBadSource = errors.New("it cannot be used")

// checkLimit returns an error if more copies of a provider fail than the repair limit allows.
func (r *Repairer) checkLimit(ctx context.Context, provider string) error {
	b, err := fixity.In(r.Registry).CheckRepairLimit(ctx, provider, r.Limits)
	if err == nil && b != nil {
		err = fmt.Errorf("%w: %s", errStopped, b.Reason)
	}
	return err
}

func (r *Repairer) again() time.Duration { return cmp.Or(r.Again, 2*time.Second) }

// replace writes a good copy over a bad one, and sees that it is good. Until the last
// byte of it was compared nothing is written, but parts of an upload; a copy that
// turns out to be bad on the way leaves the other as it is.
func (r *Repairer) replace(ctx context.Context, b *storage.Bucket, w fixity.Repair, f *copies.Content, from record.FixityOtherCopy, quarantinedAs string) error {
	source := r.Targets[from.Target]
	object, err := source.Head(ctx, from.Key)
	if err != nil {
		return r.badSource(ctx, w, from, err)
	}
	if !object.Readable(time.Now()) {
		return fmt.Errorf("%w: %w", errBadSource, r.archived(ctx, source, object))
	}
	var parts storage.Parts
	if size := r.partSize(f.Size); size > 0 {
		if parts, err = partsOf(ctx, source, from.Key, object.ETag, f, size); err != nil {
			return r.badSource(ctx, w, from, err)
		}
	}
	if err := r.checkLimit(ctx, w.Provider); err != nil { // it may have got worse in the meantime
		return err
	}
	if err := fixity.In(r.Registry).NoteRepair(ctx, w, quarantinedAs, from.URL); err != nil {
		return err
	}
	up := copies.UploadOf(w.Institution, w.Object, f, w.Format, copies.EncodesPath(w.Target))
	if parts.Size > 0 {
		_, err = b.PutParts(ctx, w.Key, up, parts)
	} else {
		err = putFrom(ctx, source, from.Key, object.ETag, b, w.Key, up)
	}
	if err != nil {
		return r.badSource(ctx, w, from, err)
	}
	return r.verify(ctx, b, w, f, up)
}

// partSize is 0 for what goes in a single request.
func (r *Repairer) partSize(size int64) int64 {
	if r.parts > 0 && size > r.parts {
		return r.parts
	}
	return storage.PartSize(size)
}

// badSource tells errors that are the good copy's from others, and puts one on record
// that is none.
func (r *Repairer) badSource(ctx context.Context, w fixity.Repair, from record.FixityOtherCopy, err error) error {
	if !errors.Is(err, storage.ErrDigest) && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	seen := err
	if errors.Is(err, storage.ErrDigest) {
		seen = copies.ErrBadCopy
	}
	bad, failed := r.Targets.Prove(ctx, r.Registry, from.StoredCopy, w.SHA256, seen)
	if failed != nil || !bad { // then it was not the source
		return errors.Join(err, failed)
	}
	noted := fixity.In(r.Registry).NoteRepair(ctx, w, "", "") // nothing was written by it
	return fmt.Errorf("%w: %w", errBadSource, errors.Join(err, noted))
}

// archived is the error of an object that has to be made readable first, which is
// asked for if that is wanted.
func (r *Repairer) archived(ctx context.Context, b *storage.Bucket, o storage.Object) error {
	const days = 3
	switch {
	case o.Restoration.Ongoing:
		return fmt.Errorf("%w, and is being made readable; repair it again when it is", errCold)
	case r.Retrieve == "":
		return fmt.Errorf("%w, and has to be made readable first, which costs money: a repair does so if its retrieval tier is set", errCold)
	}
	state, err := b.Restore(ctx, o.Key, storage.Retrieval{Days: days, Tier: r.Retrieve})
	if err != nil {
		return fmt.Errorf("%w, and cannot be made readable: %w", errCold, err)
	}
	return fmt.Errorf("%w; it was asked for (%s), and will be readable for %d days: repair it again then", errCold, state, days)
}

// putFrom streams an object that goes in a single request. Its last bytes are held
// back until the digest is right.
func putFrom(ctx context.Context, source *storage.Bucket, key, etag string, b *storage.Bucket, to string, up storage.Upload) error {
	body, err := source.Get(ctx, key, storage.Range{Length: -1, IfMatch: etag})
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // it was read as far as it was needed
	_, err = b.Put(ctx, to, body, up)
	return err
}

// partsOf reads an object to its end, compares it with its digest, and returns the
// parts in which it is to be uploaded, each with its own digests: what is read for
// them once more is compared as well.
func partsOf(ctx context.Context, source *storage.Bucket, key, etag string, f *copies.Content, size int64) (storage.Parts, error) {
	f.Parts = &bag.PartDigests{}
	p := storage.Parts{Size: size}
	p.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		return source.Get(ctx, key, storage.Range{Offset: offset, Length: length, IfMatch: etag})
	}
	body, err := source.Get(ctx, key, storage.Range{Length: -1, IfMatch: etag})
	if err != nil {
		return p, err
	}
	defer body.Close() //nolint:errcheck // it was read as far as it was needed
	whole, buf := sha256.New(), make([]byte, 256<<10)
	for offset := int64(0); offset < f.Size; offset += p.Size {
		sha, sum := sha256.New(), md5.New()
		length := min(p.Size, f.Size-offset)
		n, err := io.CopyBuffer(onlyWriter{io.MultiWriter(whole, sha, sum)}, io.LimitReader(body, length), buf)
		if err != nil {
			return p, err
		}
		if n < length {
			return p, fmt.Errorf("%w: it has %d bytes, expected %d", storage.ErrDigest, offset+n, f.Size)
		}
		f.Parts.SHA256, f.Parts.MD5 = append(f.Parts.SHA256, [32]byte(sha.Sum(nil))), append(f.Parts.MD5, [16]byte(sum.Sum(nil)))
	}
	if got := whole.Sum(nil); !bytes.Equal(got, f.SHA256[:]) {
		return p, fmt.Errorf("%w: SHA-256 is %x, expected %x", storage.ErrDigest, got, f.SHA256)
	}
	p.SHA256, p.MD5 = f.Parts.SHA256, f.Parts.MD5
	return p, nil
}

// onlyWriter has io.CopyBuffer use the buffer.
type onlyWriter struct{ io.Writer }

// verify sees that what was written is what should be: by asking the provider, and by
// reading it, unless it is archived as soon as it is there.
func (r *Repairer) verify(ctx context.Context, b *storage.Bucket, w fixity.Repair, f *copies.Content, up storage.Upload) error {
	object, err := b.Head(ctx, w.Key)
	if err != nil {
		return fmt.Errorf("check the new copy: %w", err)
	}
	unproven := copies.CompareIn(ctx, b, object, up, f)
	if unproven != nil && !errors.Is(unproven, copies.ErrUnproven) {
		return fmt.Errorf("the new copy is bad: %w", unproven)
	}
	l, err := copies.Look(ctx, b, w.Key, w.SHA256, r.again())
	switch {
	case errors.Is(err, storage.ErrArchived):
		return unproven // nil: its provider compared the digest as it came
	case err != nil:
		return fmt.Errorf("read the new copy back: %w", err)
	case l.Found != w.SHA256:
		return fmt.Errorf("the new copy has SHA-256 %s, expected %s", copies.OrNothing(l.Found), w.SHA256)
	}
	return nil
}

// quarantine keeps the bad bytes under a name that only this failure has, so that a repeated
// repair finds them. If the bytes keep changing, all versions are kept.
func (r *Repairer) quarantine(ctx context.Context, b *storage.Bucket, w fixity.Repair, found string) (url string, err error) {
	if err := r.Quarantine.Check(ctx); errors.Is(err, storage.ErrDenied) {
		if err := r.Quarantine.Create(ctx); err != nil {
			return "", err
		}
	}
	key := w.Target + "/" + w.Key + "/" + w.FoundAt.UTC().Format("20060102T150405.000000Z")
	kept, _, err := copies.DigestOf(ctx, r.Quarantine, key)
	switch {
	case err == nil && kept == found:
		return r.Quarantine.URL(key), nil
	case err == nil:
		key += "-" + found
	case !errors.Is(err, storage.ErrNotFound):
		return "", err
	}
	object, err := b.Head(ctx, w.Key)
	if err != nil {
		return "", err
	}
	sum, err := hex.DecodeString(found)
	if err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("read the digest %q", found)
	}
	up := storage.Upload{
		Size: object.Size, SHA256: [32]byte(sum), ContentType: "application/octet-stream",
		Metadata: map[string]string{"sha256": found, "expected": w.SHA256}, Later: true,
	}
	if _, err := r.Quarantine.Copy(ctx, storage.Source{Bucket: b, Key: w.Key, IfMatch: object.ETag}, key, up, storage.Parts{}); err != nil {
		return "", err
	}
	if kept, _, err = copies.DigestOf(ctx, r.Quarantine, key); err == nil && kept != found {
		err = fmt.Errorf("%w: saved with SHA-256 %s, read back with %s", storage.ErrDigest, kept, found)
	}
	return r.Quarantine.URL(key), err
}
