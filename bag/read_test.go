package bag_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func sample(t testing.TB, s bagtest.Spec) []byte {
	t.Helper()
	return must.Get(s.Bytes())(t)
}

func read(t testing.TB, data []byte) *bag.Bag {
	t.Helper()
	b, err := bag.Read(context.Background(), bytes.NewReader(data), bag.ReadOptions{})
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return b
}

func codes(list []bag.Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Code)
	}
	return out
}

func file(t testing.TB, b *bag.Bag, path string) *bag.File {
	t.Helper()
	for _, f := range b.Files {
		if f.Path == path {
			return f
		}
	}
	t.Fatalf("no file %s", path)
	return nil
}

// Offsets are what lets later stages read ranges of the tar; digests are what
// everything else is compared with. Long names and accents make archive/tar
// write PAX headers, large files take the parallel way.
func TestReadKnowsWhereEachFileLiesAndWhatItIs(t *testing.T) {
	t.Parallel()
	long := "data/" + strings.Repeat("very-long-directory-name/", 20) + "f.txt"
	data := sample(t, bagtest.Spec{Files: []bagtest.File{
		{Path: "data/empty"},
		{Path: "data/one", Content: "x"},
		{Path: "data/block", Size: 512},
		{Path: long, Size: 1000},
		{Path: "data/grüße.txt", Size: 64<<10 - 1},
		{Path: "data/edge", Size: 64 << 10},
		{Path: "data/over", Size: 64<<10 + 1},
		{Path: "data/large.bin", Size: 5<<20 + 17},
	}})
	b := must.Get(bag.Read(t.Context(), bytes.NewReader(data), bag.ReadOptions{
		PartSize: func(int64) int64 { return 1 << 20 },
	}))(t)
	if len(b.Problems)+len(b.Warnings) > 0 {
		t.Fatalf("problems %v, warnings %v", b.Problems, b.Warnings)
	}
	var total int64
	for _, f := range b.Files {
		content := data[f.Offset : f.Offset+f.Size]
		want := bag.Digests{MD5: md5.Sum(content), SHA1: sha1.Sum(content), SHA256: sha256.Sum256(content), SHA512: sha512.Sum512(content)}
		if f.Digests != want {
			t.Errorf("%s: digests or offset %d are wrong", f.Path, f.Offset)
		}
		total += f.Size
	}
	if b.Bytes != total || b.TopDir != "sample-bag" || len(b.Files) != 8+6 {
		t.Errorf("bytes %d (want %d), top dir %q, %d files", b.Bytes, total, b.TopDir, len(b.Files))
	}
	if v := b.Validate(nil); !v.Valid {
		t.Errorf("not valid: %v", v.Errors)
	}
}

func TestReadDigestsPartsOfFilesLargerThanOnePart(t *testing.T) {
	t.Parallel()
	const part = 1000
	for _, size := range []int64{0, 999, 1000, 1001, 2000, 3333, 200_000} {
		data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/f", Size: size}}})
		for _, withMD5 := range []bool{false, true} {
			b := must.Get(bag.Read(t.Context(), bytes.NewReader(data), bag.ReadOptions{
				PartSize: func(int64) int64 { return part },
				PartMD5:  withMD5,
			}))(t)
			f := file(t, b, "data/f")
			var want *bag.PartDigests
			for at := int64(0); size > part && at < size; at += part {
				slice := data[f.Offset+at : f.Offset+min(at+part, size)]
				if want == nil {
					want = &bag.PartDigests{}
				}
				want.SHA256 = append(want.SHA256, sha256.Sum256(slice))
				if withMD5 {
					want.MD5 = append(want.MD5, md5.Sum(slice))
				}
			}
			if diff := cmp.Diff(want, f.Parts); diff != "" {
				t.Errorf("size %d: %s", size, diff)
			}
			again := new(bag.File)
			line, err := json.Marshal(f)
			if err == nil {
				err = json.Unmarshal(line, again)
			}
			if diff := cmp.Diff(f, again); err != nil || diff != "" {
				t.Errorf("size %d, as JSON: %v %s", size, err, diff)
			}
		}
	}
}

// Each kind of entry that has no place in a bag, or a name that would lead out
// of it.
func TestReadNamesWhatIsWrongWithAnEntry(t *testing.T) {
	t.Parallel()
	regular := func(name string) bagtest.Entry { return bagtest.Entry{Name: name, Type: tar.TypeReg, Content: "x"} }
	for _, tt := range []struct {
		name  string
		entry bagtest.Entry
		code  string // blank if fine
	}{
		{"directory", bagtest.Entry{Name: "sample-bag/data/", Type: tar.TypeDir}, ""},
		{"directory of another bag", bagtest.Entry{Name: "other/data/", Type: tar.TypeDir}, "multiple-top-directories"},
		{"directory outside", bagtest.Entry{Name: "sample-bag/../../etc/", Type: tar.TypeDir}, "illegal-path"},
		{"absolute directory", bagtest.Entry{Name: "/etc/", Type: tar.TypeDir}, "illegal-path"},
		{"directory that is not UTF-8", bagtest.Entry{Name: "sample-bag/\xff/", Type: tar.TypeDir}, "illegal-path"},
		{"where the tar was made", bagtest.Entry{Name: "./", Type: tar.TypeDir}, ""},
		{"the top, from there", bagtest.Entry{Name: "./sample-bag/", Type: tar.TypeDir}, ""},
		{"no directory", regular("loose.txt"), "illegal-path"},
		{"dot dot", regular("sample-bag/data/../../x"), "illegal-path"},
		{"dot dot on top", regular("../x/y"), "illegal-path"},
		{"dot dot by backslash", regular(`sample-bag/data/..\..\x`), "illegal-path"},
		{"absolute", regular("/sample-bag/data/x"), "illegal-path"},
		{"empty component", regular("sample-bag/data//x"), "illegal-path"},
		{"dot component", regular("sample-bag/./data/x"), "illegal-path"},
		{"only the top", regular("sample-bag"), "illegal-path"},
		{"drive", regular(`sample-bag/C:\x`), "illegal-path"},
		{"home", regular("sample-bag/~root/x"), "illegal-path"},
		{"a tilde is no home", regular("sample-bag/~x"), ""},
		{"two dots in a name", regular("sample-bag/data/a..b"), ""},
		{"leading dot slash", regular("./sample-bag/data/x"), ""},
		{"long", regular("sample-bag/data/" + strings.Repeat("x", 1020)), "illegal-path"},
		{"longest", regular("sample-bag/data/" + strings.Repeat("x", 1019)), ""},
		{"not UTF-8", regular("sample-bag/data/\xff"), "illegal-path"},
		{"other top", regular("other/data/x"), "multiple-top-directories"},
		{"twice", regular("sample-bag/data/hello.txt"), "duplicate-file"},
		{"symlink", bagtest.Entry{Name: "sample-bag/data/l", Type: tar.TypeSymlink, Linkname: "hello.txt"}, "unsupported-entry"},
		{"hard link", bagtest.Entry{Name: "sample-bag/data/l", Type: tar.TypeLink, Linkname: "sample-bag/data/hello.txt"}, "unsupported-entry"},
		{"device", bagtest.Entry{Name: "sample-bag/data/l", Type: tar.TypeChar}, "unsupported-entry"},
		{"pipe", bagtest.Entry{Name: "sample-bag/data/l", Type: tar.TypeFifo}, "unsupported-entry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := read(t, sample(t, bagtest.Spec{Entries: []bagtest.Entry{tt.entry}}))
			var want []string
			if tt.code != "" {
				want = []string{tt.code}
			}
			if diff := cmp.Diff(want, codes(b.Problems)); diff != "" {
				t.Errorf("problems %v: %s", b.Problems, diff)
			}
			if (tt.code == "") == (len(b.Problems) > 0) || tt.code != "" && b.Validate(nil).Valid {
				t.Error("the verdict does not follow")
			}
		})
	}
}

// Bags made by "tar c ./bag" were refused by the old system.
func TestReadTakesTarsWhoseNamesBeginWithDotSlash(t *testing.T) {
	t.Parallel()
	b := read(t, sample(t, bagtest.Spec{Name: "./my-bag"}))
	if b.TopDir != "my-bag" || !b.Validate(nil).Valid {
		t.Errorf("top dir %q, verdict %v", b.TopDir, b.Validate(nil))
	}
}

// A sparse file is a few bytes in the tar that claim to be any size. GNU tar
// writes it in two ways: as a type of its own, and by PAX records.
func TestReadRefusesSparseFilesWithoutReadingTheirHoles(t *testing.T) {
	t.Parallel()
	write := func(h tar.Header) []byte {
		h.Name, h.Size, h.Typeflag = "b/data/x", 1, tar.TypeReg
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		must.Do(t, w.WriteHeader(&h))
		must.Get(w.Write([]byte("x")))(t)
		must.Do(t, w.Close())
		return out.Bytes()
	}
	// archive/tar refuses to write such files; so they are made by hand
	gnu := write(tar.Header{Format: tar.FormatGNU})
	gnu[156] = tar.TypeGNUSparse
	copy(gnu[386:], "00000000000\x0000000000001\x00")
	copy(gnu[483:], "77777777777\x00")
	fixChecksum(gnu)
	pax := write(tar.Header{Format: tar.FormatPAX, PAXRecords: map[string]string{
		"FAROL.sparse.numblocks": "1", "FAROL.sparse.map": "0,1", "FAROL.sparse.size": "9223372036854775807",
	}})
	pax = fixRecords(bytes.ReplaceAll(pax, []byte("FAROL.sparse"), []byte("GNU.sparse\x00\x00")))
	for name, data := range map[string][]byte{"gnu": gnu, "pax": pax} {
		b := read(t, data)
		if len(b.Problems) != 1 || b.Problems[0].Code != "unsupported-entry" || b.Problems[0].Path != "data/x" {
			t.Errorf("%s: problems %v", name, b.Problems)
		}
	}
}

// Wherever the tar is cut, the error is the depositor's and nobody else's.
func TestReadReportsATarThatIsCutAnywhere(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{})
	end := len(data) - 1024
	for n := 0; n < len(data); n += 100 {
		b, err := bag.Read(t.Context(), bytes.NewReader(data[:n]), bag.ReadOptions{})
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if n < end-512 && b.Validate(nil).Valid {
			t.Errorf("cut at %d of %d: valid", n, len(data))
		}
		if n > 512 && n%512 != 0 && n < end-512 && len(b.Problems) == 0 {
			t.Errorf("cut at %d within a block: no problem", n)
		}
	}
	b := read(t, data[:end])
	if diff := cmp.Diff([]string{"tar-no-end-marker"}, codes(b.Warnings)); diff != "" {
		t.Error(diff)
	}
}

func TestReadNamesTheFileInWhichTheTarEnds(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 1 << 20}}})
	b := read(t, data[:512<<10])
	if len(b.Problems) != 1 || b.Problems[0].Code != "tar-truncated" || b.Problems[0].Path != "data/large" {
		t.Errorf("problems %v", b.Problems)
	}
	// what comes after is missing, but only the cut is to blame
	if v := b.Validate(nil); len(v.Errors) != 1 {
		t.Errorf("errors %v", v.Errors)
	}
}

func TestReadTellsWhatIsUploadedInsteadOfATar(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ data, code, hint string }{
		"gzip":    {"\x1f\x8b\x08" + strings.Repeat("z", 2000), "not-a-tar", "gzip"},
		"zip":     {"PK\x03\x04" + strings.Repeat("z", 2000), "not-a-tar", "zip"},
		"short":   {"hello", "not-a-tar", ""},
		"text":    {strings.Repeat("hello ", 500), "not-a-tar", ""},
		"nothing": {"", "empty-tar", ""},
		"zeros":   {strings.Repeat("\x00", 10240), "empty-tar", ""},
	} {
		b := read(t, []byte(tt.data))
		if len(b.Problems) != 1 || b.Problems[0].Code != tt.code || !strings.Contains(b.Problems[0].Message, tt.hint) {
			t.Errorf("%s: %v", name, b.Problems)
		}
		if v := b.Validate(nil); v.Valid || len(v.Errors) != 1 {
			t.Errorf("%s: verdict %v", name, v)
		}
	}
}

func TestReadReportsDamageBetweenFiles(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{})
	f := file(t, read(t, data), "data/hello.txt")
	copy(data[f.Offset+512:], "garbage where a header should be")
	b := read(t, data)
	if diff := cmp.Diff([]string{"tar-corrupt"}, codes(b.Problems)); diff != "" {
		t.Errorf("problems %v: %s", b.Problems, diff)
	}
}

func TestReadWarnsOfDataAfterTheEnd(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{})
	zeros := make([]byte, 9<<10)
	if b := read(t, append(bytes.Clone(data), zeros...)); len(b.Warnings) > 0 {
		t.Errorf("warnings of padding: %v", b.Warnings)
	}
	b := read(t, append(append(bytes.Clone(data), zeros...), "something"...))
	if diff := cmp.Diff([]string{"tar-trailing-data"}, codes(b.Warnings)); diff != "" {
		t.Error(diff)
	}
}

// A broken connection must be tried again; it says nothing about the bag. Even
// if its error is the one that archive/tar has for a tar that is cut.
func TestReadReturnsTheReadersOwnErrors(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 200_000}, {Path: "data/s", Content: "x"}}})
	for _, broken := range []error{errors.New("connection reset"), io.ErrUnexpectedEOF, fmt.Errorf("get: %w", io.EOF)} {
		for n := 0; n <= len(data); n += 5000 {
			r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken))
			if _, err := bag.Read(t.Context(), r, bag.ReadOptions{}); !errors.Is(err, broken) {
				t.Fatalf("broken at %d: error %v, want %v", n, err, broken)
			}
		}
	}
}

func TestReadStopsWhenAsked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 40 << 20}}})
	o := bag.ReadOptions{Progress: func(path string, _ int, offset int64) {
		if path == "data/large" && offset > 16<<20 {
			cancel()
		}
	}}
	if _, err := bag.Read(ctx, bytes.NewReader(data), o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
}

func TestReadBoundsTheNumberOfFiles(t *testing.T) {
	t.Parallel()
	spec := bagtest.Spec{Leave: []string{"data/a", "data/b"}, Files: []bagtest.File{
		{Path: "data/a", Content: "a"}, {Path: "data/b", Content: "b"}, {Path: "data/c", Content: "c"},
	}}
	for _, first := range []bool{false, true} {
		spec.ManifestsFirst = first
		b := must.Get(bag.Read(t.Context(), bytes.NewReader(sample(t, spec)), bag.ReadOptions{MaxFiles: 5}))(t)
		if len(b.Files) > 6 || b.Validate(nil).Valid || b.Problems[0].Code != "too-many-files" {
			t.Errorf("%d files, problems %v", len(b.Files), b.Problems)
		}
	}
}

// A time beyond the calendar would break JSON, and with it the inventory.
func TestReadDropsTimesThatNoCalendarHas(t *testing.T) {
	t.Parallel()
	far := time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	b := read(t, sample(t, bagtest.Spec{ModTime: far}))
	if got := b.Files[0].ModTime; !got.IsZero() {
		t.Errorf("time %v", got)
	}
	b = read(t, sample(t, bagtest.Spec{}))
	if got, want := b.Files[0].ModTime, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("time %v, want %v", got, want)
	}
}

func TestReadTellsItsProgress(t *testing.T) {
	t.Parallel()
	var heard []string
	o := bag.ReadOptions{Progress: func(path string, files int, _ int64) {
		heard = append(heard, fmt.Sprint(files, " ", path))
	}}
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 40 << 20}, {Path: "data/s", Content: "x"}}, Manifests: []string{"md5"}, TagManifests: []string{}})
	must.Get(bag.Read(t.Context(), bytes.NewReader(data), o))(t)
	want := []string{
		"0 bagit.txt", "1 bag-info.txt", "2 aptrust-info.txt", "3 data/large", "3 data/large",
		"3 data/large", "4 data/s", "5 manifest-md5.txt",
	}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Error(diff)
	}
}

func TestKindsFollowFromPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct {
		kind        bag.Kind
		preservable bool
	}{
		"data/x":                  {bag.PayloadFile, true},
		"data/manifest-md5.txt":   {bag.PayloadFile, true},
		"manifest-md5.txt":        {bag.Manifest, false},
		"tagmanifest-sha512.txt":  {bag.TagManifest, false},
		"manifest-drafts/old.txt": {bag.TagFile, true},
		"fetch.txt":               {bag.FetchFile, false},
		"bagit.txt":               {bag.TagFile, false},
		"bag-info.txt":            {bag.TagFile, true},
		"aptrust-info.txt":        {bag.TagFile, true},
		"custom/bagit.txt":        {bag.TagFile, true},
		"database.txt":            {bag.TagFile, true},
	} {
		b := read(t, rawBag(t, bagtest.File{Path: path, Content: "x"}))
		if f := file(t, b, path); f.Kind() != want.kind || f.Preservable() != want.preservable {
			t.Errorf("%s: %s, preservable %v", path, f.Kind(), f.Preservable())
		}
	}
}

func TestNameDropsTarAndPartNumbers(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"photos.tar":                     "photos",
		"photos":                         "photos",
		"photos.b01.of02.tar":            "photos",
		"photos.b1.of200":                "photos",
		"photos.b01.of02.x.tar":          "photos.b01.of02.x",
		"photos.b.of02.tar":              "photos.b.of02",
		"photos.b01.of.tar":              "photos.b01.of",
		"list.of.books.tar":              "list.of.books",
		"example.edu.multi.b01.of02.tar": "example.edu.multi",
		"photos.tar.tar":                 "photos.tar",
	} {
		if got := naming.Of(key); got != want {
			t.Errorf("Name(%q) = %q, want %q", key, got, want)
		}
	}
}

// fixRecords repairs the lengths of the PAX records that were shortened by hand.
func fixRecords(data []byte) []byte {
	header, body := data[:512], data[512:1024]
	text := strings.ReplaceAll(string(bytes.TrimRight(body, "\x00")), "\x00\x00", "")
	var out strings.Builder
	for line := range strings.Lines(text) {
		_, record, _ := strings.Cut(line, " ")
		n := len(record) + 3
		fmt.Fprintf(&out, "%d %s", n, record)
	}
	fixed := make([]byte, 512)
	copy(fixed, out.String())
	copy(header[124:136], fmt.Sprintf("%011o\x00", out.Len()))
	fixChecksum(header)
	return append(append(bytes.Clone(header), fixed...), data[1024:]...)
}

// fixChecksum repairs the checksum of a header that was changed by hand.
func fixChecksum(data []byte) {
	copy(data[148:156], "        ")
	sum := 0
	for _, c := range data[:512] {
		sum += int(c)
	}
	copy(data[148:156], fmt.Sprintf("%06o\x00 ", sum))
}
