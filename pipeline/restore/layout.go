package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// layout is a restored bag as a tar, known to the last byte before the first is read: it
// follows from the record, and a file that differs from the record never gets into it. So an
// attempt can continue where another stopped.
type layout struct {
	object     record.Object
	top        string    // directory of the bag
	at         time.Time // of what is made again
	algorithms []bag.Algorithm
	bagit      []byte
	info       []byte     // bag-info.txt as it is to be; nil if the bag has none
	lists      []manifest // in their order
	files      int64
	size       int64 // of the tar
}

// manifest is one of the bag's, made of the record.
type manifest struct {
	algorithm bag.Algorithm
	ofTags    bool
	size      int64
	digests   bag.Digests // of the manifest; unknown of tag manifests
}

func (m manifest) name() string {
	if m.ofTags {
		return "tagmanifest-" + string(m.algorithm) + ".txt"
	}
	return "manifest-" + string(m.algorithm) + ".txt"
}

const (
	infoName  = "bag-info.txt"
	bagitName = "bagit.txt"
)

// path is a file's path in the bag.
func (l *layout) path(f registry.StoredFile) string { return f.Identifier[len(l.object.Identifier)+1:] }

func isPayload(path string) bool { return strings.HasPrefix(path, "data/") }

// newLayout reads all that is on record of an object once, and its bag-info.txt.
func newLayout(ctx context.Context, g *giving, o record.Object, at time.Time) (*layout, error) {
	l := &layout{object: o, top: o.Identifier[strings.LastIndexByte(o.Identifier, '/')+1:], at: at.UTC().Truncate(time.Second)}
	payload, tags := g.profileOf(o).RestoreAlgorithms()
	l.algorithms, g.algorithms = payload, payload
	for _, a := range payload {
		l.lists = append(l.lists, manifest{algorithm: a})
	}
	for _, a := range tags {
		l.lists = append(l.lists, manifest{algorithm: a, ofTags: true})
	}
	var err error
	if l.bagit, err = tagfile.BagitTxt(o.TagEncoding); err != nil {
		return nil, claim.Fatal("restore-encoding", "The bag cannot be written: %w", err)
	}
	if l.info, err = l.newInfo(ctx, g); err != nil {
		return nil, err
	}
	return l, l.measure(ctx, g)
}

// profileOf is the profile that the object's bag followed.
func (g *giving) profileOf(o record.Object) *bag.Profile {
	return g.Profiles.Of(&bag.Bag{Tags: []bag.Tag{{File: infoName, Name: "BagIt-Profile-Identifier", Value: o.BagItProfileIdentifier}}})
}

// newInfo is bag-info.txt with what has to be said again of a restored bag.
func (l *layout) newInfo(ctx context.Context, g *giving) ([]byte, error) {
	id := l.object.Identifier + "/" + infoName
	for f, err := range g.Registry.StoredFilesAfter(ctx, l.object.ID, 0, id[:len(id)-1]) {
		if err != nil || f.Identifier > id {
			return nil, err
		}
		if f.Identifier != id {
			continue
		}
		if f.Size > smallContent {
			return nil, claim.Fatal("restore-bag-info", "bag-info.txt has %d bytes; it may have %d.", f.Size, smallContent)
		}
		content, err := g.small(ctx, f)
		if err != nil {
			return nil, err
		}
		files, bytes, err := g.Registry.Payload(ctx, l.object.ID)
		if err != nil {
			return nil, err
		}
		content, err = tagfile.RewriteBagInfo(content, l.object.TagEncoding, []bag.Tag{
			{Name: "Payload-Oxum", Value: fmt.Sprintf("%d.%d", bytes, files)},
			{Name: "Bagging-Date", Value: l.at.UTC().Format(time.DateOnly)},
			{Name: "Bag-Size", Value: humanSize(bytes)},
			{Name: "Bagging-Software", Value: g.Software()},
		})
		if err != nil {
			return nil, claim.Fatal("restore-bag-info", "The bag's bag-info.txt cannot be brought up to date: %w", err)
		}
		return content, nil
	}
	return nil, nil
}

// humanSize is a size as people write it in bag-info.txt.
func humanSize(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	n, unit := float64(bytes)/1000, 0
	for n >= 999.5 && unit < len(units)-1 {
		n, unit = n/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", n, units[unit])
}

// measure finds out where everything comes to lie.
func (l *layout) measure(ctx context.Context, g *giving) error {
	hashes, writers, err := l.manifestWriters()
	if err != nil {
		return err
	}
	if l.size, err = l.head(io.Discard); err != nil {
		return err
	}
	for f, err := range g.Registry.StoredFiles(ctx, l.object.ID, 0) {
		if err != nil {
			return err
		}
		if err := l.add(f, writers); err != nil {
			return err
		}
	}
	for i := range l.lists {
		if l.lists[i].ofTags {
			continue
		}
		l.lists[i].size, l.lists[i].digests = writers[i].Size(), hashes[i].Digests()
	}
	for i, m := range l.lists {
		if m.ofTags {
			if err := l.ownLines(writers[i]); err != nil {
				return err
			}
			l.lists[i].size = writers[i].Size()
		}
		header, err := bag.EntryHeader(l.top+"/"+m.name(), l.lists[i].size, l.at)
		if err != nil {
			return err
		}
		l.size += int64(len(header)) + l.lists[i].size + bag.Padding(l.lists[i].size)
	}
	l.size += int64(len(bag.EndOfArchive()))
	return nil
}

// manifestWriters are writers of all manifests. What is written to them is only
// counted and digested.
func (l *layout) manifestWriters() ([]*copies.Sums, []*tagfile.ManifestWriter, error) {
	var hashes []*copies.Sums
	var writers []*tagfile.ManifestWriter
	for _, m := range l.lists {
		s := copies.NewSums([]bag.Algorithm{bag.MD5, bag.SHA1, bag.SHA512})
		w, err := tagfile.NewManifestWriter(s, m.algorithm, l.object.TagEncoding)
		if err != nil {
			return nil, nil, err
		}
		hashes, writers = append(hashes, s), append(writers, w)
	}
	return hashes, writers, nil
}

// add takes a file into the layout.
func (l *layout) add(f registry.StoredFile, writers []*tagfile.ManifestWriter) error {
	path := l.path(f)
	header, size, err := l.entry(f)
	if err != nil {
		return err
	}
	l.files++
	l.size += int64(len(header)) + size + bag.Padding(size)
	for i, m := range l.lists {
		if m.ofTags == isPayload(path) {
			continue
		}
		d, err := l.digests(f)
		if err != nil {
			return err
		}
		if err := writers[i].Add(path, d); err != nil {
			return claim.Fatal("restore-manifest", "The file %s cannot be listed: %w", f.Identifier, err)
		}
	}
	return nil
}

// entry is the header of a file, and the size of its content in this bag.
func (l *layout) entry(f registry.StoredFile) (header []byte, size int64, err error) {
	size = f.Size
	if l.path(f) == infoName {
		size = int64(len(l.info))
	}
	at := l.at
	if f.ModTime != nil {
		at = *f.ModTime
	}
	header, err = bag.EntryHeader(l.top+"/"+l.path(f), size, at)
	if err != nil {
		return nil, 0, claim.Fatal("restore-path", "The file %s cannot be put into a tar: %w", f.Identifier, err)
	}
	return header, size, nil
}

// digests are those of a file in this bag: on record, and found to be true as the
// file is read.
func (l *layout) digests(f registry.StoredFile) (d bag.Digests, err error) {
	if l.path(f) == infoName {
		return digestsOf(l.info), nil
	}
	for _, a := range l.algorithms {
		if copies.OnRecord(f, a) == "" {
			return d, claim.Fatal("restore-digest", "There is no %s of %s on record, which the bag's profile requires.", a, f.Identifier)
		}
	}
	for _, one := range []struct {
		to  []byte
		hex string
	}{{d.MD5[:], f.MD5}, {d.SHA1[:], f.SHA1}, {d.SHA256[:], f.SHA256}, {d.SHA512[:], f.SHA512}} {
		if _, err := hex.Decode(one.to, []byte(one.hex)); err != nil {
			return d, fmt.Errorf("digest of %s: %w", f.Identifier, err)
		}
	}
	return d, nil
}

func digestsOf(content []byte) bag.Digests {
	s := copies.NewSums([]bag.Algorithm{bag.MD5, bag.SHA1, bag.SHA512})
	_, _ = s.Write(content) // never an error
	return s.Digests()
}

// ownLines are the lines of a tag manifest for what is no file on record.
func (l *layout) ownLines(w *tagfile.ManifestWriter) error {
	if err := w.Add(bagitName, digestsOf(l.bagit)); err != nil {
		return err
	}
	for _, m := range l.lists {
		if m.ofTags {
			continue
		}
		if err := w.Add(m.name(), m.digests); err != nil {
			return err
		}
	}
	return nil
}

// head writes what comes before the files: the directories, so that a bag without
// payload has one for it, and bagit.txt.
func (l *layout) head(w io.Writer) (n int64, err error) {
	for _, e := range []struct {
		name    string
		content []byte
	}{{"", nil}, {"data/", nil}, {bagitName, l.bagit}} {
		header, err := bag.EntryHeader(l.top+"/"+e.name, int64(len(e.content)), l.at)
		if err != nil {
			return n, claim.Fatal("restore-path", "The bag cannot be put into a tar: %w", err)
		}
		for _, p := range [][]byte{header, e.content, make([]byte, bag.Padding(int64(len(e.content))))} {
			if _, err := w.Write(p); err != nil {
				return n, err
			}
			n += int64(len(p))
		}
	}
	return n, nil
}

// id names the layout: another one has other bytes somewhere.
func (l *layout) id() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d %d %d\n", l.object.Identifier, l.at.Unix(), l.files, l.size, l.object.Deletions)
	for _, m := range l.lists {
		fmt.Fprintf(h, "%s %d %x\n", m.name(), m.size, m.digests.SHA256)
	}
	h.Write(l.info)
	return hex.EncodeToString(h.Sum(nil))
}
