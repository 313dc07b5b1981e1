package bagtest

import (
	"archive/tar"
	"bufio"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
)

// WriteTar streams the bag to w. The error is that of w, or says what in the
// Spec makes no tar.
func (s Spec) WriteTar(w io.Writer) error {
	s = s.withDefaults()
	buffered := bufio.NewWriterSize(w, 256<<10)
	t := &writer{spec: s, tar: tar.NewWriter(buffered)}
	if err := t.bag(); err != nil {
		return fmt.Errorf("write bag %s: %w", s.Name, err)
	}
	if err := t.tar.Close(); err != nil {
		return fmt.Errorf("write bag %s: %w", s.Name, err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write bag %s: %w", s.Name, err)
	}
	return nil
}

// A writer writes one bag, and remembers the lines of its manifests.
type writer struct {
	spec Spec
	tar  *tar.Writer
	// by algorithm
	manifest, tagManifest map[string]*strings.Builder
}

func (t *writer) bag() error {
	var err error
	if t.manifest, err = builders(t.spec.Manifests); err != nil {
		return err
	}
	if t.tagManifest, err = builders(t.spec.TagManifests); err != nil {
		return err
	}
	steps := []func() error{t.tagFiles, t.files, t.manifests}
	if t.spec.ManifestsFirst {
		steps = []func() error{t.tagFiles, t.listFiles, t.manifests, t.files}
	}
	for _, step := range append(steps, t.extras) {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func builders(algorithms []string) (map[string]*strings.Builder, error) {
	m := map[string]*strings.Builder{}
	for _, a := range algorithms {
		if newHash(a) == nil {
			return nil, fmt.Errorf("no algorithm %q", a)
		}
		m[a] = &strings.Builder{}
	}
	return m, nil
}

func newHash(algorithm string) hash.Hash {
	switch algorithm {
	case "md5":
		return md5.New()
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	case "sha512":
		return sha512.New()
	default:
		return nil
	}
}

// tagFiles writes bagit.txt, bag-info.txt and aptrust-info.txt.
func (t *writer) tagFiles() error {
	for _, name := range []string{"bagit.txt", "bag-info.txt", "aptrust-info.txt"} {
		text := t.spec.tagText(name)
		if text == "" {
			continue
		}
		if err := t.put(File{Path: name, Content: text}, true); err != nil {
			return err
		}
	}
	return nil
}

// files writes the payload. Its digests are noted unless that was done before.
func (t *writer) files() error {
	for _, f := range t.spec.Files {
		if err := t.put(f, !t.spec.ManifestsFirst); err != nil {
			return err
		}
	}
	return nil
}

// listFiles notes the digests of the payload without writing it.
func (t *writer) listFiles() error {
	for _, f := range t.spec.Files {
		sink, note := t.digests(f)
		if _, err := io.Copy(sink, f.open()); err != nil {
			return err
		}
		note()
	}
	return nil
}

func (t *writer) manifests() error {
	for _, a := range t.spec.Manifests {
		if err := t.put(File{Path: "manifest-" + a + ".txt", Content: t.manifest[a].String()}, true); err != nil {
			return err
		}
	}
	for _, a := range t.spec.TagManifests {
		if err := t.put(File{Path: "tagmanifest-" + a + ".txt", Content: t.tagManifest[a].String()}, false); err != nil {
			return err
		}
	}
	return nil
}

func (t *writer) extras() error {
	for _, f := range t.spec.Unlisted {
		if err := t.put(f, false); err != nil {
			return err
		}
	}
	for _, e := range t.spec.Entries {
		h := t.header(e.Name, int64(len(e.Content)))
		h.Typeflag = e.Type
		h.Linkname = e.Linkname
		if err := t.tar.WriteHeader(h); err != nil {
			return fmt.Errorf("entry %s: %w", e.Name, err)
		}
		if _, err := io.WriteString(t.tar, e.Content); err != nil {
			return fmt.Errorf("entry %s: %w", e.Name, err)
		}
	}
	return nil
}

func (t *writer) header(name string, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Size:     size,
		Mode:     0o644,
		ModTime:  t.spec.ModTime,
	}
}

// put writes one file and, if it is to be listed, notes its digests, which are
// those of the content before it is corrupted.
func (t *writer) put(f File, list bool) error {
	sink, note := t.digests(f)
	if !list {
		sink, note = io.Discard, func() {}
	}
	dst := io.Discard
	if !t.spec.leaves(f.Path) {
		if err := t.tar.WriteHeader(t.header(t.spec.Name+"/"+f.Path, f.size())); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		dst = t.tar
		if slices.Contains(t.spec.Corrupt, f.Path) {
			dst = &flipper{w: dst}
		}
	}
	if _, err := io.Copy(dst, io.TeeReader(f.open(), sink)); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	note()
	return nil
}

// digests returns where to write a file's content, and what to call after it to
// list the file in the manifests it belongs to.
func (t *writer) digests(f File) (sink io.Writer, note func()) {
	algorithms, lists := t.spec.TagManifests, t.tagManifest
	if isPayload(f) {
		algorithms, lists = t.spec.Manifests, t.manifest
	}
	hashes := make([]hash.Hash, 0, len(algorithms))
	writers := make([]io.Writer, 0, len(algorithms))
	for _, a := range algorithms {
		h := newHash(a)
		hashes, writers = append(hashes, h), append(writers, h)
	}
	return io.MultiWriter(writers...), func() {
		for i, a := range algorithms {
			fmt.Fprintf(lists[a], "%x  %s\n", hashes[i].Sum(nil), encodePath(f.Path))
		}
	}
}

// encodePath encodes what would break a line, and the percent sign (RFC 8493,
// 2.1.3).
func encodePath(path string) string {
	return strings.NewReplacer("%", "%25", "\n", "%0A", "\r", "%0D").Replace(path)
}

// flipper changes the first byte.
type flipper struct {
	w    io.Writer
	done bool
}

func (f *flipper) Write(p []byte) (int, error) {
	if f.done || len(p) == 0 {
		return f.w.Write(p)
	}
	f.done = true
	first := []byte{p[0] ^ 0x20}
	if _, err := f.w.Write(first); err != nil {
		return 0, err
	}
	n, err := f.w.Write(p[1:])
	return n + 1, err
}

// tagText makes a tag file, blank if it has no tags.
func (s Spec) tagText(file string) string {
	tags := s.usualTags(file)
	for _, t := range s.Tags {
		if t.File != file {
			continue
		}
		i := slices.IndexFunc(tags, func(other Tag) bool { return strings.EqualFold(other.Name, t.Name) })
		if i < 0 {
			tags = append(tags, t)
		} else {
			tags[i] = t
		}
	}
	var b strings.Builder
	for _, t := range tags {
		if t.Value != Omit {
			fmt.Fprintf(&b, "%s: %s\n", t.Name, t.Value)
		}
	}
	return b.String()
}

func (s Spec) usualTags(file string) []Tag {
	octets, count := s.payload()
	tag := func(name, value string) Tag { return Tag{file, name, value} }
	switch {
	case file == "bagit.txt":
		return []Tag{tag("BagIt-Version", "1.0"), tag("Tag-File-Character-Encoding", "UTF-8")}
	case file == "aptrust-info.txt" && s.Profile == APTrust:
		return []Tag{tag("Title", s.Title), tag("Access", s.Access), tag("Storage-Option", s.StorageOption)}
	case file == "bag-info.txt":
		tags := []Tag{
			tag("Source-Organization", "Sample Archive"),
			tag("Bagging-Date", s.ModTime.Format("2006-01-02")),
			tag("Bag-Count", "1 of 1"),
			tag("Payload-Oxum", fmt.Sprintf("%d.%d", octets, count)),
		}
		if s.Profile == BTR {
			return append(tags, tag("BagIt-Profile-Identifier",
				"https://github.com/dpscollaborative/btr_bagit_profile/releases/download/1.0/btr-bagit-profile.json"),
				tag("APTrust-Storage-Option", s.StorageOption))
		}
		return tags
	default:
		return nil
	}
}
