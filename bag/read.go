package bag

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// ReadOptions are all optional.
type ReadOptions struct {
	// PartSize tells into slices of how many bytes a file of the given size is
	// cut for File.Parts; not positive for one.
	PartSize func(size int64) int64
	// PartMD5 has the MD5 of each slice computed too.
	PartMD5 bool
	// Resume continues after a checkpoint: r then begins at Resume.Offset. Read
	// takes ownership of it.
	Resume *Checkpoint
	// Reopen opens the content of a file that was read before the checkpoint.
	// It is asked for manifests, tag files and fetch.txt, in the order of the tar.
	Reopen func(f *File) (io.ReadCloser, error)
	// Checkpoint is called between two files, at most once for CheckpointBytes
	// (64 MiB if zero) of the tar or 10,000 files, whichever comes first. What it is given may be read only until it
	// returns. Its error ends Read.
	Checkpoint      func(ctx context.Context, c Checkpoint) error
	CheckpointBytes int64
	// Within is called within a payload file, where at least CheckpointBytes of
	// it have been read and as many are left, and then once for as many again or
	// for a part, whichever is more. Its error ends Read.
	Within func(ctx context.Context, p Partial) error
	// Progress is called for each file before it is read, and again every 16 MiB:
	// its path, the number of files before it, and the offset in the tar. It
	// is called by Read's own goroutine, and must be quick.
	Progress func(path string, files int, bytes int64)
	// MaxFiles is the greatest number of files, those that only a manifest
	// mentions included, give or take one; [DefaultMaxFiles] if zero. It bounds
	// memory too: all paths and all that manifests say must fit into 512
	// bytes a file, which is more than most bags need.
	MaxFiles int
	// Whole is given all bytes of the tar, from its first one; Bag.Whole has what
	// comes of it. For that to outlive a checkpoint it must be an
	// [encoding.BinaryMarshaler] and [encoding.BinaryUnmarshaler], and in its first
	// state: Read takes ownership of it.
	Whole hash.Hash
	// Many is called once, when there are more than 20,000 files. It may wait for
	// memory. Its error ends Read.
	Many func(ctx context.Context) error
	// Grown is called for each further file with their number. Its error ends Read.
	Grown func(files int) error
}

// Read indexes the tar that r streams. It reads r once and to its end, in the
// caller's goroutine, and computes digests in up to seven more, which end with
// it. Apart from what the Bag holds it needs less than 10 MiB.
//
// The error is that of r, ctx or a function in o. Whatever is wrong with the
// bytes themselves is in Bag.Problems, with a nil error.
func Read(ctx context.Context, r io.Reader, o ReadOptions) (*Bag, error) {
	rd := newReader(ctx, r, o)
	defer rd.close()
	if err := rd.resume(ctx, rd.opts.Resume); err != nil {
		return nil, err
	}
	return rd.read(ctx)
}

// DefaultMaxFiles is what a worker of 650 MiB has space for.
const DefaultMaxFiles = 400_000

const (
	defaultCheckpointBytes = 64 << 20
	checkpointFiles        = 10_000 // some 8 MiB as JSON
	progressBytes          = 16 << 20
)

// A reader is the state of one call of Read.
type reader struct {
	opts     ReadOptions
	src      *source
	tar      *counter
	whole    *digest.Whole
	headers  *tar.Reader                                          // of tar, from where it is
	known    func(path string, size int64) (Digests, bool, error) // nil if all content is to be read
	outline  *outline                                             // nil unless the tar is one
	digester *digest.Digester

	bag       *Bag
	byPath    map[string]*File
	budget    int64        // bytes that the index may still grow by
	many      func() error // Many of ReadOptions, once
	manyErr   error        // what it returned
	mentioned []*File      // by a manifest before the tar had them, in that order

	// Findings about the tar are part of a checkpoint; those about the content
	// of manifests and tag files arise again when these are read again.
	problems, warnings       finding.List
	textProblems, textWarned finding.List
	duplicates               finding.List // lines of manifests that only the version of BagIt can judge

	tagFiles map[string][]byte // raw, by path
	encoding tagfile.Encoding
	early    []*manifest // read before bagit.txt
	kept     int         // bytes of these
	encoded  []encodedPath
	fetch    *tagfile.Parser // nil if there is no fetch.txt

	fetchLines []fetchLine

	stray      string // the first file by which a bag is known and that lies in no directory
	payloadDir bool   // there is a directory data/, as an entry of its own or by a file in it
	container  string // "tar" or "directory", for messages

	next        int64  // offset of the next header; -1 if that cannot be known
	after       string // the last entry, as finding.Show shows it
	saved       int    // files that the last checkpoint had
	savedOffset int64  // offset of the last checkpoint
	reported    int64  // offset of the last call of Progress
}

func newReader(ctx context.Context, r io.Reader, o ReadOptions) *reader {
	if o.CheckpointBytes <= 0 {
		o.CheckpointBytes = defaultCheckpointBytes
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	if o.PartSize == nil {
		o.PartSize = func(int64) int64 { return 0 }
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int64) {}
	}
	if o.Many == nil {
		o.Many = func(context.Context) error { return nil }
	}
	if o.Grown == nil {
		o.Grown = func(int) error { return nil }
	}
	resumed := o.Resume != nil
	if !resumed {
		o.Resume = &Checkpoint{}
	}
	offset, state := o.Resume.Start(), o.Resume.Whole
	if o.Resume.Partial != nil {
		state = o.Resume.Partial.Whole
	}
	src := &source{r: r}
	w := digest.NewWhole(o.Whole, resumed, state)
	return &reader{
		opts:        o,
		src:         src,
		tar:         &counter{r: bufio.NewReaderSize(src, readAhead), offset: offset, whole: w},
		whole:       w,
		digester:    digest.New(o.PartMD5),
		bag:         &Bag{},
		byPath:      map[string]*File{},
		budget:      int64(o.MaxFiles) * bytesPerFile,
		many:        sync.OnceValue(func() error { return o.Many(ctx) }),
		tagFiles:    map[string][]byte{},
		next:        offset,
		savedOffset: o.Resume.Offset,
		container:   "tar",
	}
}

// archive reads the tar, beginning within a file if that is where it was left.
func (rd *reader) archive(ctx context.Context) error {
	if rd.opts.Resume.Partial != nil {
		if more, err := rd.resumeFile(ctx, rd.opts.Resume.Partial); err != nil || !more {
			return err
		}
	}
	return rd.entries(ctx)
}

// entries reads all entries up to the end-of-archive marker.
func (rd *reader) entries(ctx context.Context) error {
	start := rd.tar.offset
	magic, _ := rd.tar.r.Peek(magicBytes) // what is wrong shows when it is read
	magic = slices.Clone(magic)
	rd.headers = tar.NewReader(rd.tar)
	for {
		if err := ctx.Err(); err != nil {
			return rd.fault(err)
		}
		if rd.next >= 0 {
			rd.whole.Hold(rd.next)
		}
		header, err := rd.headers.Next()
		expected := rd.next
		if expected < 0 {
			expected = rd.tar.offset - blockSize
		}
		if err := rd.leftOut(expected); err != nil {
			return rd.fault(err)
		}
		switch {
		case errors.Is(err, io.EOF):
			rd.endOfArchive()
			return nil
		case err == nil, errors.Is(err, tar.ErrInsecurePath): // we judge paths ourselves
		default:
			rd.badHeader(err, start, magic)
			return nil
		}
		// There is a header at rd.next; before it was read, we could not know
		// that what comes before it is whole.
		if err := rd.checkpoint(ctx, rd.opts.Within != nil && header.Size >= 2*rd.opts.CheckpointBytes); err != nil {
			return err
		}
		rd.whole.Release()
		more, err := rd.entry(ctx, header)
		if err != nil || !more {
			return err
		}
	}
}

// fault is an error that is not the tar's.
func (rd *reader) fault(err error) error {
	if rd.after == "" {
		return fmt.Errorf("read tar at offset %d: %w", rd.tar.offset, err)
	}
	return fmt.Errorf("read tar at offset %d, in or after %s: %w", rd.tar.offset, rd.after, err)
}

// entry takes one entry of the tar. It returns false if there is no point in
// reading on.
func (rd *reader) entry(ctx context.Context, header *tar.Header) (more bool, err error) {
	rd.next = rd.tar.offset + padded(header.Size)
	if header.Typeflag == tar.TypeDir || header.Typeflag == tar.TypeXGlobalHeader {
		rd.next = rd.tar.offset // archive/tar has read what belongs to it
		if header.Typeflag == tar.TypeDir {
			rd.directory(header.Name)
		} else if key := misleading(header.PAXRecords); key != "" {
			rd.problems.Add(finding.UnsupportedEntry, "",
				"The tar has a PAX global header with the record '%s', which would hold for all files after it. A bag may not have one.", key)
		}
		return true, nil
	}
	rd.after = finding.Show(header.Name)
	if what := unsupported(header); what != "" {
		// A sparse file's size says nothing of the bytes in the tar, and may
		// be 8 EiB; archive/tar knows how to step over it.
		rd.next = -1
		rd.unsupported(header.Name, what)
		return true, nil
	}
	path, ok := rd.place(header.Name)
	if !ok {
		return true, nil
	}
	rd.after = finding.Show(path)
	if rd.byPath[path] == nil && !rd.hasRoom(path) {
		return false, nil
	}
	f := &File{
		Path:    path,
		Offset:  rd.tar.offset,
		Size:    header.Size,
		ModTime: rd.modTime(path, header.ModTime),
	}
	rd.report(path)
	return rd.readFile(ctx, rd.headers, f, nil)
}

// readFile reads the content of the entry that the tar is at, or what is left of
// it.
func (rd *reader) readFile(ctx context.Context, archive io.Reader, f *File, from *digest.State) (more bool, err error) {
	tee, done := rd.interpreter(f)
	if rd.known != nil && tee == nil {
		return rd.passOver(f, done)
	}
	p := digest.Pass{Size: f.Size, PartSize: rd.opts.PartSize(f.Size), Tee: rd.reportTo(f, tee), From: from}
	if rd.opts.Within != nil && tee == nil && f.Size >= 2*rd.opts.CheckpointBytes {
		p.SaveEvery = max(rd.opts.CheckpointBytes, p.PartSize)
		p.Save = func(s digest.State) error { return rd.within(ctx, f, s) }
	}
	content, err := rd.digester.Read(ctx, archive, p)
	if lost := rd.leftOut(f.Offset); lost != nil {
		return false, rd.fault(lost)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, rd.fault(ctx.Err())
	case errors.Is(err, errWithin), errors.Is(err, ErrCheckpoint):
		return false, err
	default:
		rd.problems.Stop(finding.Truncated, f.Path,
			"The tar ends in the middle of %s: expected %d bytes, found %d. The file may not have been uploaded completely.",
			finding.Show(f.Path), f.Size, content.Size)
		return false, nil
	}
	f.Digests, f.Parts = content.Digests, content.Parts
	rd.add(f)
	done()
	return rd.manyErr == nil, rd.manyErr
}

// reportTo adds the progress within large files to what is done with each piece.
func (rd *reader) reportTo(f *File, tee func([]byte)) func([]byte) {
	if f.Size <= digest.Small {
		return tee
	}
	return func(p []byte) {
		if tee != nil {
			tee(p)
		}
		if rd.tar.offset-rd.reported >= progressBytes {
			rd.report(f.Path)
		}
	}
}

func (rd *reader) report(path string) {
	rd.reported = rd.tar.offset
	rd.opts.Progress(path, len(rd.bag.Files), rd.tar.offset)
}

// modTime drops times that no JSON and no calendar can hold, and says so once.
func (rd *reader) modTime(path string, t time.Time) time.Time {
	t = t.UTC()
	if t.Year() >= 1 && t.Year() <= 9999 {
		return t
	}
	if !finding.Has(rd.warnings.Found, finding.FileTime) {
		rd.warnings.Add(finding.FileTime, path, "The time of %s is in the year %d. Only times from year 1 to 9999 are kept: "+
			"of this file, and of others like it, the time is not recorded, and a restored bag has the time of its making in place of it.", finding.Show(path), t.Year())
	}
	return time.Time{}
}

// close ends the goroutines that hash.
func (rd *reader) close() {
	rd.digester.Close()
	rd.whole.Close()
}
