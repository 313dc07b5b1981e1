package bag_test

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A preserved object, and how its bag is restored.
type object struct {
	top      string
	files    []member
	encoding string // of its tag files
	profile  *bag.Profile
	changes  []bag.Tag // of bag-info.txt; Payload-Oxum is added
}

// A member has the content, or zeros instead, of which nobody computed digests.
type member struct {
	path    string
	content string
	zeros   int64
	modTime time.Time
}

func (m member) size() int64 { return int64(len(m.content)) + m.zeros }

func (m member) digests() bag.Digests {
	if m.zeros > 0 {
		return bag.Digests{MD5: [16]byte{1}, SHA1: [20]byte{2}, SHA256: [32]byte{3}, SHA512: [64]byte{4}}
	}
	c := []byte(m.content)
	return bag.Digests{MD5: md5.Sum(c), SHA1: sha1.Sum(c), SHA256: sha256.Sum256(c), SHA512: sha512.Sum512(c)}
}

var restoredAt = time.Date(2026, 11, 22, 13, 14, 15, 0, time.UTC)

// assemble makes the tar as the stage that restores does: the tar's layout is known
// before there is a digest, and what is written is as long as that.
func assemble(t testing.TB, o object) sparse {
	t.Helper()
	slices.SortFunc(o.files, func(a, b member) int { return cmp.Compare(a.path, b.path) })
	files := o.ownFiles(t)
	var out sparse
	out.entry(t, o.top+"/", member{})
	out.entry(t, o.top+"/data/", member{})
	for _, m := range files {
		out.entry(t, o.top+"/"+m.path, m)
	}
	planned := out.size() + o.manifestBytes(t, files)

	manifests, tagManifests := o.profile.RestoreAlgorithms()
	for _, a := range manifests {
		m := o.manifest(t, a, files, false)
		out.entry(t, o.top+"/"+m.path, m)
		files = append(files, m)
	}
	for _, a := range tagManifests {
		m := o.manifest(t, a, files, true)
		out.entry(t, o.top+"/"+m.path, m)
	}
	if out.size() != planned {
		t.Fatalf("the tar has %d bytes, but %d were planned", out.size(), planned)
	}
	out.bytes(bag.EndOfArchive())
	return out
}

// ownFiles are bagit.txt and the object's files, with what is made again.
func (o object) ownFiles(t testing.TB) []member {
	t.Helper()
	bagit := must.Get(tagfile.BagitTxt(o.encoding))(t)
	files := append([]member{{path: "bagit.txt", content: string(bagit)}}, o.files...)
	var octets, count int64
	for _, m := range o.files {
		if strings.HasPrefix(m.path, "data/") {
			octets += m.size()
			count++
		}
	}
	changes := append(slices.Clone(o.changes), bag.Tag{Name: "Payload-Oxum", Value: fmt.Sprintf("%d.%d", octets, count)})
	for i, m := range files {
		if m.path != "bag-info.txt" {
			continue
		}
		info := must.Get(tagfile.RewriteBagInfo([]byte(m.content), o.encoding, changes))(t)
		files[i].content = string(info)
	}
	return files
}

// manifestBytes is what all manifests take in the tar.
func (o object) manifestBytes(t testing.TB, files []member) (total int64) {
	t.Helper()
	files = slices.Clone(files)
	for i := range files {
		files[i].zeros = 1 // so that no digest is asked for
	}
	room := func(m member) int64 {
		header := must.Get(bag.EntryHeader(o.top+"/"+m.path, m.size(), restoredAt))(t)
		return int64(len(header)) + m.size() + bag.Padding(m.size())
	}
	manifests, tagManifests := o.profile.RestoreAlgorithms()
	for _, a := range manifests {
		m := o.manifest(t, a, files, false)
		total += room(m)
		files = append(files, m)
	}
	for _, a := range tagManifests {
		total += room(o.manifest(t, a, files, true))
	}
	return total
}

// manifest lists the payload, or all files but the payload.
func (o object) manifest(t testing.TB, a bag.Algorithm, files []member, tag bool) member {
	t.Helper()
	var out bytes.Buffer
	w := must.Get(tagfile.NewManifestWriter(&out, a, o.encoding))(t)
	for _, m := range files {
		if strings.HasPrefix(m.path, "data/") != tag {
			must.Do(t, w.Add(m.path, m.digests()))
		}
	}
	if w.Size() != int64(out.Len()) {
		t.Errorf("Size() = %d, but %d bytes were written", w.Size(), out.Len())
	}
	return member{path: tagfile.ManifestName(a, tag), content: out.String()}
}

// known has the digests of all that o's tar contains, as the stage kept them.
func (o object) known(t testing.TB) func(string, int64) (bag.Digests, bool, error) {
	t.Helper()
	sizes, digests := map[string]int64{}, map[string]bag.Digests{}
	for _, m := range o.ownFiles(t) {
		sizes[m.path], digests[m.path] = m.size(), m.digests()
	}
	return func(path string, size int64) (bag.Digests, bool, error) {
		written, ok := sizes[path]
		return digests[path], ok && written == size, nil
	}
}

// sparse is a tar of which the zeros are not in memory.
type sparse struct {
	pieces []piece
	at     int64 // of Read
	read   int64 // bytes that were read in all
	seeks  int
}

// A piece is text, or so many zeros.
type piece struct {
	text  []byte
	zeros int64
}

func (p piece) size() int64 { return int64(len(p.text)) + p.zeros }

func (s *sparse) bytes(p []byte) { s.pieces = append(s.pieces, piece{text: p}) }

func (s *sparse) entry(t testing.TB, name string, m member) {
	t.Helper()
	when := m.modTime
	if when.IsZero() {
		when = restoredAt
	}
	header := must.Get(bag.EntryHeader(name, m.size(), when))(t)
	s.bytes(append(header, m.content...))
	s.pieces = append(s.pieces, piece{zeros: m.zeros + bag.Padding(m.size())})
}

func (s *sparse) size() (total int64) {
	for _, p := range s.pieces {
		total += p.size()
	}
	return total
}

func (s *sparse) Read(b []byte) (int, error) {
	from := int64(0)
	for _, p := range s.pieces {
		if off := s.at - from; off < p.size() {
			n := int(min(int64(len(b)), p.size()-off))
			clear(b[:n])
			if p.zeros == 0 {
				copy(b[:n], p.text[off:])
			}
			s.at += int64(n)
			s.read += int64(n)
			return n, nil
		}
		from += p.size()
	}
	return 0, io.EOF
}

func (s *sparse) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || offset < 0 {
		return 0, errors.New("only forward")
	}
	s.seeks++
	s.at += offset
	return s.at, nil
}

// all is the whole tar; it must not have large zeros.
func (s sparse) all() []byte {
	var out []byte
	for _, p := range s.pieces {
		out = append(append(out, p.text...), make([]byte, p.zeros)...)
	}
	return out
}

func profileNamed(t testing.TB, name string) *bag.Profile {
	t.Helper()
	return must.Get(profile.Named(name))(t)
}

// aptrustObject has one file of each sort.
func aptrustObject(t testing.TB) object {
	t.Helper()
	return object{
		top:     "photos",
		profile: profileNamed(t, "aptrust-v2.3"),
		changes: []bag.Tag{{Name: "Bagging-Date", Value: "2026-11-22T13:14:15Z"}, {Name: "Bagging-Software", Value: "Farol"}},
		files: []member{
			{path: "aptrust-info.txt", content: "Title: Photos\nAccess: Institution\n"},
			{path: "bag-info.txt", content: "Source-Organization: Example\nBagging-Date: 2020-01-01\nPayload-Oxum: 1.1\n"},
			{path: "custom/notes.txt", content: "Kept by: hand\n"},
			{path: "data/a.txt", content: "a"},
			{path: "data/empty"},
			{path: "data/block", content: strings.Repeat("b", 512)},
			{path: "data/larger", content: strings.Repeat("c", 40_000)},
		},
	}
}
