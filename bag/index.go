package bag

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/bag/finding"
)

// ReadIndex indexes a tar as [Read] does, but takes known's word for the content
// of all files but manifests, fetch.txt and the tag files whose tags are wanted.
// It is for a tar that we wrote ourselves, whose digests were computed then. r
// seeks over such content, always forward, and reads its last byte: if the tar
// is cut short, that must be the end of the file and not an error of Seek.
//
// A file that known does not have, of that very size, is a problem: the tar is
// not what was written, and nothing after it is read. What else is wrong is found
// as by Read. Of the options it takes Progress, MaxFiles and Many. The error is
// that of r, known, ctx or Many.
func ReadIndex(
	ctx context.Context, r io.ReadSeeker, known func(path string, size int64) (Digests, bool, error), o ReadOptions,
) (*Bag, error) {
	rd := newReader(ctx, r, ReadOptions{Progress: o.Progress, MaxFiles: o.MaxFiles, Many: o.Many})
	defer rd.close()
	rd.known = known
	rd.src.seeker = r
	rd.tar.r = bufio.NewReaderSize(rd.src, headersAhead)
	return rd.read(ctx)
}

// headersAhead is as much as is read for a header where contents are passed over:
// a file smaller than that costs no request, and of a larger one that much.
const headersAhead = 16 << 10

// passOver takes a file whose content is not read.
func (rd *reader) passOver(f *File, done func()) (more bool, err error) {
	digests, ok, err := rd.known(f.Path, f.Size)
	if err != nil {
		return false, fmt.Errorf("digests of %s: %w", finding.Show(f.Path), err)
	}
	if !ok {
		rd.problems.Stop(finding.Corrupt, f.Path,
			"The tar is not the one that was written: it has the file %s of %d bytes, which was not written into it.", finding.Show(f.Path), f.Size)
		return false, nil
	}
	if whole, err := rd.skip(f.Size); err != nil || !whole {
		if err == nil {
			rd.problems.Stop(finding.Truncated, f.Path, "The tar ends in the middle of %s, which has %d bytes.", finding.Show(f.Path), f.Size)
		}
		return false, err
	}
	f.Digests, f.Unread = digests, rd.outline != nil
	rd.add(f)
	done()
	rd.headers = tar.NewReader(rd.tar) // the one before does not know where we are
	return rd.manyErr == nil, rd.manyErr
}

// skip passes over a content of the size and over its padding. It says whether the
// content is there to its last byte. What is wrong with the padding shows when the
// next header is read.
func (rd *reader) skip(size int64) (whole bool, err error) {
	if size > 0 {
		if err := rd.seek(size - 1); err != nil {
			return false, rd.fault(err)
		}
		if n, _ := io.CopyN(io.Discard, rd.tar, 1); n == 0 {
			return false, nil // drain knows whether that is an error of the caller's reader
		}
	}
	_, _ = io.CopyN(io.Discard, rd.tar, Padding(size))
	return true, nil
}

// seek moves the tar forward by n bytes.
func (rd *reader) seek(n int64) error {
	buffered := rd.tar.r.Buffered()
	if n <= int64(buffered) {
		_, _ = rd.tar.r.Discard(int(n)) // does not fail for what is there
	} else {
		if _, err := rd.src.seeker.Seek(n-int64(buffered), io.SeekCurrent); err != nil {
			return err
		}
		rd.tar.r.Reset(rd.src)
	}
	rd.tar.offset += n
	return nil
}
