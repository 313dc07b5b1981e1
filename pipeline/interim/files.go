package interim

import (
	"container/heap"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/lists"
)

// File is a file of an item, and what has become of it so far.
type File struct {
	Path      string            `json:"path"` // in the bag
	Size      int64             `json:"size"`
	State     string            `json:"state"` // see [States]
	Code      string            `json:"code"`  // of what failed; "" if nothing did
	Message   string            `json:"message"`
	UUID      string            `json:"uuid"`
	Format    string            `json:"format"` // media type; "" until it was identified
	PUID      string            `json:"puid"`
	ModTime   *time.Time        `json:"mtime,omitempty"`
	Digests   map[string]string `json:"digests,omitempty"`   // by algorithm, of its bytes
	Manifests []bag.Expected    `json:"manifests,omitempty"` // what the bag's manifests say
	Copies    []Copy            `json:"copies,omitempty"`
}

// Copy is a copy of a file in preservation storage. Only Target is known before the
// copy was verified.
type Copy struct {
	Target     string     `json:"target"`
	ETag       string     `json:"etag,omitempty"`
	StoredAt   *time.Time `json:"stored_at,omitempty"`
	VerifiedAt *time.Time `json:"verified_at,omitempty"`
	VerifiedBy string     `json:"verified_by,omitempty"` // see [registry.Copy]
}

// The states of the files of an ingest.
const (
	fileRead      = "read"       // Receive is at work: its digests are known, and not confirmed yet
	Received      = "received"   // its size and digests are known
	Identified    = "identified" // its format is known
	Copied        = "copied"     // it is at every target
	Verified      = "verified"   // every copy was verified
	Added         = "added"      // on record, and was not before
	fileReplaced  = "replaced"   // on record in place of what was there before
	fileUnchanged = "unchanged"  // on record already with the same bytes; nothing is stored
	filePackaging = "packaging"  // part of the bag's packaging, which is not stored
	fileMissing   = "missing"    // a manifest names it, and it is not in the bag
	fileFailed    = "failed"     // the last attempt failed at it
)

// States are the states that files of an ingest can be in while it is in work.
func States() []string {
	return []string{
		fileRead, Received, Identified, Copied, Verified, Added, fileReplaced, fileUnchanged, filePackaging,
		fileMissing, fileFailed,
	}
}

// Page says which files of an item are asked for. Empty fields do not narrow.
type Page struct {
	State string
	After string // only files whose path comes after
	Limit int
}

// Of takes the page out of all files of an item, which come in any order, and sorts it
// by path. It holds no more files than the page has.
func (p Page) Of(files iter.Seq2[*File, error]) ([]File, error) {
	page := make(filesByPath, 0, min(p.Limit, 1000))
	for f, err := range files {
		switch {
		case err != nil:
			return nil, err
		case p.State != "" && f.State != p.State, f.Path <= p.After && p.After != "":
			continue
		case len(page) < p.Limit:
			heap.Push(&page, *f)
		case f.Path < page[0].Path:
			page[0] = *f
			heap.Fix(&page, 0)
		}
	}
	slices.SortFunc(page, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return page, nil
}

// filesByPath is a heap whose first file has the last path.
type filesByPath []File

func (h filesByPath) Len() int           { return len(h) }
func (h filesByPath) Less(i, j int) bool { return h[i].Path > h[j].Path }
func (h filesByPath) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is called by package heap.
func (h *filesByPath) Push(x any) {
	if f, ok := x.(File); ok {
		*h = append(*h, f)
	}
}

// Pop is called by package heap.
func (h *filesByPath) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	*h = (*h)[:last]
	return f
}

// newItemFile is a file as it is in the bag.
func newItemFile(f *bag.File) *File {
	of := &File{Path: f.Path, Size: f.Size, State: Received, Manifests: f.Expected()}
	if f.UUID != uuid.Nil {
		of.UUID = f.UUID.String()
	}
	if !f.ModTime.IsZero() {
		of.ModTime = &f.ModTime
	}
	if !f.Missing {
		of.Digests = map[string]string{}
		for _, a := range []bag.Algorithm{bag.MD5, bag.SHA1, bag.SHA256, bag.SHA512} {
			of.Digests[string(a)] = f.Digests.Hex(a)
		}
	}
	return of
}

// identified adds what the file's bytes say it is.
func (f *File) identified(as lists.Format) {
	f.Format, f.PUID = as.MIME, as.PUID
}

// copied adds the copies that were verified.
func (f *File) copied(list []lists.Copy) {
	f.Copies = nil
	for _, c := range list {
		f.Copies = append(f.Copies, Copy{Target: c.Target, ETag: c.ETag, StoredAt: &c.Stored, VerifiedAt: &c.Verified, VerifiedBy: c.By})
	}
}
