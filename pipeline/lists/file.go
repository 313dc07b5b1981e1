package lists

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
)

// NewFile is a file of the inventory as one that is new to the registry.
func NewFile(i int, f *bag.File) *File {
	return &File{
		Index: i, Offset: f.Offset,
		Content: copies.Content{
			Path: f.Path, Size: f.Size, MD5: f.Digests.MD5, SHA256: f.Digests.SHA256, Parts: f.Parts,
		},
		UUID: f.UUID, MIME: f.Format,
	}
}

// Reingest gives a file that is on record its uuid, and a key of its own.
func (f *File) Reingest(k Known) {
	if k.UUID != uuid.Nil {
		f.UUID, f.key, f.again, f.Alone, f.Found = k.UUID, k.Key, true, !k.Deleted, k.Found
	}
}

// Key is its key in preservation storage: its uuid. If the file is on record, the beginning of
// its SHA-256 follows, so that the old bytes stay until the record has switched to the new.
func (f *File) Key() string {
	switch {
	case f.key != "":
		return f.key
	case f.again:
		return f.UUID.String() + "." + hex.EncodeToString(f.SHA256[:8])
	}
	return f.UUID.String()
}

// File is what the stages after Receive need of a file of the bag. There may be
// hundreds of thousands of them, so it is small.
type File struct {
	Index int // place in the inventory
	copies.Content
	Offset int64 // of the content in the tar
	UUID   uuid.UUID
	MIME   string // by its extension, until it is identified
	Alone  bool   // it is on record, so that every copy of it should be
	Found  bool   // a copy of it may be under its key already
	again  bool   // it is or was on record
	key    string // that the plan gives it; "": none
}

const (
	// WholeFile is the size in bytes up to which files are read into memory to identify them.
	// Ranges are read of larger ones.
	WholeFile = 1 << 20

	// SentFile is the size in bytes up to which copies of a file are sent by the worker. A
	// server that copies a range out of the tar needs three requests for each copy.
	SentFile = 2 << 20

	// A request reads at most so many bytes and files. Between two of them the tar
	// may have so much else: headers, and files that are not wanted.
	maxRequest = 2 << 20
	maxFiles   = 64
	maxGap     = 64 << 10

	// fewFiles are read by one request although other workers then have nothing to do: a
	// request costs about as much as they would save.
	fewFiles = 8
)

// end is where the content of a file ends in the tar.
func (f *File) end() int64 { return f.Offset + f.Size }

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

// together tells whether one request should read f and the group before it, all of at most so
// many bytes.
func together(group []*File, f *File, largest int64) bool {
	first, last := group[0], group[len(group)-1]
	return last.Size <= largest && f.Size <= largest &&
		f.Offset >= last.end() && f.Offset-last.end() <= maxGap && f.end()-first.Offset <= maxRequest
}

// share is how many files go into a group at most, so that so many workers all have
// something to do, unless each would have fewer than few.
func share(files []*File, workers, few int) int {
	return min(max(len(files)/(2*workers), few), maxFiles)
}

// InRequests groups files that one request reads, each of at most so many bytes. Larger ones
// stand alone.
func InRequests(files []*File, workers int, largest int64) [][]*File {
	most := share(files, workers, fewFiles)
	return groupFiles(files, func(group []*File, f *File) bool {
		return len(group) < most && together(group, f, largest)
	})
}

// InShares groups files that cost requests of their own.
func InShares(files []*File, workers int) [][]*File {
	most := share(files, workers, 1)
	return groupFiles(files, func(group []*File, _ *File) bool { return len(group) < most })
}

// Opener opens a range of the tar.
type Opener func(ctx context.Context, offset, length int64) (io.ReadCloser, error)

// InMemory opens ranges of a tar that is in memory. Beyond its end there is nothing.
func InMemory(content []byte) Opener {
	return func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(bytes.NewReader(content), offset, length)), nil
	}
}

// File reads a file at random, one request for each call.
func (open Opener) File(ctx context.Context, f *File) *io.SectionReader {
	return io.NewSectionReader(readerAt(func(p []byte, offset int64) (int, error) {
		r, err := open(ctx, offset, int64(len(p)))
		if err != nil {
			return 0, err
		}
		defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
		return io.ReadFull(r, p)
	}), f.Offset, f.Size)
}

type readerAt func(p []byte, offset int64) (int, error)

func (read readerAt) ReadAt(p []byte, offset int64) (int, error) { return read(p, offset) }

// ReadGroup reads the contents of a group of small files in one request and hands each to do.
func ReadGroup(ctx context.Context, open Opener, files []*File, do func(f *File, content []byte) error) error {
	pos := files[0].Offset
	r, err := open(ctx, pos, files[len(files)-1].end()-pos)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	for _, f := range files {
		if _, err := io.CopyN(io.Discard, r, f.Offset-pos); err != nil {
			return fmt.Errorf("read up to %s: %w", f.Path, err)
		}
		content := make([]byte, f.Size)
		if _, err := io.ReadFull(r, content); err != nil {
			return fmt.Errorf("read %s: %w", f.Path, err)
		}
		pos = f.end()
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
func FileUUID(item claim.Item, index int, path string) uuid.UUID {
	name := fmt.Sprintf("%d\x00%s\x00%s\x00%d\x00%s", item.ID, item.ObjectIdentifier, item.ETag, index, path)
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name))
}
