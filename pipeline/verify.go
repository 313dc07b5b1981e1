package pipeline

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// verify asks the storage providers whether every copy that the storage option
// promises is there, whole, carries what it should, and is the only one. It takes
// no word of Store's for it. Unless ReadBack is set, it does not read the copies:
// their digests were checked by the providers on the way in, and fixity reads them
// later. A copy that is not what it should be goes back to Store.
type verify struct{ Deps }

// storedCopy is a copy as its provider described it.
type storedCopy struct {
	Target   string    `json:"target"`
	ETag     string    `json:"etag"`
	Stored   time.Time `json:"stored"`
	Verified time.Time `json:"verified"`
	By       string    `json:"by"` // see [registry.Copy]
}

// verifiedIn is where the copies of a list were verified: the buckets of the storage
// option's targets, in their order.
type verifiedIn struct {
	Buckets []string `json:"buckets"`
}

func bucketNames(targets []*storage.Bucket) (names []string) {
	for _, b := range targets {
		names = append(names, b.Name())
	}
	return names
}

func (s *verify) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Deps)
	if err != nil {
		return err
	}
	others := sync.OnceValue(func() error { return s.noteOthers(ctx, w.item.ObjectIdentifier, w.item.ID) })
	results, err := w.each(ctx, s.Deps, inShares(c.files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		var bad []error
		for _, f := range group {
			var found []storedCopy
			good := len(bad)
			for i, target := range c.targets {
				one, err := s.copy(ctx, w, f, c.names[i], target, c.mimes[f.index].MIME, others)
				switch {
				case claim.Code(err) == "bad-copy": // others may be as well
					bad = append(bad, &badCopy{f, c.names[i], err})
				case err != nil:
					return fmt.Errorf("copy of %s in %s: %w", f.path, c.names[i], err)
				}
				found = append(found, one)
			}
			if len(bad) == good {
				finished(f, packCopies(f, found))
			}
		}
		return errors.Join(bad...)
	})
	if err != nil {
		return s.sendBack(ctx, w, err)
	}
	return writeList(ctx, w, s.Deps, copiesName, c.inventoryID, verifiedIn{bucketNames(c.targets)}, len(c.files), func(yield func(copies) bool) {
		for _, f := range c.files {
			if !yield(copies{f.index, unpackCopies(f, c.names, results[f.index])}) {
				return
			}
		}
	})
}

// packCopies writes copies as Redis keeps them, where each byte counts: of each
// its two times, how it was verified, and its ETag unless that is the content's MD5.
func packCopies(f *file, list []storedCopy) string {
	var b strings.Builder
	for _, c := range list {
		etag := c.ETag
		if etag == storage.ExpectedETag(f.md5, nil) {
			etag = ""
		}
		fmt.Fprintf(&b, "%d %d %s %s\n", c.Stored.UnixMilli(), c.Verified.UnixMilli(), c.By, etag)
	}
	return b.String()
}

// unpackCopies reads what packCopies wrote. Of anything else it makes no copies,
// so that Record has them verified again.
func unpackCopies(f *file, names []string, packed string) []storedCopy {
	var list []storedCopy
	for line := range strings.Lines(packed) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(field) != 4 || len(list) == len(names) {
			return nil
		}
		stored, err := strconv.ParseInt(field[0], 10, 64)
		verified, err2 := strconv.ParseInt(field[1], 10, 64)
		if err != nil || err2 != nil {
			return nil
		}
		list = append(list, storedCopy{
			Target: names[len(list)], By: field[2], ETag: cmp.Or(field[3], storage.ExpectedETag(f.md5, nil)),
			Stored: time.UnixMilli(stored).UTC(), Verified: time.UnixMilli(verified).UTC(),
		})
	}
	return list
}

func (s *verify) copy(ctx context.Context, w *work, f *file, name string, target *storage.Bucket, contentType string, others func() error) (storedCopy, error) {
	object, err := target.Head(ctx, f.key)
	if errors.Is(err, storage.ErrNotFound) {
		if gone := target.Probe(ctx); gone != nil { // HEAD says the same of a missing bucket
			return storedCopy{}, storageErr(gone)
		}
		return storedCopy{}, wrong("it was stored and is not there now")
	}
	if err != nil {
		return storedCopy{}, storageErr(err)
	}
	if err := compare(object, w.upload(f, contentType, encodesPath(name)), f); err != nil {
		return storedCopy{}, err
	}
	if err := s.extra(ctx, f, name, target, others); err != nil {
		return storedCopy{}, err
	}
	by := "etag"
	if object.SHA256 != "" {
		by = "sha256"
	}
	if s.ReadBack && object.Readable(time.Now()) {
		read, err := readBack(ctx, f, target)
		if err != nil {
			return storedCopy{}, err
		}
		if read {
			by = "read"
		}
	}
	return storedCopy{Target: name, ETag: object.ETag, Stored: object.LastModified, Verified: time.Now().UTC(), By: by}, nil
}

// extra finds a copy of a file that nobody knows of. Only a file that is on record can
// have one: the uuid of a new one is this item's alone, and of a deleted one there may
// be what its deletion has left. What an earlier version made that never came on record
// is left to the janitor; others finds it out, which few items need.
func (s *verify) extra(ctx context.Context, f *file, name string, target *storage.Bucket, others func() error) error {
	if !f.alone {
		return nil
	}
	const most = 100
	var further []string
	for o, err := range target.List(ctx, f.uuid, "") {
		if err != nil {
			return storageErr(err)
		}
		if o.Key != f.key {
			further = append(further, o.Key)
		}
		if len(further) == most {
			break
		}
	}
	unknown, err := s.unknown(ctx, name, further)
	if err != nil || len(unknown) == 0 {
		return err
	}
	if err := others(); err != nil {
		return err
	}
	if unknown, err = s.unknown(ctx, name, unknown); err != nil || len(unknown) == 0 {
		return err
	}
	return claim.Transient("extra-copy", fmt.Errorf("there is a further copy under %s, which no record names", unknown[0]))
}

// unknown returns those of some keys of which the registry knows nothing.
func (s *verify) unknown(ctx context.Context, target string, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	uses, err := upkeep.In(s.Registry).KeyUses(ctx, target, keys)
	return slices.DeleteFunc(keys, func(key string) bool { return uses[key] != upkeep.KeyUse{} }), err
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
// right, since some providers show what they hold late.
//
// The last two arguments are what was found and what should be, if there are two.
func wrong(format string, args ...any) error {
	m := &mismatch{text: fmt.Sprintf(format, args...)}
	if n := len(args); n >= 2 {
		m.found, m.expected = fmt.Sprintf("%v", args[n-2]), fmt.Sprintf("%v", args[n-1])
	}
	return claim.Transient("bad-copy", m)
}
