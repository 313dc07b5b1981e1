package bag_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// rawEntry is an entry of a tar as bytes, since no writer makes what is tested
// here. A size of -1 is that of the content; other sizes lie.
func rawEntry(name string, typeflag byte, size int64, content string) []byte {
	if size < 0 {
		size = int64(len(content))
	}
	header := make([]byte, 512)
	copy(header[:100], name)
	copy(header[100:], "0000644\x000000000\x000000000\x00")
	copy(header[124:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	header[156] = typeflag
	copy(header[257:], "ustar\x0000")
	fixChecksum(header)
	return append(header, padded(content)...)
}

// hugeEntry claims a size that takes more than its eleven octal digits.
func hugeEntry(name string, typeflag byte, size uint64, content string) []byte {
	entry := rawEntry(name, typeflag, 0, "")
	entry[124] = 0x80
	clear(entry[125:128])
	binary.BigEndian.PutUint64(entry[128:], size)
	fixChecksum(entry)
	return append(entry, padded(content)...)
}

func padded(content string) string {
	return content + strings.Repeat("\x00", (512-len(content)%512)%512)
}

// pax is an extended header of these records, whose lengths are right.
func pax(records ...string) []byte {
	var all strings.Builder
	for _, r := range records {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		fmt.Fprintf(&all, "%d %s\n", n, r)
	}
	return rawEntry("PaxHeaders/x", tar.TypeXHeader, -1, all.String())
}

// A header can claim anything. What it says is named, or it means nothing; it
// never leads out of the bag, never makes another file's bytes its own, and never
// costs memory.
func TestHeadersThatLie(t *testing.T) {
	t.Parallel()
	honest := rawEntry("b/data/honest", tar.TypeReg, -1, "honest")
	victim := rawEntry("b/data/x", tar.TypeReg, -1, strings.Repeat("x", 600))
	end := make([]byte, 1024)
	for name, tt := range map[string]struct {
		entries [][]byte
		code    string // blank: the two files are there as they are
	}{
		"nothing wrong":                   {[][]byte{victim}, ""},
		"a path that leads out":           {[][]byte{pax("path=b/../../etc/passwd"), victim}, "illegal-path"},
		"an absolute path":                {[][]byte{pax("path=/etc/passwd"), victim}, "illegal-path"},
		"a path beside the bag":           {[][]byte{pax("path=c/data/x"), victim}, "multiple-top-directories"},
		"a path with NUL":                 {[][]byte{pax("path=b/data/x\x00.txt"), victim}, "tar-corrupt"},
		"a path of a mebibyte":            {[][]byte{pax("path=b/" + strings.Repeat("x", 1<<20)), victim}, "tar-corrupt"},
		"a path longer than a key":        {[][]byte{pax("path=b/data/" + strings.Repeat("x", 2000)), victim}, "illegal-path"},
		"the path of another file":        {[][]byte{pax("path=b/data/honest"), victim}, "duplicate-file"},
		"two paths, of which the last is": {[][]byte{pax("path=../x", "path=b/data/x"), victim}, ""},
		"a size beyond the tar":           {[][]byte{pax("size=99999999999"), victim}, "tar-truncated"},
		"a size that ends in the content": {[][]byte{pax("size=5"), victim}, "tar-corrupt"},
		"a negative size":                 {[][]byte{pax("size=-5"), victim}, "tar-corrupt"},
		"a size that is no number":        {[][]byte{pax("size=many"), victim}, "tar-corrupt"},
		"a record longer than its header": {[][]byte{rawEntry("p", tar.TypeXHeader, -1, "99999 path=b/x\n"), victim}, "tar-corrupt"},
		"a record without a length":       {[][]byte{rawEntry("p", tar.TypeXHeader, -1, "path=b/x\n"), victim}, "tar-corrupt"},
		"a gigantic extended header":      {[][]byte{pax("comment=" + strings.Repeat("x", 3<<20)), victim}, "tar-corrupt"},
		"a gigantic long name":            {[][]byte{rawEntry("././@LongLink", tar.TypeGNULongName, -1, strings.Repeat("x", 3<<20)), victim}, "tar-corrupt"},
		"a long name of 8 EiB":            {[][]byte{hugeEntry("././@LongLink", tar.TypeGNULongName, 1<<63-1, "b/data/x"), victim}, "tar-truncated"},
		"a long name that leads out":      {[][]byte{rawEntry("././@LongLink", tar.TypeGNULongName, -1, "b/../../x\x00"), victim}, "illegal-path"},
		"a file of 8 EiB":                 {[][]byte{hugeEntry("b/data/x", tar.TypeReg, 1<<63-1, "x")}, "tar-truncated"},
		"a file of a negative size":       {[][]byte{hugeEntry("b/data/x", tar.TypeReg, 1<<64-1, "x")}, "tar-corrupt"},
		"a global header with a path":     {[][]byte{rawEntry("g", tar.TypeXGlobalHeader, -1, "19 path=../b/x.txt\n"), victim}, "unsupported-entry"},
		"a global header with a size":     {[][]byte{rawEntry("g", tar.TypeXGlobalHeader, -1, "10 size=5\n"), victim}, "unsupported-entry"},
		"a global header with a comment":  {[][]byte{rawEntry("g", tar.TypeXGlobalHeader, -1, "13 comment=x\n"), victim}, ""},
		"a regular file with a link":      {[][]byte{pax("linkpath=/etc/passwd"), victim}, ""},
		"a thousand extended headers":     {append(repeated(pax("comment=x"), 1000), victim), ""},
		"a time before all time":          {[][]byte{pax("mtime=-9999999999999999"), victim}, ""},
		"sparse by PAX 1.0":               {[][]byte{pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=b/data/x", "GNU.sparse.realsize=9999999"), rawEntry("s", tar.TypeReg, -1, padded("1\n0\n600\n")+strings.Repeat("x", 600))}, "unsupported-entry"},
		"sparse by PAX 0.1":               {[][]byte{pax("GNU.sparse.numblocks=1", "GNU.sparse.map=0,600", "GNU.sparse.size=9223372036854775807"), victim}, "unsupported-entry"},
		"a symbolic link with content":    {[][]byte{rawEntry("b/data/x", tar.TypeSymlink, 600, strings.Repeat("x", 600))}, "unsupported-entry tar-corrupt"},
		"an entry of no known type":       {[][]byte{rawEntry("b/data/x", 'Z', -1, "x")}, "unsupported-entry"},
		"a multi-volume tar":              {[][]byte{rawEntry("b/data/x", 'M', -1, "x")}, "unsupported-entry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := read(t, bytes.Join(append(append([][]byte{honest}, tt.entries...), end), nil))
			if diff := cmp.Diff(strings.Fields(tt.code), codes(b.Problems), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("problems %v: %s", b.Problems, diff)
			}
			want := map[string]int64{"data/honest": 6}
			if tt.code == "" {
				want["data/x"] = 600
			}
			got := map[string]int64{}
			for _, f := range b.Files {
				got[f.Path] = f.Size
			}
			if diff := cmp.Diff(want, got); tt.code == "" && diff != "" || got["data/honest"] != 6 {
				t.Error(diff)
			}
		})
	}
}

func repeated(entry []byte, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = entry
	}
	return all
}

// endless is a tar whose entries are made as they are read, so that nothing but
// the reader can need memory for them.
type endless struct {
	entry func(i int) []byte
	count int

	next int
	rest []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		switch {
		case e.next < e.count:
			e.rest = e.entry(e.next)
		case e.next == e.count:
			e.rest = make([]byte, 1024)
		default:
			return 0, io.EOF
		}
		e.next++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// A bag's index has to be held in memory; so what makes it grow is bounded,
// whichever way it is made to.
func TestTheIndexIsBounded(t *testing.T) {
	t.Parallel()
	const most = 1000 // files
	digest := strings.Repeat("0", 64)
	long := func(i int) string { return fmt.Sprintf("data/%d/%s", i, strings.Repeat("x", 900)) }
	for name, tt := range map[string]struct {
		entry      func(i int) []byte
		count      int
		from, upTo int // files in the index
		say        string
	}{
		"as many files as there may be": {
			func(i int) []byte { return rawEntry(fmt.Sprintf("b/data/%d", i), tar.TypeReg, -1, "") }, most, most, most, "",
		},
		"very many files": {
			func(i int) []byte { return rawEntry(fmt.Sprintf("b/data/%d", i), tar.TypeReg, -1, "") }, 100 * most, most, most, "more than 1000 files",
		},
		"very long paths": {
			func(i int) []byte {
				return append(pax("path=b/"+long(i)), rawEntry("b/x", tar.TypeReg, -1, "")...)
			}, most, most / 4, most * 3 / 4, "long paths",
		},
		"a manifest of files that are not there": {
			func(int) []byte {
				return rawEntry("b/manifest-sha256.txt", tar.TypeReg, -1, lines(100*most, func(i int) string { return fmt.Sprintf("%s  data/%d\n", digest, i) }))
			}, 1, most, most + 1, "more than 1000 files",
		},
		"a manifest of long paths": {
			func(int) []byte {
				return rawEntry("b/manifest-sha256.txt", tar.TypeReg, -1, lines(most, func(i int) string { return fmt.Sprintf("%s  %s\n", digest, long(i)) }))
			}, 1, most / 4, most * 3 / 4, "long paths",
		},
		"other digests in tag manifests": {
			func(i int) []byte {
				algorithm := []string{"md5", "sha1", "sha256", "sha512"}[i%4]
				digest := strings.Repeat(fmt.Sprint(i/4), []int{32, 40, 64, 128}[i%4])
				return rawEntry("b/"+strings.Repeat("tag", i/4)+"manifest-"+algorithm+".txt", tar.TypeReg, -1,
					lines(most-8, func(i int) string { return digest + fmt.Sprintf("  data/%d\n", i) }))
			}, 8, most - 8, most, "too many manifests",
		},
		"the same in eight manifests": {
			func(i int) []byte {
				algorithm := []string{"md5", "sha1", "sha256", "sha512"}[i%4]
				digest := strings.Repeat("0", []int{32, 40, 64, 128}[i%4])
				return rawEntry("b/"+strings.Repeat("tag", i/4)+"manifest-"+algorithm+".txt", tar.TypeReg, -1,
					lines(most-8, func(i int) string { return digest + fmt.Sprintf("  data/%d\n", i) }))
			}, 8, most, most, "",
		},
		"manifests that come first, of files with other digests": {
			func(i int) []byte {
				if i >= 8 {
					return rawEntry(fmt.Sprintf("b/data/%d", i-8), tar.TypeReg, -1, "")
				}
				algorithm := []string{"md5", "sha1", "sha256", "sha512"}[i%4]
				digest := strings.Repeat("0", []int{32, 40, 64, 128}[i%4])
				return rawEntry("b/"+strings.Repeat("tag", i/4)+"manifest-"+algorithm+".txt", tar.TypeReg, -1,
					lines(most-8, func(i int) string { return digest + fmt.Sprintf("  data/%d\n", i) }))
			}, most, most, most, "too many manifests",
		},
		"a fetch.txt of one file, again and again": {
			func(int) []byte {
				return rawEntry("b/fetch.txt", tar.TypeReg, -1, lines(100*most, func(int) string { return "https://example.org/ - " + long(0) + "\n" }))
			}, 1, 1, 1, "too many",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := must.Get(bag.Read(t.Context(), &endless{entry: tt.entry, count: tt.count}, bag.ReadOptions{MaxFiles: most}))(t)
			if len(b.Files) < tt.from || len(b.Files) > tt.upTo {
				t.Errorf("%d files, want %d to %d", len(b.Files), tt.from, tt.upTo)
			}
			var said []string
			for _, p := range b.Problems {
				if p.Code == "too-many-files" {
					said = append(said, p.Message)
				}
			}
			if tt.say == "" && len(said) > 0 || tt.say != "" && (len(said) != 1 || !strings.Contains(said[0], tt.say)) {
				t.Errorf("said %q, want %q", said, tt.say)
			}
			if tt.say != "" && b.Validate(nil).Valid {
				t.Error("valid")
			}
		})
	}
}

func lines(n int, line func(i int) string) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(line(i))
	}
	return all.String()
}
