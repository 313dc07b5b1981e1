package bag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// ReadDir indexes the bag in a directory, as Read does for one in a tar, so that
// a bag can be checked before it is packed. It follows no link. Of the options it
// takes Progress, whose offset is the number of bytes read so far, and MaxFiles.
//
// The error is that of ctx or of the file system, or says that a file changed
// while it was read.
func ReadDir(ctx context.Context, dir string, o ReadOptions) (*Bag, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read from
	rd := newReader(ctx, nil, ReadOptions{Progress: o.Progress, MaxFiles: o.MaxFiles})
	defer rd.close()
	rd.container, rd.bag.Unpacked, rd.bag.TopDir = "directory", true, filepath.Base(abs)
	w := dirReader{reader: rd, root: root, files: root.FS()}
	if err := w.walk(ctx); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	if len(rd.bag.Files) == 0 && len(rd.problems.Found) == 0 {
		rd.problems.Stop(finding.Empty, "", "The directory contains no files.")
	}
	return rd.finish(), nil
}

type dirReader struct {
	*reader
	root  *os.Root
	files fs.FS
	full  bool // more files than there may be
}

// walk takes bagit.txt first, by which the others are to be read.
func (w *dirReader) walk(ctx context.Context) error {
	if info, err := w.root.Lstat(tagfile.Bagit); err == nil && info.Mode().IsRegular() {
		if err := w.file(ctx, tagfile.Bagit); err != nil {
			return err
		}
	}
	return fs.WalkDir(w.files, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case w.full:
			return fs.SkipAll
		case path == ".":
			return nil
		case entry.IsDir():
			if !w.directory(w.name(path)) {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			w.unsupported(w.name(path), typeInWords(entry.Type()))
			return nil
		case path == tagfile.Bagit:
			return nil
		}
		return w.file(ctx, path)
	})
}

// name is what the tar's entry would be called.
func (w *dirReader) name(path string) string { return w.bag.TopDir + "/" + path }

func typeInWords(t fs.FileMode) string {
	switch {
	case t&fs.ModeSymlink != 0:
		return symbolicLink
	case t&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case t&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

func (w *dirReader) file(ctx context.Context, name string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, ok := w.place(w.name(name))
	if !ok {
		return nil
	}
	if w.byPath[path] == nil && !w.hasRoom(path) {
		w.full = true
		return nil
	}
	in, err := w.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	f := &File{Path: path, Size: info.Size(), ModTime: w.modTime(path, info.ModTime())}
	w.report(path)
	tee, done := w.interpreter(f)
	content, err := w.digester.Read(ctx, dirFile{w.tar, in}, digest.Pass{Size: f.Size, Tee: w.reportTo(f, tee)})
	if err == nil && atEnd(in) {
		f.Digests = content.Digests
		w.add(f)
		done()
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it changed while it was read")
	}
	return fmt.Errorf("%s: %w", finding.Show(path), err)
}

// atEnd says that nothing was appended in the meantime.
func atEnd(r io.Reader) bool {
	n, err := r.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// dirFile counts as if all files were one stream.
type dirFile struct {
	total *counter
	r     io.Reader
}

func (f dirFile) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	f.total.offset += int64(n)
	return n, err
}
