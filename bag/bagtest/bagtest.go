// Package bagtest makes sample bags, good ones and ones that are broken in a
// chosen way, as tar files. The same [Spec] always gives the same bytes.
//
// Nothing is kept in memory or on disk but the list of files, so that samples
// may be of any size. It knows the file format only, and imports nothing of
// Farol's, so that it can serve to test package bag itself.
package bagtest

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"time"
)

// Profile is the BagIt profile that a sample follows.
type Profile string

// The profiles. The zero value is APTrust.
const (
	APTrust Profile = "aptrust"
	BTR     Profile = "btr"
)

// A Spec describes a bag. Its zero value is a small, valid APTrust bag.
type Spec struct {
	Name    string // of the top-level directory; "sample-bag" if blank
	Profile Profile
	// Title, Access and StorageOption go to aptrust-info.txt: "Sample bag",
	// "Institution" and "Standard" if blank. In a BTR bag only StorageOption is
	// written, to bag-info.txt.
	Title, Access, StorageOption string
	// Files are the payload and extra tag files, by their path in the bag, in
	// the order of the tar; a few small texts if nil.
	Files []File
	// Manifests and TagManifests are algorithms: md5, sha1, sha256, sha512.
	// If nil they are md5 and sha256 for APTrust, sha256 and sha512 for BTR,
	// and sha256 for tag manifests. Make them empty, not nil, to have none.
	Manifests, TagManifests []string
	// ManifestsFirst puts the manifests before the payload, which is then
	// generated twice.
	ManifestsFirst bool
	// ModTime of all entries; 2 January 2026 UTC if zero.
	ModTime time.Time

	// What follows breaks the bag.

	// Tags are set in addition to or instead of the usual ones. One with the
	// Value [Omit] is left out.
	Tags []Tag
	// Leave out files that the manifests list, by path.
	Leave []string
	// Unlisted files are in the tar, but not in the manifests.
	Unlisted []File
	// Corrupt has the paths of files of which the first byte is changed, but not
	// their digests in the manifests.
	Corrupt []string
	// Entries are written as they are at the end of the tar: names are not
	// prefixed, types not checked.
	Entries []Entry
}

// A File has the Content given or, if that is blank, Size bytes that look
// random, and depend on Path and Seed only.
type File struct {
	Path    string
	Content string
	Size    int64
	Seed    uint64
}

// A Tag is one of a tag file: bagit.txt, bag-info.txt or aptrust-info.txt.
type Tag struct{ File, Name, Value string }

// Omit as the value of a Tag leaves the tag out. A tag file that has none left
// is left out too.
const Omit = "\x00"

// An Entry is any entry of a tar.
type Entry struct {
	Name     string
	Type     byte // as in archive/tar
	Linkname string
	Content  string
}

// Bytes returns the tar.
func (s Spec) Bytes() ([]byte, error) {
	capacity := int64(64 << 10) // or a large bag would be copied again and again as it grows
	for _, f := range slices.Concat(s.Files, s.Unlisted) {
		capacity += f.size() + 2<<10
	}
	b := bytes.NewBuffer(make([]byte, 0, capacity))
	if err := s.WriteTar(b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// open returns the content of the file.
func (f File) open() io.Reader {
	if f.Content != "" {
		return strings.NewReader(f.Content)
	}
	return io.LimitReader(newNoise(f.Path, f.Seed), f.Size)
}

func (f File) size() int64 {
	if f.Content != "" {
		return int64(len(f.Content))
	}
	return f.Size
}

// withDefaults fills in what is blank. It does not change what s refers to.
func (s Spec) withDefaults() Spec {
	or := func(value *string, otherwise string) {
		if *value == "" {
			*value = otherwise
		}
	}
	or(&s.Name, "sample-bag")
	or((*string)(&s.Profile), string(APTrust))
	or(&s.Title, "Sample bag")
	or(&s.Access, "Institution")
	or(&s.StorageOption, "Standard")
	if s.Files == nil {
		s.Files = []File{
			{Path: "data/hello.txt", Content: "Hello from the lighthouse.\n"},
			{Path: "data/folder/list.csv", Content: "name,height\nFarol da Barra,22\nHook Head,35\n"},
			{Path: "data/folder/noise.bin", Size: 2000},
			{Path: "custom-tags/notes.txt", Content: "Kept by: hand\n"},
		}
	}
	if s.Manifests == nil {
		s.Manifests = []string{"md5", "sha256"}
		if s.Profile == BTR {
			s.Manifests = []string{"sha256", "sha512"}
		}
	}
	if s.TagManifests == nil {
		s.TagManifests = []string{"sha256"}
	}
	if s.ModTime.IsZero() {
		s.ModTime = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	}
	return s
}

// payload tells how many files under data/ the bag claims to have, and their
// bytes.
func (s Spec) payload() (octets int64, count int) {
	for _, f := range s.Files {
		if isPayload(f) {
			octets += f.size()
			count++
		}
	}
	return octets, count
}

func isPayload(f File) bool { return strings.HasPrefix(f.Path, "data/") }

func (s Spec) leaves(path string) bool { return slices.Contains(s.Leave, path) }
