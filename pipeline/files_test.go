package pipeline

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// Names go into headers as they are only where every provider carries them
// unharmed.
func TestNamesInMetadata(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 400)
	for name, tc := range map[string]struct {
		path   string
		encode bool
		want   map[string]string
	}{
		"plain":              {"data/a b.txt", false, map[string]string{"bagpath": "data/a b.txt"}},
		"plain for Wasabi":   {"data/a b.txt", true, map[string]string{"bagpath-encoded": "data%2Fa+b.txt"}},
		"two spaces":         {"data/a  b", false, map[string]string{"bagpath-encoded": "data%2Fa++b"}},
		"space at the end":   {"data/a ", false, map[string]string{"bagpath-encoded": "data%2Fa+"}},
		"accents":            {"data/é", false, map[string]string{"bagpath-encoded": "data%2F%C3%A9"}},
		"narrow space":       {"a\u202fb", false, map[string]string{"bagpath-encoded": "a%E2%80%AFb"}},
		"line separator":     {"a\u2028b", false, map[string]string{"bagpath-encoded": "a%E2%80%A8b"}},
		"control character":  {"a\x07b", false, map[string]string{"bagpath-encoded": "a%07b"}},
		"too long for S3":    {long, false, map[string]string{"bagpath-encoded-beginning": strings.Repeat("%C3%A9", 233)}},
		"long but not too":   {strings.Repeat("a", 1024), false, map[string]string{"bagpath": strings.Repeat("a", 1024)}},
		"nothing to be said": {"", false, map[string]string{"bagpath-encoded": ""}},
	} {
		got := map[string]string{}
		describe(got, "bagpath", tc.path, tc.encode)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for key, value := range got {
			if _, err := url.QueryUnescape(value); strings.HasSuffix(key, "encoded") && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Whatever files a bag has: each is in one pack and in one group of work, in
// order, and what is read in one request is small and lies together.
func TestPacksAndGroupsOfFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 5000), rapid.Int64Range(packedFile-2, packedFile+2), rapid.Int64Range(wholeFile-2, wholeFile+2),
			rapid.Int64Range(0, 5<<20)), 0, 300).Draw(t, "sizes")
		workers := rapid.IntRange(1, 16).Draw(t, "workers")
		var files []*file
		offset := int64(512)
		for i, size := range sizes {
			files = append(files, &file{
				index: i, path: fmt.Sprint(i), offset: offset, size: size, key: fmt.Sprint("key", i), sha256: [32]byte{byte(i), byte(i >> 8)},
			})
			offset += (size+511)/512*512 + 512 + rapid.SampledFrom([]int64{0, 0, 0, 512, 100_000}).Draw(t, "gap")
		}
		packFiles(files)

		var packs [][]*file
		keys := map[string]bool{}
		for next := 0; next < len(files); next += len(packs[len(packs)-1]) {
			p := files[next].pack
			packs = append(packs, p.files)
			if keys[p.key()] || len(p.files) == 1 && p.key() != files[next].key {
				t.Fatalf("a pack of %d files is named %s, as others are: %v", len(p.files), p.key(), keys[p.key()])
			}
			keys[p.key()] = true
			var size int64
			for _, f := range p.files {
				if f.pack != p || f.at != size {
					t.Fatalf("file %d begins at %d in its pack, want %d", f.index, f.at, size)
				}
				size += f.size
			}
			if size != p.size() {
				t.Fatalf("a pack of %d bytes says %d", size, p.size())
			}
		}

		inOrder(t, packs, len(files), 64, 16<<10)

		most := min(max(len(files)/(2*workers), 1), 64)
		inOrder(t, inStaging(files, workers), len(files), most, 16<<10)
		inOrder(t, inTheTar(files, workers), len(files), most, 256<<10)
		for _, group := range inStaging(files, workers) {
			if group[0].pack != group[len(group)-1].pack {
				t.Fatal("a group has files of two packs")
			}
		}
		next := 0
		for _, group := range inShares(files, workers) {
			for _, f := range group {
				if f.index != next || len(group) > most {
					t.Fatalf("file %d stands where %d should, in a group of %d", f.index, next, len(group))
				}
				next++
			}
		}
		if next != len(files) {
			t.Fatalf("%d of %d files are in shares", next, len(files))
		}
		staged := inTheTarByPack(files, workers)
		inOrder(t, staged, len(files), 64, 256<<10)
		for _, group := range staged {
			if p := group[0].pack; len(p.files) > 1 && len(group) != len(p.files) || len(p.files) == 1 && len(group) > most {
				t.Fatalf("a group has %d files, its first pack %d; %d are the most", len(group), len(p.files), most)
			}
		}
	})
}

// inOrder checks that groups hold all files in their order, and each group what
// one request may read.
func inOrder(t *rapid.T, groups [][]*file, files, most int, largest int64) {
	next := 0
	for _, group := range groups {
		for i, f := range group {
			if f.index != next {
				t.Fatalf("file %d stands where %d should", f.index, next)
			}
			next++
			if len(group) > 1 && f.size > largest {
				t.Fatalf("a file of %d bytes is in a group of %d", f.size, len(group))
			}
			if i > 0 && f.offset-(group[i-1].offset+group[i-1].size) > 64<<10 {
				t.Fatalf("file %d is in a group with one that lies far before it", f.index)
			}
		}
		span := group[len(group)-1].offset + group[len(group)-1].size - group[0].offset
		if len(group) > most || len(group) > 1 && span > 1<<20 {
			t.Fatalf("a group of %d files spans %d bytes", len(group), span)
		}
	}
	if next != files {
		t.Fatalf("%d of %d files are in groups", next, files)
	}
}

// The same files make the same pack, and other content another.
func TestPackIsNamedByItsContent(t *testing.T) {
	t.Parallel()
	name := func(sums ...byte) string {
		var files []*file
		for i, sum := range sums {
			files = append(files, &file{offset: int64(1024 * i), size: 10, sha256: [32]byte{sum}})
		}
		packFiles(files)
		return files[0].pack.key()
	}
	if a, b := name(1, 2), name(1, 2); a != b {
		t.Errorf("the same files are named %s and %s", a, b)
	}
	for _, other := range []string{name(2, 1), name(1, 3), name(1, 2, 3)} {
		if other == name(1, 2) {
			t.Errorf("other files are named %s too", other)
		}
	}
}

// A copy is held against everything that its provider says of it.
func TestCompareCopy(t *testing.T) {
	t.Parallel()
	content := []byte("content")
	f := &file{size: 7, sha256: sha256.Sum256(content), md5: md5.Sum(content)}
	md5s := &file{size: 7, sha256: f.sha256, md5: f.md5, md5s: [][16]byte{md5.Sum(content[:5]), md5.Sum(content[5:])}}
	inParts := &file{size: 7, sha256: f.sha256, md5: f.md5, parts: [][32]byte{sha256.Sum256(content[:5]), sha256.Sum256(content[5:])}}
	want := storage.Upload{Size: 7, ContentType: "text/plain", Metadata: map[string]string{"bag": "b"}}
	// The checksums are those that S3 documents: base64 of the digest, and of the
	// digest of the parts' digests with their number.
	sum := base64.StdEncoding.EncodeToString(f.sha256[:])
	both := sha256.Sum256(append(inParts.parts[0][:], inParts.parts[1][:]...))
	md5s.parts = inParts.parts
	eachMD5 := md5.Sum(append(md5s.md5s[0][:], md5s.md5s[1][:]...))
	composite := base64.StdEncoding.EncodeToString(both[:]) + "-2"
	good := storage.Object{Size: 7, SHA256: sum, ETag: "e", ContentType: "text/plain", Metadata: map[string]string{"bag": "b", "more": "x"}}
	for name, tc := range map[string]struct {
		f      *file
		change func(*storage.Object)
		wrong  string
	}{
		"good":                         {f, func(*storage.Object) {}, ""},
		"good by ETag":                 {f, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(f.md5[:]) }, ""},
		"good in parts":                {inParts, func(o *storage.Object) { o.SHA256 = composite }, ""},
		"parts copied whole":           {inParts, func(*storage.Object) {}, ""},
		"parts of unknown MD5":         {inParts, func(o *storage.Object) { o.SHA256 = "" }, "CHECKSUM"},
		"parts by their MD5":           {md5s, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(eachMD5[:])+"-2" }, ""},
		"parts by the MD5 of all":      {md5s, func(o *storage.Object) { o.SHA256, o.ETag = "", hex.EncodeToString(f.md5[:]) }, ""},
		"other parts by their MD5":     {md5s, func(o *storage.Object) { o.SHA256 = "" }, "MD5 of its parts"},
		"size alone, of parts":         {inParts, func(o *storage.Object) { o.SHA256, o.Size = "", 8 }, "8 bytes"},
		"composite of a file in one":   {f, func(o *storage.Object) { o.SHA256 = composite }, "SHA-256"},
		"another checksum":             {f, func(o *storage.Object) { o.SHA256 = "x" + sum[1:] }, "SHA-256"},
		"another ETag and no checksum": {f, func(o *storage.Object) { o.SHA256 = "" }, "ETag"},
		"another content type":         {f, func(o *storage.Object) { o.ContentType = "text/html" }, "text/html"},
		"metadata missing":             {f, func(o *storage.Object) { o.Metadata = nil }, "metadata bag"},
	} {
		o := good
		tc.change(&o)
		err := compare(o, want, tc.f)
		if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%s: %v, want %q", name, err, tc.wrong)
		}
	}
}

// A file's uuid is the same for the same upload, and no other's.
func TestFileUUID(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 1, ObjectIdentifier: "test.edu/bag", ETag: "a"}
	mine := fileUUID(item, 3, "data/x")
	if again := fileUUID(item, 3, "data/x"); again != mine {
		t.Errorf("%s, and %s again", mine, again)
	}
	anotherItem, anotherObject, anotherUpload := item, item, item
	anotherItem.ID, anotherObject.ObjectIdentifier, anotherUpload.ETag = 2, "test.edu/bags", "b"
	for name, other := range map[string]string{
		"another item":   fileUUID(anotherItem, 3, "data/x"),
		"another object": fileUUID(anotherObject, 3, "data/x"),
		"another upload": fileUUID(anotherUpload, 3, "data/x"),
		"another place":  fileUUID(item, 4, "data/x"),
		"another path":   fileUUID(item, 3, "data/y"),
	} {
		if other == mine {
			t.Errorf("%s has the same uuid", name)
		}
	}
}

// The stream of a tar outlives connections that break, as long as it gets on.
func TestStreamOutlivesBrokenConnections(t *testing.T) {
	t.Parallel()
	content := []byte("the content of a tar")
	for name, tc := range map[string]struct {
		each []int // bytes that come through each connection before it breaks
		want error
	}{
		"one break":               {[]int{5, 100}, nil},
		"without a byte between":  {[]int{5, 0, 0, 100}, nil},
		"many, but it gets on":    {[]int{1, 1, 1, 1, 1, 1, 100}, nil},
		"again and again at once": {[]int{5, 0, 0, 0, 0, 100}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			p := &patient{ctx: t.Context(), size: int64(len(content)), open: func(offset int64) (io.ReadCloser, error) {
				n := tc.each[opened]
				opened++
				rest := content[offset:]
				if n >= len(rest) {
					return io.NopCloser(bytes.NewReader(rest)), nil
				}
				return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
			}}
			got, err := io.ReadAll(p)
			if !errors.Is(err, tc.want) || err == nil && !bytes.Equal(got, content) {
				t.Errorf("read %q, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// Access is one of three, in lower case, and the institution's unless the bag
// says otherwise.
func TestAccess(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"Consortia": "consortia", "INSTITUTION": "institution", "restricted": "restricted", "": "institution", "public": "institution",
	} {
		r := recorder{bag: bag.Bag{Tags: []bag.Tag{{File: "aptrust-info.txt", Name: "Access", Value: said}}}}
		if got := r.access(); got != want {
			t.Errorf("Access %q is stored as %q, want %q", said, got, want)
		}
	}
}
