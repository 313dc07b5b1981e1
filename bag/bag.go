// Package bag reads, checks and indexes BagIt bags (RFC 8493, and version 0.97
// before it) that arrive as tar files.
//
// [Read] streams a tar once. The [Bag] it returns knows where the bytes of each
// file lie in the tar, their four digests, and what the manifests and the tag
// files say. [Bag.Validate] judges that against a [Profile]. [WriteInventory]
// keeps it for the stages to come.
//
// A bag that is restored is made of what [EntryHeader], [BagitTxt],
// [RewriteBagInfo] and [ManifestWriter] give, so that where each byte of its tar
// will be is known before the first one is written. [ReadIndex] reads it back.
//
// All input is taken to be hostile. What is wrong with the bytes is never an
// error of Go but a [Finding] that a depositor can read. Nothing is allocated
// because a header claims a size.
//
// The package has more than 3,000 lines, since reading, judging and writing share the
// rules of one specification, and a reader of one of them needs the others.
package bag

import (
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Bag is the index of one tar file. It is complete when [Read] or
// [ReadInventory] returns it, and may then be read by many goroutines.
type Bag struct {
	// TopDir is the first component of every entry's name; it need not equal
	// the name of the bag.
	TopDir string
	// Files are in the order of the tar; after them come those that only a
	// manifest mentions.
	Files []*File
	// Tags are those of bagit.txt, bag-info.txt and aptrust-info.txt, in the
	// order they were written.
	Tags []Tag
	// Manifests and TagManifests are the algorithms there is a file for, sorted.
	// One that is not among the four constants cannot be verified.
	Manifests, TagManifests []Algorithm
	// HasFetch says that there is a fetch.txt.
	HasFetch bool
	// NoPayloadDir says that nothing in the bag is or lies in data/.
	NoPayloadDir bool
	// Unpacked says that the bag was read from a directory.
	Unpacked bool
	// Bytes is the size of all files that are in the tar, without its headers.
	Bytes int64
	// Problems are faults of structure. A bag that has one cannot be ingested.
	Problems []Finding
	// Warnings are oddities that were tolerated.
	Warnings []Finding
	// Whole is what ReadOptions.Whole made of the tar; nil if it is not known, since
	// the reading went on from a checkpoint that did not have its state. It is not
	// part of the inventory.
	Whole []byte
	// More counts the problems that were left out of Problems, because there
	// were too many.
	More int
}

// A Tag is one line (with what is folded into it) of a tag file. Name keeps its
// case; compare it by [strings.EqualFold], or ask [Bag.Tag].
type Tag struct {
	File  string `json:"file"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A Finding is one thing that is wrong or odd, in words for the depositor. The
// codes are stable; docs/validation-codes.md lists them.
type Finding struct {
	Code string `json:"code"`
	// Path is that of a file in the bag, or the name of the tar's entry if that
	// is what is wrong; blank if no one file is to blame.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Expected and Found are what was compared, such as two digests; blank if
	// nothing was.
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
}

// A File is one file of a bag. There may be hundreds of thousands of them, so it has
// 256 bytes.
type File struct {
	// Path is the entry's name without its first component. It is valid UTF-8,
	// at most 1024 bytes, and stays within the bag.
	Path string
	// Offset is where the content begins in the tar; Size is its length, bytes.
	Offset, Size int64
	// ModTime is in UTC; zero if the tar's time is outside the years 1 to 9999.
	ModTime time.Time
	Digests Digests
	// Agreed are the manifests that have the file with one of these digests.
	Agreed ManifestSet
	// Missing says that a manifest mentions the file, and the tar has no such
	// entry. It has no size, and its digests are those that the first manifests have.
	Missing bool
	// Unread says that its content was not read, see [ReadOutline]: its digests are those that
	// the first manifests have.
	Unread bool `json:"-"`
	// Fetch says that fetch.txt has an address for it.
	Fetch bool
	// Others is what those manifests say that have another digest, one for each.
	Others []Expected
	// Parts are the digests of each slice of ReadOptions.PartSize bytes; nil if there is
	// one slice.
	Parts *PartDigests
	// UUID and Format (a media type) belong to the pipeline: Read leaves them
	// blank, the inventory keeps them.
	UUID   uuid.UUID
	Format string
}

// PartDigests are the digests of the slices of a content, in their order.
type PartDigests struct {
	SHA256 [][32]byte
	// MD5 is there if ReadOptions.PartMD5 asked for it: what a store without checksums
	// makes the ETag of.
	MD5 [][16]byte
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
		return f.Path != bagitTxt
	default:
		return true
	}
}

// ManifestName is the path in the bag of a payload manifest or of a tag manifest.
func ManifestName(a Algorithm, tag bool) string {
	if tag {
		return "tagmanifest-" + string(a) + ".txt"
	}
	return "manifest-" + string(a) + ".txt"
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

const (
	bagitTxt       = "bagit.txt"
	bagInfoTxt     = "bag-info.txt"
	aptrustInfoTxt = "aptrust-info.txt"
	fetchTxt       = "fetch.txt"
	payloadDir     = "data/"
)

// kindOf tells a file's kind. A manifest lies at the top and ends in .txt, so
// that a folder of tag files called manifest-drafts is preserved like any other.
func kindOf(path string) Kind {
	switch {
	case strings.HasPrefix(path, payloadDir):
		return PayloadFile
	case path == fetchTxt:
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

// algorithmOf takes the algorithm out of a manifest's name.
func algorithmOf(path string) Algorithm {
	_, rest, _ := strings.Cut(path, "-")
	return Algorithm(strings.TrimSuffix(rest, ".txt"))
}

// isParsedTagFile says whether the tags of the file are wanted.
func isParsedTagFile(path string) bool {
	return path == bagitTxt || path == bagInfoTxt || path == aptrustInfoTxt
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
