package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// file is what the stages after Receive need of a file of the bag. There may be
// hundreds of thousands of them, so it is small.
type file struct {
	index  int // place in the inventory
	path   string
	offset int64 // of the content in the tar
	size   int64
	md5    [16]byte
	sha256 [32]byte
	parts  [][32]byte // SHA-256 of each part, if it goes in parts
	md5s   [][16]byte // likewise, if a bucket keeps no SHA-256
	uuid   string
	key    string // in preservation storage
	format string // media type by extension
	pack   *pack  // what it is staged in
	at     int64  // its place in the pack
	alone  bool   // it is on record, so that every copy of it should be
}

const (
	// packedFile is the size in bytes up to which files share an object in the
	// staging area. Their copies come through the worker; those of larger ones the
	// store makes cheaper by itself.
	packedFile = 16 << 10
	// wholeFile is the size up to which files are read into memory; larger ones
	// are streamed.
	wholeFile = 256 << 10

	// A request reads at most so many bytes and files. Between two of them the tar
	// may have so much else: headers, and files that are not wanted.
	maxRequest = 1 << 20
	maxFiles   = 64
	maxGap     = 64 << 10
)

// A pack is an object in the staging area: the content of small files that are
// neighbours in the tar, one after the other, or a file alone. A bag may have
// 100,000 files, and a request costs a store more than some KiB do.
type pack struct{ files []*file }

// packFiles puts every file of a list into a pack. The same list gives the same
// packs, so each stage finds what another has staged.
func packFiles(files []*file) {
	groups := groupFiles(files, func(group []*file, f *file) bool {
		return len(group) < maxFiles && together(group, f, packedFile)
	})
	for _, group := range groups {
		p := &pack{group}
		at := int64(0)
		for _, f := range group {
			f.pack, f.at = p, at
			at += f.size
		}
	}
}

// shared tells whether the pack is of several files.
func (p *pack) shared() bool { return len(p.files) > 1 }

func (p *pack) size() int64 {
	last := p.files[len(p.files)-1]
	return last.at + last.size
}

// key names a pack in staging by what is in it, so that one from an earlier pass
// of the item is never taken for another. A file alone has its own key.
func (p *pack) key() string {
	if !p.shared() {
		return p.files[0].key
	}
	hash := sha256.New()
	for _, f := range p.files {
		hash.Write(f.sha256[:])
	}
	return "pack-" + hex.EncodeToString(hash.Sum(nil))
}

// groupFiles divides a list, in its order, into groups of files that belong with
// those before them.
func groupFiles(files []*file, belongs func(group []*file, f *file) bool) [][]*file {
	var groups [][]*file
	for _, f := range files {
		if n := len(groups) - 1; n >= 0 && belongs(groups[n], f) {
			groups[n] = append(groups[n], f)
		} else {
			groups = append(groups, []*file{f})
		}
	}
	return groups
}

// together tells whether one request should read f and the group before it, all
// of at most so many bytes, from the tar.
func together(group []*file, f *file, largest int64) bool {
	first, last := group[0], group[len(group)-1]
	end := last.offset + last.size
	return last.size <= largest && f.size <= largest &&
		f.offset >= end && f.offset-end <= maxGap && f.offset+f.size-first.offset <= maxRequest
}

// share is how many files go into a group at most, so that so many workers all
// have something to do.
func share(files []*file, workers int) int { return min(max(len(files)/(2*workers), 1), maxFiles) }

// inTheTar groups files that one request reads from the tar.
func inTheTar(files []*file, workers int) [][]*file {
	most := share(files, workers)
	return groupFiles(files, func(group []*file, f *file) bool {
		return len(group) < most && together(group, f, wholeFile)
	})
}

// inTheTarByPack is inTheTar, but for packs of several files, which stay whole
// and by themselves.
func inTheTarByPack(files []*file, workers int) [][]*file {
	most := share(files, workers)
	return groupFiles(files, func(group []*file, f *file) bool {
		if group[0].pack.shared() || f.pack.shared() {
			return group[0].pack == f.pack
		}
		return len(group) < most && together(group, f, wholeFile)
	})
}

// inShares groups files of which each costs requests of its own.
func inShares(files []*file, workers int) [][]*file {
	most := share(files, workers)
	return groupFiles(files, func(group []*file, _ *file) bool { return len(group) < most })
}

// inStaging groups files that one request reads from the staging area.
func inStaging(files []*file, workers int) [][]*file {
	most := share(files, workers)
	return groupFiles(files, func(group []*file, f *file) bool {
		return len(group) < most && group[0].pack == f.pack
	})
}

// opener opens a range of an object.
type opener func(ctx context.Context, offset, length int64) (io.ReadCloser, error)

// tar returns the receiving bucket and what opens ranges of the bag in it, which
// must still be the one that the item was made for.
func (w *work) tar(d Deps) (*storage.Bucket, opener, error) {
	bucket, err := d.Receiving(w.item.Bucket)
	if err != nil {
		return nil, nil, fmt.Errorf("open the receiving bucket: %w", err)
	}
	return bucket, func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		r, err := bucket.Get(ctx, w.item.Name, storage.Range{Offset: offset, Length: length, IfMatch: w.item.ETag})
		if err != nil {
			return nil, w.receivingErr(err)
		}
		return r, nil
	}, nil
}

// atTar and atPack say where the content of a file begins.
func atTar(f *file) int64  { return f.offset }
func atPack(f *file) int64 { return f.at }

// readGroup reads the contents of a group of small files in one request and
// hands each to do.
func readGroup(ctx context.Context, open opener, files []*file, at func(*file) int64, do func(f *file, content []byte) error) error {
	last := files[len(files)-1]
	pos := at(files[0])
	r, err := open(ctx, pos, at(last)+last.size-pos)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	for _, f := range files {
		if _, err := io.CopyN(io.Discard, r, at(f)-pos); err != nil {
			return fmt.Errorf("read up to %s: %w", f.path, err)
		}
		content := make([]byte, f.size)
		if _, err := io.ReadFull(r, content); err != nil {
			return fmt.Errorf("read %s: %w", f.path, err)
		}
		pos = at(f) + f.size
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
	return uploadOf(w.item.Institution, w.item.ObjectIdentifier, f, contentType, encodePath)
}

func uploadOf(institution, object string, f *file, contentType string, encodePath bool) storage.Upload {
	metadata := map[string]string{
		"institution": institution,
		"md5":         hex.EncodeToString(f.md5[:]),
		"sha256":      hex.EncodeToString(f.sha256[:]),
	}
	describe(metadata, "bag", object, false)
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

// again tells whether the stage has had the item before: in this pass or, where that
// was looked up, in one that it has finished.
func (w *work) again() bool { return w.had || w.item.Token > w.item.Entered+1 }

// there tells whether a bucket has a file already, whole and as it should be,
// although Redis knows nothing of it: another worker may have died in between, or
// Redis have lost it. It is asked only of a stage that has had the item before.
func (w *work) there(ctx context.Context, bucket *storage.Bucket, key string, f *file, up storage.Upload) bool {
	if !w.again() {
		return false
	}
	o, err := bucket.Head(ctx, key)
	return err == nil && compare(o, up, f) == nil
}

// wantPartMD5 tells whether a bucket that files go to keeps no SHA-256, so that an
// upload in parts is known there by the MD5 of each.
func (d Deps) wantPartMD5() bool {
	buckets := slices.AppendSeq([]*storage.Bucket{d.Staging}, maps.Values(d.Targets))
	return slices.ContainsFunc(buckets, func(b *storage.Bucket) bool { return !b.KeepsSHA256() })
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
			return nil, nil, noTarget(name)
		}
		buckets[i] = b
	}
	return names, buckets, nil
}

// stored tells whether a file of the inventory goes into preservation storage.
func stored(f *bag.File, p known) bool { return f.Preservable() && !f.Missing && !p.Unchanged }
