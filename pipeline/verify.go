package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// verify asks the storage providers whether every copy that the storage option
// promises is there, whole, and carries what it should. It takes no word of
// Store's for it. It does not read the copies: their digests were checked by
// the providers on the way in, and fixity reads them later.
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
			row := copies{Index: f.index}
			for i, target := range c.targets {
				found, err := s.copy(ctx, w, f, c.names[i], target, c.formats[f.index].MIME)
				if err != nil {
					return fmt.Errorf("copy of %s in %s: %w", f.path, c.names[i], err)
				}
				row.Copies = append(row.Copies, found)
			}
			result, err := encode(row)
			if err != nil {
				return err
			}
			finished(f, result)
		}
		return nil
	})
	if err != nil {
		return err
	}
	rows := slices.Sorted(maps.Keys(results))
	return writeList(ctx, w, s.Deps, copiesName, c.inventoryID, nil, len(rows), func(yield func(json.RawMessage) bool) {
		for _, i := range rows {
			if !yield(json.RawMessage(results[i])) {
				return
			}
		}
	})
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
	return storedCopy{Target: name, ETag: object.ETag, Stored: object.LastModified, Verified: time.Now().UTC()}, nil
}

// compare holds a copy against what it should be. A provider that keeps no
// checksum is taken at its ETag, which is the content's MD5 unless the copy was
// made in parts.
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
	case len(f.parts) == 0 && object.ETag != storage.ExpectedETag(f.md5, nil):
		return wrong("its ETag is %s and should be the MD5 %x", object.ETag, f.md5)
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
func wrong(format string, args ...any) error {
	return claim.Transient("bad-copy", fmt.Errorf(format, args...))
}
