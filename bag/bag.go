// Package bag reads, checks and indexes BagIt bags (RFC 8493, and version 0.97
// before it) that arrive as tar files.
//
// What comes in is a tar, as it streams by: [Read] returns a [Bag], which knows where
// the bytes of each file lie in the tar, their four digests, and what the manifests and
// the tag files say. [WriteInventory] keeps that for the stages to come. What goes out at
// the end is a [Verdict]: [Bag.Validate] judges a bag by a [Profile].
//
// Below it, package digest computes digests, tagfile reads and writes the files that
// describe a bag, naming judges names, profile has the rules, and finding the words.
// A bag that is restored is made of what [EntryHeader] and tagfile give, so that where each
// byte of its tar will be is known before the first one is written. [ReadIndex] reads it back.
//
// All input is taken to be hostile. What is wrong with the bytes is never an
// error of Go but a [Finding] that a depositor can read. Nothing is allocated
// because a header claims a size.
package bag

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
)

type (
	// Algorithm is a digest algorithm.
	Algorithm = digest.Algorithm
	// Digests are those of one content.
	Digests = digest.Digests
	// PartDigests are those of the slices of a content.
	PartDigests = digest.Parts
	// Tag is a line of a tag file.
	Tag = tagfile.Tag
	// Expected is what a manifest says of a file.
	Expected = tagfile.Expected
	// Finding is one thing that is wrong or odd.
	Finding = finding.Finding
	// Profile is a set of rules for bags.
	Profile = profile.Profile
)

// The algorithms that are computed for every file.
const (
	MD5    = digest.MD5
	SHA1   = digest.SHA1
	SHA256 = digest.SHA256
	SHA512 = digest.SHA512
)

// A Bag is the index of one tar file; as JSON it is the header of an inventory. It is
// complete when [Read] or [ReadInventory] returns it, and may then be read by many
// goroutines.
type Bag struct {
	// TopDir is the first component of every entry's name; it need not equal
	// the name of the bag.
	TopDir string `json:"top_dir"`
	// Files are in the order of the tar; after them come those that only a
	// manifest mentions.
	Files []*File `json:"-"`
	// Tags are those of bagit.txt, bag-info.txt and aptrust-info.txt, in the
	// order they were written.
	Tags []Tag `json:"tags,omitempty"`
	// Manifests and TagManifests are the algorithms there is a file for, sorted.
	// One that is not among the four constants cannot be verified.
	Manifests    []Algorithm `json:"manifests,omitempty"`
	TagManifests []Algorithm `json:"tag_manifests,omitempty"`
	// HasFetch says that there is a fetch.txt.
	HasFetch bool `json:"has_fetch,omitzero"`
	// NoPayloadDir says that nothing in the bag is or lies in data/.
	NoPayloadDir bool `json:"no_payload_dir,omitzero"`
	// Unpacked says that the bag was read from a directory.
	Unpacked bool `json:"unpacked,omitzero"`
	// Bytes is the size of all files that are in the tar, without its headers.
	Bytes int64 `json:"bytes"`
	// Problems are faults of structure. A bag that has one cannot be ingested.
	Problems []Finding `json:"problems,omitempty"`
	// Warnings are oddities that were tolerated.
	Warnings []Finding `json:"warnings,omitempty"`
	// Whole is what ReadOptions.Whole made of the tar; nil if it is not known, since
	// the reading went on from a checkpoint that did not have its state. It is not
	// part of the inventory.
	Whole []byte `json:"-"`
	// More counts the problems that were left out of Problems, because there
	// were too many.
	More int `json:"more,omitzero"`
}

// A File is one file of a bag. There may be hundreds of thousands of them, so it has
// 256 bytes.
type File struct {
	// Path is the entry's name without its first component. It is valid UTF-8,
	// at most 1024 bytes, and stays within the bag.
	Path string `json:"path"`
	// Offset is where the content begins in the tar; Size is its length, bytes.
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
	// ModTime is in UTC; zero if the tar's time is outside the years 1 to 9999.
	ModTime time.Time `json:"mtime,omitzero"`
	Digests Digests   `json:"-"`
	// Agreed are the manifests that have the file with one of these digests.
	Agreed ManifestSet `json:"-"`
	// Missing says that a manifest mentions the file, and the tar has no such
	// entry. It has no size, and its digests are those that the first manifests have.
	Missing bool `json:"missing,omitzero"`
	// Unread says that its content was not read, see [ReadOutline]: its digests are those that
	// the first manifests have.
	Unread bool `json:"-"`
	// Fetch says that fetch.txt has an address for it.
	Fetch bool `json:"fetch,omitzero"`
	// Others is what those manifests say that have another digest, one for each.
	Others []Expected `json:"-"`
	// Parts are the digests of each slice of ReadOptions.PartSize bytes; nil if there is
	// one slice.
	Parts *PartDigests `json:"-"`
	// UUID and Format (a media type) belong to the pipeline: Read leaves them
	// blank, the inventory keeps them.
	UUID   uuid.UUID `json:"uuid,omitzero"`
	Format string    `json:"format,omitempty"`
}

// Kind is the file's part in the bag, which follows from its path.
func (f *File) Kind() Kind { return kindOf(f.Path) }

// Preservable says whether the file is kept in preservation storage. Those that
// only describe the bag's own packaging are not: they are made again when a bag
// is restored.
func (f *File) Preservable() bool {
	switch f.Kind() {
	case Manifest, TagManifest, FetchFile:
		return false
	case PayloadFile, TagFile:
		return f.Path != tagfile.Bagit
	default:
		return true
	}
}

// Kind is a file's part in the bag; it follows from its path.
type Kind string

// The kinds of file.
const (
	PayloadFile Kind = "payload_file"
	Manifest    Kind = "manifest"
	TagManifest Kind = "tag_manifest"
	TagFile     Kind = "tag_file"
	FetchFile   Kind = "fetch.txt"
)

// kindOf tells a file's kind. A manifest lies at the top and ends in .txt, so
// that a folder of tag files called manifest-drafts is preserved like any other.
func kindOf(path string) Kind {
	switch {
	case strings.HasPrefix(path, tagfile.PayloadDir):
		return PayloadFile
	case path == tagfile.Fetch:
		return FetchFile
	case strings.Contains(path, "/") || !strings.HasSuffix(path, ".txt"):
		return TagFile
	case strings.HasPrefix(path, "tagmanifest-"):
		return TagManifest
	case strings.HasPrefix(path, "manifest-"):
		return Manifest
	default:
		return TagFile
	}
}

// Tag returns the first tag of that name (in any case) in the file, and whether
// there is one.
func (b *Bag) Tag(file, name string) (string, bool) {
	for _, t := range b.Tags {
		if t.File == file && strings.EqualFold(t.Name, name) {
			return t.Value, true
		}
	}
	return "", false
}

// file returns the named file, nil if the tar has none. It walks all files, so
// it is for the few files that every bag has.
func (b *Bag) file(path string) *File {
	for _, f := range b.Files {
		if f.Path == path && !f.Missing {
			return f
		}
	}
	return nil
}

// Encoding is what bagit.txt declares as Tag-File-Character-Encoding, as it is
// written there; "UTF-8" if it declares nothing. The bag's manifests and tag
// files are in that encoding, and a bag that is restored with the same tag files
// has to declare it again.
func (b *Bag) Encoding() string {
	name, _ := b.Tag(tagfile.Bagit, tagfile.EncodingTag)
	return cmp.Or(name, tagfile.Encoding{}.String())
}

// JudgeName judges the name of a bag's tar: its key in the receiving bucket, or its
// file name. ok is false if nothing of that name may be ingested; then the finding
// says why.
func JudgeName(key string) (f Finding, ok bool) {
	fault := naming.Fault(naming.Of(key))
	if fault == "" && len(key) > naming.MaxTar {
		fault = fmt.Sprintf("the tar's name is longer than %d bytes", naming.MaxTar)
	}
	return Finding{
		Code: finding.IllegalName,
		Message: fmt.Sprintf("The name '%s' is not legal for a bag: %s. A bag is named after its tar. Rename the tar and upload it again.",
			finding.Show(naming.Of(key)), fault),
	}, fault == ""
}
