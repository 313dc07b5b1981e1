package reconcile

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/storage"
)

// A tarball is a bag that is made of copies, known to the last byte before the first is read: what
// their metadata say is found to be true as they are read, or the bag does not come about.
type tarball struct {
	name     string
	files    map[string]*found
	paths    []string // in order
	sections []section
	size     int64
}

// A section of a tar: an entry with its header and padding, or its end.
type section struct {
	size   int64
	header []byte
	after  int64 // zero bytes
	file   *found
	path   string
	write  func(io.Writer) error // what is no file; nil: nothing
}

// newTarball lays out a bag. Only digests that the metadata have can be in its manifests.
func newTarball(name string, files map[string]*found, p *bag.Profile) (t *tarball, why string) {
	t = &tarball{name: name, files: files, paths: slices.Sorted(maps.Keys(files))}
	known := []bag.Algorithm{bag.SHA256}
	if !slices.ContainsFunc(t.paths, func(path string) bool { return len(files[path].md5) != 2*md5.Size }) {
		known = append(known, bag.MD5)
	}
	for _, required := range slices.Concat(p.Rules.ManifestsRequired, p.Rules.TagManifestsRequired) {
		if !slices.Contains(known, bag.Algorithm(required)) {
			return nil, "its profile requires a manifest of " + required + ", which the copies do not have in their metadata"
		}
	}
	if err := t.layOut(known, p); err != nil {
		return nil, "it cannot be written as a bag: " + err.Error()
	}
	return t, ""
}

func (t *tarball) layOut(known []bag.Algorithm, p *bag.Profile) error {
	at := time.Now().UTC().Truncate(time.Second)
	declaration, err := tagfile.BagitTxt("")
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	for _, dir := range []string{"", "data/"} {
		if err := t.add(section{}, dir, 0, at); err != nil {
			return err
		}
	}
	if err := t.addText("bagit.txt", declaration, at); err != nil {
		return err
	}
	for _, path := range t.paths {
		f := t.files[path]
		if err := t.add(section{file: f, path: path}, path, f.size, at); err != nil {
			return err
		}
	}
	own := map[string]bag.Digests{"bagit.txt": digestsOf(declaration)}
	for _, tags := range []bool{false, true} {
		for _, a := range known {
			if !p.Rules.AllowsManifest(a, tags) {
				continue
			}
			if err := t.addManifest(a, tags, own, at); err != nil {
				return err
			}
		}
	}
	end := bag.EndOfArchive()
	t.sections = append(t.sections, section{size: int64(len(end)), header: end})
	t.size += int64(len(end))
	return nil
}

// add appends an entry of the bag's directory.
func (t *tarball) add(s section, path string, size int64, at time.Time) (err error) {
	if s.header, err = bag.EntryHeader(t.name+"/"+path, size, at); err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	s.after = bag.Padding(size)
	s.size = int64(len(s.header)) + size + s.after
	t.sections = append(t.sections, s)
	t.size += s.size
	return nil
}

func (t *tarball) addText(path string, content []byte, at time.Time) error {
	return t.add(section{write: func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}}, path, int64(len(content)), at)
}

// addManifest appends a manifest. Tag manifests come last, and list what own has so far.
func (t *tarball) addManifest(a bag.Algorithm, tags bool, own map[string]bag.Digests, at time.Time) error {
	name := "manifest-" + string(a) + ".txt"
	listed := map[string]bag.Digests{}
	if tags {
		name, listed = "tag"+name, maps.Clone(own)
	}
	write := func(w io.Writer) error { return t.writeManifest(w, a, tags, listed) }
	sum := copies.NewSums([]bag.Algorithm{bag.MD5})
	var size counter
	if err := write(io.MultiWriter(sum, &size)); err != nil {
		return err
	}
	if !tags {
		own[name] = sum.Digests()
	}
	return t.add(section{write: write}, name, int64(size), at)
}

func (t *tarball) writeManifest(w io.Writer, a bag.Algorithm, tags bool, listed map[string]bag.Digests) error {
	lines, err := tagfile.NewManifestWriter(w, a, "")
	if err != nil {
		return err //nolint:wrapcheck // it names the algorithm
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if err := lines.Add(name, listed[name]); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
	}
	for _, path := range t.paths {
		if strings.HasPrefix(path, "data/") == tags {
			continue
		}
		var d bag.Digests
		f := t.files[path]
		_, err := hex.Decode(d.SHA256[:], []byte(f.sha256))
		if len(f.md5) == 2*md5.Size {
			_, other := hex.Decode(d.MD5[:], []byte(f.md5))
			err = errors.Join(err, other)
		}
		if err != nil {
			return fmt.Errorf("the digest of %s in the metadata of its copies: %w", path, err)
		}
		if err := lines.Add(path, d); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
	}
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func digestsOf(content []byte) bag.Digests {
	s := copies.NewSums([]bag.Algorithm{bag.MD5})
	_, _ = s.Write(content) // never an error
	return s.Digests()
}

// A rottenError says that no copy of a file has the bytes that it was stored with.
type rottenError string

// Error names the file.
func (path rottenError) Error() string {
	return "no copy of " + string(path) + " has the bytes that it was stored with"
}

// deposit writes the bag into the receiving bucket. A copy whose bytes are wrong is passed over; if
// there is no other, nothing is written.
func (r *Reconciler) deposit(ctx context.Context, b Bag) error {
	bucket, err := r.Receiving(b.in)
	if err != nil {
		return err
	}
	if there, err := r.deposited(ctx, b.in, b.tar.name); err != nil || there {
		return err // it was uploaded in the meantime
	}
	part := storage.PartSize(b.tar.size)
	if part == 0 {
		part = 16 << 20
	}
	_, err = bucket.PutStream(ctx, b.tar.name+".tar", storage.Upload{ContentType: "application/x-tar"}, storage.Stream{
		Size: b.tar.size, PartSize: part,
		From: func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			return newReading(ctx, r, b.tar, offset, part), nil
		},
	})
	if err != nil {
		return fmt.Errorf("make the bag again in %s: %w", b.in, err)
	}
	return nil
}

// newReading reads a tar from an offset on. Its file is read from its beginning, since its digest has
// to be right at its end.
func newReading(ctx context.Context, r *Reconciler, t *tarball, offset, part int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	in, out := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out.CloseWithError(r.write(ctx, t, &outlet{to: out, skip: offset, part: part}))
	}()
	return &reading{PipeReader: in, stop: func() {
		cancel()
		in.Close() //nolint:errcheck // never fails
		<-ended
	}}
}

type reading struct {
	*io.PipeReader
	stop func()
}

// Close returns when nothing more is read from any copy.
func (r *reading) Close() error {
	r.stop()
	return nil
}

// An outlet passes on what is behind its first bytes.
type outlet struct {
	to   io.Writer
	skip int64
	at   int64
	part int64
}

func (o *outlet) Write(p []byte) (int, error) {
	pass := p[min(max(o.skip-o.at, 0), int64(len(p))):]
	o.at += int64(len(p))
	if len(pass) == 0 {
		return len(p), nil
	}
	if _, err := o.to.Write(pass); err != nil {
		return 0, err //nolint:wrapcheck // of the reader
	}
	return len(p), nil
}

func (r *Reconciler) write(ctx context.Context, t *tarball, out *outlet) error {
	for _, s := range t.sections {
		if out.at+s.size <= out.skip {
			out.at += s.size
			continue
		}
		if _, err := out.Write(s.header); err != nil {
			return err
		}
		var err error
		switch {
		case s.file != nil:
			err = r.writeFile(ctx, s, out)
		case s.write != nil:
			err = s.write(out)
		}
		if err == nil {
			_, err = out.Write(make([]byte, s.after))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file from its best copy. If its bytes are wrong, what was sent of it is sent again,
// from another.
func (r *Reconciler) writeFile(ctx context.Context, s section, out *outlet) error {
	places := r.byPriority(s.file)
	if len(places) == 0 {
		return rottenError(s.path)
	}
	begin := out.at
	err := r.readFrom(ctx, s.file, places[0], out)
	if !errors.Is(err, copies.ErrBadCopy) {
		return err
	}
	s.file.in = slices.DeleteFunc(s.file.in, func(p place) bool { return p == places[0] })
	return &storage.RewindError{Offset: begin / out.part * out.part, Err: fmt.Errorf("%s in %s: %w", s.path, places[0].target, err)}
}

// readFrom reads a copy to its end, and compares its digests.
func (r *Reconciler) readFrom(ctx context.Context, f *found, from place, to io.Writer) error {
	bucket := r.Targets[from.target]
	if bucket == nil {
		return fmt.Errorf("the storage target %s is not configured in this process", from.target)
	}
	body, err := bucket.Get(ctx, from.key, storage.Range{Length: -1})
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: it is gone", copies.ErrBadCopy)
	}
	if err != nil {
		return err //nolint:wrapcheck // it names bucket and key
	}
	defer body.Close() //nolint:errcheck // what was read of it is digested
	sums := copies.NewSums([]bag.Algorithm{bag.MD5})
	n, err := io.Copy(io.MultiWriter(sums, to), io.LimitReader(body, f.size))
	if err != nil {
		return err //nolint:wrapcheck // of the store, or of the reader
	}
	more, _ := body.Read(make([]byte, 1))
	d := sums.Digests()
	if n != f.size || more > 0 || d.Hex(bag.SHA256) != f.sha256 || f.md5 != "" && d.Hex(bag.MD5) != f.md5 {
		return fmt.Errorf("%w: its bytes are not those of its metadata", copies.ErrBadCopy)
	}
	return nil
}

// read returns the content of a small file; nil if no copy of it is good.
func (r *Reconciler) read(ctx context.Context, f *found) ([]byte, error) {
	for _, p := range r.byPriority(f) {
		var content bytes.Buffer
		err := r.readFrom(ctx, f, p, &content)
		if errors.Is(err, copies.ErrBadCopy) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return append([]byte{}, content.Bytes()...), nil
	}
	return nil, nil
}
