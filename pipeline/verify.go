package pipeline

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// verify asks the storage providers whether every copy that the storage option
// promises is there, whole, carries what it should, and is the only one. It takes
// no word of Store's for it. It does not read the copies: their digests were
// checked by the providers on the way in, and fixity reads them later.
type verify struct{ Deps }

// storedCopy is a copy as its provider described it.
type storedCopy struct {
	Target   string    `json:"target"`
	ETag     string    `json:"etag"`
	Stored   time.Time `json:"stored"`
	Verified time.Time `json:"verified"`
}

func (s *verify) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Deps)
	if err != nil {
		return err
	}
	results, err := w.each(ctx, s.Deps, inShares(c.files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		for _, f := range group {
			var found []storedCopy
			for i, target := range c.targets {
				one, err := s.copy(ctx, w, f, c.names[i], target, c.formats[f.index].MIME)
				if err != nil {
					return fmt.Errorf("copy of %s in %s: %w", f.path, c.names[i], err)
				}
				found = append(found, one)
			}
			finished(f, packCopies(f, found))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeList(ctx, w, s.Deps, copiesName, c.inventoryID, nil, len(c.files), func(yield func(copies) bool) {
		for _, f := range c.files {
			if !yield(copies{f.index, unpackCopies(f, c.names, results[f.index])}) {
				return
			}
		}
	})
}

// packCopies writes copies as Redis keeps them, where each byte counts: of each
// its two times, and its ETag unless that is the content's MD5.
func packCopies(f *file, list []storedCopy) string {
	var b strings.Builder
	for _, c := range list {
		etag := c.ETag
		if etag == storage.ExpectedETag(f.md5, nil) {
			etag = ""
		}
		fmt.Fprintf(&b, "%d %d %s\n", c.Stored.UnixMilli(), c.Verified.UnixMilli(), etag)
	}
	return b.String()
}

// unpackCopies reads what packCopies wrote. Of anything else it makes no copies,
// so that Record has them verified again.
func unpackCopies(f *file, names []string, packed string) []storedCopy {
	var list []storedCopy
	for line := range strings.Lines(packed) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(field) != 3 || len(list) == len(names) {
			return nil
		}
		stored, err := strconv.ParseInt(field[0], 10, 64)
		verified, err2 := strconv.ParseInt(field[1], 10, 64)
		if err != nil || err2 != nil {
			return nil
		}
		list = append(list, storedCopy{
			Target: names[len(list)], ETag: cmp.Or(field[2], storage.ExpectedETag(f.md5, nil)),
			Stored: time.UnixMilli(stored).UTC(), Verified: time.UnixMilli(verified).UTC(),
		})
	}
	return list
}

func (s *verify) copy(ctx context.Context, w *work, f *file, name string, target *storage.Bucket, contentType string) (storedCopy, error) {
	object, err := target.Head(ctx, f.key)
	if errors.Is(err, storage.ErrNotFound) {
		return storedCopy{}, wrong("it was stored and is not there now")
	}
	if err != nil {
		return storedCopy{}, storageErr(err)
	}
	if err := compare(object, w.upload(f, contentType, encodesPath(name)), f); err != nil {
		return storedCopy{}, err
	}
	if err := s.extra(ctx, f, name, target); err != nil {
		return storedCopy{}, err
	}
	return storedCopy{Target: name, ETag: object.ETag, Stored: object.LastModified, Verified: time.Now().UTC()}, nil
}

// extra finds a copy of a file that nobody knows of: of another content, by an item
// that ended before it was recorded. Only a file that is on record can have one: the
// uuid of a new one is this item's alone, and of a deleted one there may be what its
// deletion has left.
func (s *verify) extra(ctx context.Context, f *file, name string, target *storage.Bucket) error {
	if !f.alone {
		return nil
	}
	const most = 100
	var others []string
	for o, err := range target.List(ctx, f.uuid, "") {
		if err != nil {
			return storageErr(err)
		}
		if o.Key != f.key {
			others = append(others, o.Key)
		}
		if len(others) == most {
			break
		}
	}
	if len(others) == 0 {
		return nil
	}
	recorded, retired, err := s.Registry.NamedKeys(ctx, name, others)
	if err != nil {
		return err
	}
	for _, key := range others {
		if !recorded[key] && !retired[key] {
			return claim.Transient("extra-copy", fmt.Errorf("there is a further copy under %s, which no record names", key))
		}
	}
	return nil
}

// compare holds a copy against what it should be. A provider that keeps no
// checksum is taken at its ETag: the content's MD5 or, of a copy that was made in
// parts, that of their MD5s.
func compare(object storage.Object, want storage.Upload, f *file) error {
	if object.Size != want.Size {
		return wrong("it has %d bytes and should have %d", object.Size, want.Size)
	}
	whole, composite := storage.ExpectedChecksum(f.sha256, nil), storage.ExpectedChecksum(f.sha256, f.parts)
	switch {
	case object.SHA256 != "":
		if object.SHA256 != whole && object.SHA256 != composite {
			return wrong("its SHA-256 is %s and should be %s", object.SHA256, whole)
		}
	case object.ETag == storage.ExpectedETag(f.md5, nil):
	case len(f.parts) == 0:
		return wrong("its ETag is %s and should be the MD5 %s", object.ETag, hex.EncodeToString(f.md5[:]))
	case len(f.md5s) == 0:
		return wrong("its provider keeps no SHA-256, and the MD5 of its parts is not known; set the target's CHECKSUM to etag and requeue the item for Receive")
	case object.ETag != storage.ExpectedETag(f.md5, f.md5s):
		return wrong("its ETag is %s and should be the MD5 of its parts, %s", object.ETag, storage.ExpectedETag(f.md5, f.md5s))
	}
	if object.ContentType != want.ContentType {
		return wrong("its content type is %q and should be %q", object.ContentType, want.ContentType)
	}
	for key, value := range want.Metadata {
		if object.Metadata[key] != value {
			return wrong("its metadata %s is %q and should be %q", key, object.Metadata[key], value)
		}
	}
	return nil
}

// wrong says that a copy is not what it should be. Asking again may find it
// right, since some providers show what they hold late; storing it anew is for
// a person to decide.
//
// The last two arguments are what was found and what should be, if there are two.
func wrong(format string, args ...any) error {
	m := &mismatch{text: fmt.Sprintf(format, args...)}
	if n := len(args); n >= 2 {
		m.found, m.expected = fmt.Sprintf("%v", args[n-2]), fmt.Sprintf("%v", args[n-1])
	}
	return claim.Transient("bad-copy", m)
}
