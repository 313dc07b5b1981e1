package pipeline

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// file is what the stages after Receive need of a file of the bag. There may be
// hundreds of thousands of them, so it is small.
type file struct {
	index   int // place in the inventory
	path    string
	offset  int64 // of the content in the tar
	size    int64
	modTime time.Time
	md5     [16]byte
	sha256  [32]byte
	parts   [][32]byte
	uuid    string
	key     string // in preservation storage
	format  string // media type by extension
}

// smallFile is the size up to which files are read into memory, several in one
// request; larger ones are streamed.
const smallFile = 256 << 10

// groupFiles puts files that lie close together in the tar into groups, so that
// one request reads many small ones. A group has at most a mebibyte and 64
// files, and fewer where there would be less work than workers.
func groupFiles(files []*file, workers int) [][]*file {
	const maxBytes, maxFiles, maxGap = 1 << 20, 64, 64 << 10
	most := min(max(len(files)/(2*workers), 1), maxFiles)
	var groups [][]*file
	for _, f := range files {
		if n := len(groups); n > 0 {
			group := groups[n-1]
			first, last := group[0], group[len(group)-1]
			end := last.offset + last.size
			if last.size <= smallFile && f.size <= smallFile && len(group) < most &&
				f.offset >= end && f.offset-end <= maxGap && f.offset+f.size-first.offset <= maxBytes {
				groups[n-1] = append(group, f)
				continue
			}
		}
		groups = append(groups, []*file{f})
	}
	return groups
}

// readGroup reads the contents of a group of small files from the receiving tar
// in one request and hands each to do. The tar must still be the one that the
// item was made for.
func (w *work) readGroup(ctx context.Context, tar *storage.Bucket, files []*file, do func(f *file, content []byte) error) error {
	start := files[0].offset
	last := files[len(files)-1]
	r := io.NopCloser(strings.NewReader(""))
	if length := last.offset + last.size - start; length > 0 {
		var err error
		r, err = tar.Get(ctx, w.item.Name, storage.Range{Offset: start, Length: length, IfMatch: w.item.ETag})
		if err != nil {
			return w.receivingErr(err)
		}
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	at := start
	for _, f := range files {
		if _, err := io.CopyN(io.Discard, r, f.offset-at); err != nil {
			return fmt.Errorf("read %s up to %s: %w", w.item.Name, f.path, err)
		}
		content := make([]byte, f.size)
		if _, err := io.ReadFull(r, content); err != nil {
			return fmt.Errorf("read %s: %w", f.path, err)
		}
		at = f.offset + f.size
		if err := do(f, content); err != nil {
			return err
		}
	}
	return nil
}

// upload describes a file to a bucket: its digests, so that the bytes are
// checked once more on their way, and what people find at a copy that has lost
// its registry.
func (w *work) upload(f *file, contentType string, encodePath bool) storage.Upload {
	metadata := map[string]string{
		"institution": w.item.Institution,
		"md5":         hex.EncodeToString(f.md5[:]),
		"sha256":      hex.EncodeToString(f.sha256[:]),
	}
	describe(metadata, "bag", w.item.ObjectIdentifier, false)
	describe(metadata, "bagpath", f.path, encodePath)
	return storage.Upload{Size: f.size, SHA256: f.sha256, MD5: f.md5, ContentType: contentType, Metadata: metadata}
}

// describe adds a name to metadata as it is, or query-escaped under another key
// where headers would not carry it unharmed: they take printable ASCII, and some
// providers reject two spaces in a row. S3 allows 2 KB of metadata in all, so
// of a name too long for that only the beginning is kept, under a third key.
func describe(metadata map[string]string, key, name string, encode bool) {
	const most = 1400
	plain := name != "" && name == strings.TrimSpace(name) && !strings.Contains(name, "  ")
	for _, c := range []byte(name) {
		plain = plain && c >= ' ' && c <= '~'
	}
	if plain && !encode {
		metadata[key] = name
		return
	}
	escaped := url.QueryEscape(name)
	if len(escaped) <= most {
		metadata[key+"-encoded"] = escaped
		return
	}
	cut := escaped[:most]
	if i := strings.LastIndexByte(cut, '%'); i > most-3 {
		cut = cut[:i]
	}
	metadata[key+"-encoded-beginning"] = cut
}

// encodesPath tells whether copies at a target always carry their path encoded.
func encodesPath(target string) bool { return strings.HasPrefix(target, "Wasabi") }

// targets are the buckets that a storage option's copies go to, the primary
// first, with their names.
func (d Deps) targets(option string) ([]string, []*storage.Bucket, error) {
	names := storage.TargetsOf(option)
	if len(names) == 0 {
		return nil, nil, claim.Fatal("storage-option", "there is no storage option %q", option)
	}
	buckets := make([]*storage.Bucket, len(names))
	for i, name := range names {
		b, ok := d.Targets[name]
		if !ok {
			return nil, nil, claim.Transient("target-missing", fmt.Errorf("the storage target %s is not configured in this worker", name))
		}
		buckets[i] = b
	}
	return names, buckets, nil
}

// stored tells whether a file of the inventory goes into preservation storage.
func stored(f *bag.File, p known) bool { return f.Preservable() && !f.Missing && !p.Unchanged }
