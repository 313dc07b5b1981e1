package lists

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
)

// NewFile gives a file that is new to the registry its key in preservation
// storage, which is its uuid.
func NewFile(i int, f *bag.File) *File {
	return &File{
		Index: i, Offset: f.Offset,
		Content: copies.Content{
			Path: f.Path, Size: f.Size, MD5: f.Digests.MD5, SHA256: f.Digests.SHA256, Parts: f.Parts, PartsMD5: f.PartsMD5,
		},
		UUID: f.UUID, Key: f.UUID, Format: f.Format,
	}
}

// Reingest gives a file that is on record its uuid, and a key of that and the
// beginning of its SHA-256, so that the old bytes stay until the record has
// switched to the new.
func (f *File) Reingest(k Known) {
	if k.UUID != "" {
		f.UUID = k.UUID
		f.Key = k.UUID + "." + hex.EncodeToString(f.SHA256[:8])
		if k.Key != "" {
			f.Key = k.Key
		}
		f.Alone = !k.Deleted
	}
}

// File is what the stages after Receive need of a file of the bag. There may be
// hundreds of thousands of them, so it is small.
type File struct {
	Index int // place in the inventory
	copies.Content
	Offset int64 // of the content in the tar
	UUID   string
	Key    string // in preservation storage
	Format string // media type by extension
	Pack   *Pack  // what it is staged in
	At     int64  // its place in the pack
	Alone  bool   // it is on record, so that every copy of it should be
}

const (
	// WholeFile is the size in bytes up to which files share an object in the staging
	// area, and are read into memory. Larger ones are streamed.
	WholeFile = 256 << 10

	// A request reads at most so many bytes and files. Between two of them the tar
	// may have so much else: headers, and files that are not wanted.
	maxRequest = 2 << 20
	maxFiles   = 64
	maxGap     = 64 << 10

	// fewFiles are read by one request although other workers then have nothing to do: a
	// request costs about as much as they would save.
	fewFiles = 8
)

// A Pack is an object in the staging area: the content of small files that are
// neighbours in the tar, one after the other, or a file alone. A bag may have
// 100,000 files, and a request costs a store more than some KiB do.
type Pack struct{ Files []*File }

// PackFiles puts every file of a list into a pack. The same list gives the same
// packs, so each stage finds what another has staged.
func PackFiles(files []*File) {
	groups := groupFiles(files, func(group []*File, f *File) bool {
		return len(group) < maxFiles && together(group, f, WholeFile)
	})
	for _, group := range groups {
		p := &Pack{group}
		at := int64(0)
		for _, f := range group {
			f.Pack, f.At = p, at
			at += f.Size
		}
	}
}

// Shared tells whether the pack is of several files.
func (p *Pack) Shared() bool { return len(p.Files) > 1 }

// Size is that of the object in bytes.
func (p *Pack) Size() int64 {
	last := p.Files[len(p.Files)-1]
	return last.At + last.Size
}

// Key names a pack in staging by what is in it, so that one from an earlier pass
// of the item is never taken for another. A file alone has its own key.
func (p *Pack) Key() string {
	if !p.Shared() {
		return p.Files[0].Key
	}
	hash := sha256.New()
	for _, f := range p.Files {
		hash.Write(f.SHA256[:])
	}
	return "pack-" + hex.EncodeToString(hash.Sum(nil))
}

// groupFiles divides a list, in its order, into groups of files that belong with
// those before them.
func groupFiles(files []*File, belongs func(group []*File, f *File) bool) [][]*File {
	var groups [][]*File
	for _, f := range files {
		if n := len(groups) - 1; n >= 0 && belongs(groups[n], f) {
			groups[n] = append(groups[n], f)
		} else {
			groups = append(groups, []*File{f})
		}
	}
	return groups
}

// together tells whether one request should read f and the group before it, all
// of at most so many bytes, from the tar.
func together(group []*File, f *File, largest int64) bool {
	first, last := group[0], group[len(group)-1]
	end := last.Offset + last.Size
	return last.Size <= largest && f.Size <= largest &&
		f.Offset >= end && f.Offset-end <= maxGap && f.Offset+f.Size-first.Offset <= maxRequest
}

// share is how many files go into a group at most, so that so many workers all have
// something to do, unless each would have fewer than few.
func share(files []*File, workers, few int) int {
	return min(max(len(files)/(2*workers), few), maxFiles)
}

// InTheTar groups files that one request reads from the tar.
func InTheTar(files []*File, workers int) [][]*File {
	most := share(files, workers, fewFiles)
	return groupFiles(files, func(group []*File, f *File) bool {
		return len(group) < most && together(group, f, WholeFile)
	})
}

// InPacks groups files by the object that they are staged in.
func InPacks(files []*File) [][]*File {
	return groupFiles(files, func(group []*File, f *File) bool { return group[0].Pack == f.Pack })
}

// InShares groups files that cost requests of their own.
func InShares(files []*File, workers int) [][]*File {
	most := share(files, workers, 1)
	return groupFiles(files, func(group []*File, _ *File) bool { return len(group) < most })
}

// InStaging groups files that one request reads from the staging area.
func InStaging(files []*File, workers int) [][]*File {
	most := share(files, workers, fewFiles)
	return groupFiles(files, func(group []*File, f *File) bool {
		return len(group) < most && group[0].Pack == f.Pack
	})
}

// Opener opens a range of an object.
type Opener func(ctx context.Context, offset, length int64) (io.ReadCloser, error)

// InMemory opens ranges of content that is in memory. Beyond its end there is nothing.
func InMemory(content []byte) Opener {
	return func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(bytes.NewReader(content), offset, length)), nil
	}
}

// AtTar is where the content of a file begins in the tar.
func AtTar(f *File) int64 { return f.Offset }

// AtPack is where it begins in its pack.
func AtPack(f *File) int64 { return f.At }

// ReadGroup reads the contents of a group of small files in one request and
// hands each to do.
func ReadGroup(ctx context.Context, open Opener, files []*File, at func(*File) int64, do func(f *File, content []byte) error) error {
	last := files[len(files)-1]
	pos := at(files[0])
	r, err := open(ctx, pos, at(last)+last.Size-pos)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	for _, f := range files {
		if _, err := io.CopyN(io.Discard, r, at(f)-pos); err != nil {
			return fmt.Errorf("read up to %s: %w", f.Path, err)
		}
		content := make([]byte, f.Size)
		if _, err := io.ReadFull(r, content); err != nil {
			return fmt.Errorf("read %s: %w", f.Path, err)
		}
		pos = at(f) + f.Size
		if err := do(f, content); err != nil {
			return err
		}
	}
	return nil
}

// IsStored tells whether a file of the inventory goes into preservation storage.
func IsStored(f *bag.File, p Known) bool { return f.Preservable() && !f.Missing && !p.Unchanged }

// FileUUID gives a file a uuid that depends on nothing but the upload, so that a repeated
// Receive names the same keys, and another upload never does.
func FileUUID(item claim.Item, index int, path string) string {
	name := fmt.Sprintf("%d\x00%s\x00%s\x00%d\x00%s", item.ID, item.ObjectIdentifier, item.ETag, index, path)
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
}
