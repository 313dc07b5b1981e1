package ingest

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
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// verify asks the storage providers whether every copy that the storage option promises
// exists, is whole, has the right metadata, and is the only one. It does not rely on Store.
// Unless ReadBack is set, it reads only copies that nothing their provider says proves: the others
// were checked as they came in, and fixity checks read them later. A bad copy sends the item back to
// Store.
type verify struct {
	Registry   *registry.Registry
	Targets    copies.Targets
	unrecorded *lists.Unrecorded
	Files      int  // at once
	ReadBack   bool // each new copy is read
}

func (s *verify) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Targets)
	if err != nil {
		return err
	}
	others := sync.OnceValue(func() error { return s.unrecorded.NoteOthers(ctx, w.Item.ObjectIdentifier, w.Item.ID) })
	results, err := w.each(ctx, s.Files, lists.InShares(c.files, s.Files), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		var bad []error
		for _, f := range group {
			var found []lists.Copy
			good := len(bad)
			for i, target := range c.targets {
				one, err := s.copy(ctx, w, f, c.names[i], target, others)
				switch {
				case claim.Code(err) == "bad-copy": // others may be as well
					bad = append(bad, &badCopy{f, c.names[i], err})
				case err != nil:
					return fmt.Errorf("copy of %s in %s: %w", f.Path, c.names[i], err)
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
	return lists.Write(ctx, w.lists, lists.CopiesName, c.inventoryID, lists.VerifiedIn{Buckets: bucketNames(c.targets)}, len(c.files), func(yield func(lists.Copies) bool) {
		for _, f := range c.files {
			if !yield(lists.Copies{Index: f.Index, Copies: unpackCopies(f, c.names, results[f.Index])}) {
				return
			}
		}
	})
}

// packCopies writes copies as Redis keeps them, where each byte counts: of each
// its two times, how it was verified, and its ETag unless that is the content's MD5.
func packCopies(f *lists.File, list []lists.Copy) string {
	var b strings.Builder
	for _, c := range list {
		etag := c.ETag
		if etag == storage.ExpectedETag(f.MD5, nil) {
			etag = ""
		}
		fmt.Fprintf(&b, "%d %d %s %s\n", c.Stored.UnixMilli(), c.Verified.UnixMilli(), c.By, etag)
	}
	return b.String()
}

// unpackCopies reads what packCopies wrote. Of anything else it makes no copies,
// so that Record has them verified again.
func unpackCopies(f *lists.File, names []string, packed string) []lists.Copy {
	var list []lists.Copy
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
		list = append(list, lists.Copy{
			Target: names[len(list)], By: field[2], ETag: cmp.Or(field[3], storage.ExpectedETag(f.MD5, nil)),
			Stored: time.UnixMilli(stored).UTC(), Verified: time.UnixMilli(verified).UTC(),
		})
	}
	return list
}

func (s *verify) copy(ctx context.Context, w *work, f *lists.File, name string, target *storage.Bucket, others func() error) (lists.Copy, error) {
	object, err := target.Head(ctx, f.Key())
	if errors.Is(err, storage.ErrNotFound) {
		if gone := target.Probe(ctx); gone != nil { // HEAD says the same of a missing bucket
			return lists.Copy{}, cause.Storage(gone)
		}
		return lists.Copy{}, copies.Wrong("it was stored and is now missing")
	}
	if err != nil {
		return lists.Copy{}, cause.Storage(err)
	}
	unproven := copies.CompareIn(ctx, target, object, w.upload(f, copies.EncodesPath(name)), &f.Content)
	if unproven != nil && !errors.Is(unproven, copies.ErrUnproven) {
		return lists.Copy{}, unproven
	}
	if err := s.extra(ctx, f, name, target, others); err != nil {
		return lists.Copy{}, err
	}
	by := "etag"
	if object.SHA256 != "" {
		by = "sha256"
	}
	if (s.ReadBack || unproven != nil) && object.Readable(time.Now()) {
		read, err := readBack(ctx, f, target)
		if err != nil {
			return lists.Copy{}, err
		}
		if read {
			by, unproven = "read", nil
		}
	}
	if unproven != nil { // it is in an archive
		return lists.Copy{}, unproven
	}
	return lists.Copy{Target: name, ETag: object.ETag, Stored: object.LastModified, Verified: time.Now().UTC(), By: by}, nil
}

// extra finds a copy of a file that no record names. Only a file that is on record can have
// one: the uuid of a new file is this item's alone, and of a deleted file there may be what
// its deletion has left. Copies that an earlier version made, and that were never recorded,
// are left to the janitor; others finds these out, which few items need.
func (s *verify) extra(ctx context.Context, f *lists.File, name string, target *storage.Bucket, others func() error) error {
	if !f.Alone {
		return nil
	}
	const most = 100
	var further []string
	for o, err := range target.List(ctx, f.UUID.String(), "") {
		if err != nil {
			return cause.Storage(err)
		}
		if o.Key != f.Key() {
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
	return claim.Transient("extra-copy", fmt.Errorf("extra copy under %s, which no record names", unknown[0]))
}

// unknown returns those of some keys that the registry does not know.
func (s *verify) unknown(ctx context.Context, target string, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	uses, err := upkeep.In(s.Registry).KeyUses(ctx, target, keys)
	return slices.DeleteFunc(keys, func(key string) bool { return uses[key] != upkeep.KeyUse{} }), err
}

// badCopy is a copy that is not what it should be.
type badCopy struct {
	file   *lists.File
	target string
	err    error
}

func (b *badCopy) Error() string {
	return fmt.Sprintf("copy of %s in %s under the key %s: %v", b.file.Path, b.target, b.file.Key(), b.err)
}

func (b *badCopy) Unwrap() error { return b.err }

// sendBack sends the item back for its bad copies. Other errors come first: the next attempt
// may find more bad copies.
func (s *verify) sendBack(ctx context.Context, w *work, err error) error {
	list, all := cause.All[*badCopy](err)
	if !all {
		return err
	}
	each := make([]error, len(list))
	for i, b := range list {
		each[i] = cause.InFile(b.file.Path, b)
		kept := w.Progress.Put(ctx, w.Claim(), badCopies, noteOf(b.target, b.file), b.err.Error())
		switch {
		case errors.Is(kept, progress.ErrLost):
			return w.ProgressErr(kept)
		case kept != nil:
			w.Log.WarnContext(ctx, "cannot record a bad copy; Store will replace it only if its size, checksum or metadata differ", "err", kept)
		}
	}
	return claim.SendBackAs("bad-copy", registry.Store, errors.Join(each...))
}

// readBack compares the bytes of a new copy with its digest, and tells whether it could:
// what was archived at once cannot be read.
func readBack(ctx context.Context, f *lists.File, target *storage.Bucket) (read bool, err error) {
	want := hex.EncodeToString(f.SHA256[:])
	l, err := copies.Look(ctx, target, f.Key(), want, time.Second)
	switch {
	case errors.Is(err, storage.ErrArchived):
		return false, nil
	case errors.Is(err, copies.ErrWavers):
		return false, cause.WrongAnswer(target, "two reads differ", "read %s back: %w", f.Path, err)
	case err != nil:
		return false, cause.Storage(err)
	case l.Found != want:
		return false, copies.Wrong("its content has SHA-256 %s, expected %s", copies.OrNothing(l.Found), want)
	}
	return true, nil
}

func bucketNames(targets []*storage.Bucket) (names []string) {
	for _, b := range targets {
		names = append(names, b.Name())
	}
	return names
}
