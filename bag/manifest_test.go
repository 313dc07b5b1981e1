package bag_test

import (
	"crypto/md5"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/japanese"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func md5Of(content string) string { return fmt.Sprintf("%x", md5.Sum([]byte(content))) }

// withManifest is a bag with a payload of "data/a" and others, and a payload
// manifest that is given.
func withManifest(t testing.TB, manifest string, others ...bagtest.File) *bag.Bag {
	t.Helper()
	files := []bagtest.File{{Path: "manifest-md5.txt", Content: manifest}}
	files = append(append(files, bagtest.File{Path: "data/a", Content: "a"}), others...)
	return read(t, sample(t, bagtest.Spec{Manifests: []string{}, TagManifests: []string{}, Files: files}))
}

func TestManifestLinesAreUnderstoodInEveryFormThatToolsWrite(t *testing.T) {
	t.Parallel()
	a := md5Of("a")
	odd := bagtest.File{Path: "data/100%\r\n.txt", Content: "odd"}
	oddLine := md5Of("odd") + "  data/100%25%0D%0a.txt\n"
	for _, tt := range []struct {
		name, manifest string
		warnings       []string
	}{
		{"two spaces", a + "  data/a\n" + oddLine, nil},
		{"one space", a + " data/a\n" + oddLine, nil},
		{"a tab", a + "\tdata/a\n" + oddLine, nil},
		{"binary mark", a + " *data/a\n" + oddLine, []string{"manifest-binary-marker"}},
		{"upper case", strings.ToUpper(a) + "  data/a\n" + oddLine, nil},
		{"CR LF", a + "  data/a\r\n" + oddLine, nil},
		{"CR", a + "  data/a\r" + oddLine, nil},
		{"blank lines", "\n\n" + a + "  data/a\n \n" + oddLine + "\n", nil},
		{"no end of line", oddLine + a + "  data/a", nil},
		{"dot slash", a + "  ./data/a\n" + oddLine, []string{"manifest-dot-slash"}},
		{"byte order mark", "\ufeff" + a + "  data/a\n" + oddLine, []string{"byte-order-mark"}},
		{"a tag file", a + "  data/a\n" + oddLine + md5Of("tag") + "  extra.txt\n", []string{"manifest-scope"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withManifest(t, tt.manifest, odd, bagtest.File{Path: "extra.txt", Content: "tag"})
			v := b.Validate(nil)
			// the name is understood, though the profile does not like it
			if diff := cmp.Diff([]string{"illegal-control-character"}, codes(v.Errors)); diff != "" {
				t.Errorf("errors %v: %s", v.Errors, diff)
			}
			if diff := cmp.Diff(tt.warnings, codes(v.Warnings)); diff != "" {
				t.Errorf("warnings %v: %s", v.Warnings, diff)
			}
			want := []bag.Expected{{Algorithm: bag.MD5, Digest: a}}
			if diff := cmp.Diff(want, file(t, b, "data/a").Expected()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManifestLinesThatCannotBeTrustedAreNamed(t *testing.T) {
	t.Parallel()
	a := md5Of("a")
	for _, tt := range []struct {
		name, line string
		code       string
		says       string // part of the message
	}{
		{"no path", a, "manifest-line-malformed", "line 2"},
		{"only white space after it", a + "  ", "manifest-line-malformed", "line 2"},
		{"begins with a space", " " + a + "  data/x", "manifest-line-malformed", "line 2"},
		{"not hex", strings.Repeat("z", 32) + "  data/x", "manifest-digest-malformed", "line 2"},
		{"too short", a[:31] + "  data/x", "manifest-digest-malformed", "32 hex digits"},
		{"of another algorithm", a + a + "  data/x", "manifest-digest-malformed", "manifest-md5.txt"},
		{"escapes", a + "  data/../../etc/passwd", "manifest-illegal-path", "../../etc/passwd"},
		{"escapes by encoding", a + "  data/%0a/../..", "manifest-illegal-path", "line 2"},
		{"absolute", a + "  /etc/passwd", "manifest-illegal-path", "absolute"},
		{"home", a + "  ~/x", "manifest-illegal-path", "home"},
		{"not UTF-8", a + "  data/\xff", "manifest-encoding", `\xff`},
		{"conflict", md5Of("b") + "  data/a", "manifest-conflict", a},
		{"long", a + "  data/" + strings.Repeat("x", 70_000), "manifest-line-too-long", "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withManifest(t, a+"  data/a\n"+tt.line+"\n")
			if len(b.Problems) != 1 || b.Problems[0].Code != tt.code || b.Problems[0].Path != "manifest-md5.txt" {
				t.Fatalf("problems %v, want one %s", b.Problems, tt.code)
			}
			if !strings.Contains(b.Problems[0].Message, tt.says) {
				t.Errorf("message %q does not say %q", b.Problems[0].Message, tt.says)
			}
			if v := b.Validate(nil); v.Valid {
				t.Error("the bag is valid")
			}
		})
	}
}

// Editors count CR LF as one end of a line, and so must we.
func TestFindingsCountLinesAsEditorsDo(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		b := withManifest(t, md5Of("a")+"  data/a"+end+end+"wrong"+end)
		if len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Message, "line 3:") {
			t.Errorf("ends of line %q: %v", end, b.Problems)
		}
	}
}

// What comes after a line that is too long was not read, so that files listed
// there must not be reported as unlisted.
func TestALineThatIsTooLongIsTheOnlyFault(t *testing.T) {
	t.Parallel()
	b := withManifest(t, strings.Repeat("x", 70_000)+"\n"+md5Of("a")+"  data/a\n")
	if diff := cmp.Diff([]string{"manifest-line-too-long"}, codes(b.Validate(nil).Errors)); diff != "" {
		t.Error(diff)
	}
}

// Some tools do not encode the percent sign, so that %25 in a manifest may be
// the name of the file itself.
func TestManifestMayNameAFileThatLooksEncoded(t *testing.T) {
	t.Parallel()
	manifest := md5Of("a") + "  data/a\n" + md5Of("x") + "  data/100%25.txt\n"
	b := withManifest(t, manifest, bagtest.File{Path: "data/100%25.txt", Content: "x"})
	v := b.Validate(nil)
	if diff := cmp.Diff([]string{"manifest-percent-sign"}, codes(v.Warnings)); !v.Valid || diff != "" {
		t.Errorf("errors %v, warnings %v", v.Errors, v.Warnings)
	}
	b = withManifest(t, manifest, bagtest.File{Path: "data/100%.txt", Content: "x"})
	if v := b.Validate(nil); !v.Valid || len(v.Warnings) > 0 {
		t.Errorf("errors %v, warnings %v", v.Errors, v.Warnings)
	}
}

// The old validator looked only at the algorithms of payload manifests.
func TestTagManifestsAreVerifiedWhateverTheirAlgorithm(t *testing.T) {
	t.Parallel()
	spec := bagtest.Spec{Manifests: []string{"md5"}, TagManifests: []string{"sha512"}, Corrupt: []string{"bag-info.txt"}}
	v := read(t, sample(t, spec)).Validate(nil)
	found := false
	for _, f := range v.Errors {
		found = found || f.Code == "digest-mismatch" && f.Path == "bag-info.txt" && strings.Contains(f.Message, "tagmanifest-sha512.txt")
	}
	if !found {
		t.Errorf("errors %v", v.Errors)
	}
}

// Conformant bags may declare another encoding in bagit.txt (RFC 8493, 2.1.1).
func TestManifestsAndTagFilesMayBeInAnotherEncoding(t *testing.T) {
	t.Parallel()
	latin1 := func(s string) string {
		var out []byte
		for _, r := range s {
			out = append(out, byte(r))
		}
		return string(out)
	}
	utf16 := func(s string) string {
		out := []byte{0xfe, 0xff}
		for _, r := range s {
			out = append(out, byte(r>>8), byte(r))
		}
		return string(out)
	}
	shiftJIS := func(s string) string {
		return must.Get(japanese.ShiftJIS.NewEncoder().String(s))(t)
	}
	for _, tt := range []struct {
		encoding string
		encode   func(string) string
		path     string
		tag      string
	}{
		{"ISO-8859-1", latin1, "data/grüße", "Universität"},
		{"windows-1252", latin1, "data/grüße", "Universität"},
		{"UTF-16", utf16, "data/grüße", "Universität"},
		{"Shift_JIS", shiftJIS, "data/表紙", "国立国会図書館"},
	} {
		t.Run(tt.encoding, func(t *testing.T) {
			t.Parallel()
			bagit := bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: " + tt.encoding + "\n"}
			info := bagtest.File{Path: "bag-info.txt", Content: tt.encode("Source-Organization: " + tt.tag + "\n")}
			payload := bagtest.File{Path: tt.path, Content: "x"}
			manifest := bagtest.File{Path: "manifest-md5.txt", Content: tt.encode(md5Of("x") + "  " + tt.path + "\n")}
			for _, order := range [][]bagtest.File{
				{bagit, info, payload, manifest},
				{info, payload, manifest, bagit}, // what the manifest says is known only afterwards
				{manifest, bagit, payload, info},
			} {
				b := read(t, rawBag(t, order...))
				if v := b.Validate(profile.Plain()); !v.Valid || len(v.Warnings) > 0 {
					t.Errorf("%v", v)
				}
				if got, _ := b.Tag("bag-info.txt", "source-organization"); got != tt.tag {
					t.Errorf("tag %q", got)
				}
				if f := file(t, b, tt.path); f.Missing || len(f.Expected()) != 1 {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// These are the names that docs/validation-codes.md promises.
func TestDeclaredEncodingsAreKnown(t *testing.T) {
	t.Parallel()
	names := strings.Fields(`utf-8 US-ASCII UTF-16 UTF-16BE UTF-16LE UTF-32 KOI8-R KOI8-U macintosh Shift_JIS EUC-JP ISO-2022-JP EUC-KR GBK GB18030 Big5`)
	for i := 1; i <= 16; i++ {
		if i != 11 && i != 12 {
			names = append(names, fmt.Sprintf("ISO-8859-%d", i))
		}
	}
	for i := 1250; i <= 1258; i++ {
		names = append(names, fmt.Sprintf("windows-%d", i))
	}
	encodings := map[string]bool{"UTF-7": false, "EBCDIC-US": false, "none": false, "": false}
	for _, name := range names {
		encodings[name] = true
	}
	for name, known := range encodings {
		b := read(t, rawBag(t, bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: " + name + "\n"}))
		if got := !slices.Contains(codes(b.Problems), "encoding-unsupported"); got != known {
			t.Errorf("%s: %v", name, b.Problems)
		}
	}
}

// A tar is read once, and what may be kept of it is bounded.
func TestALargeManifestBeforeItsEncodingIsRefused(t *testing.T) {
	t.Parallel()
	line := md5Of("x") + "  data/gr\xfc\xdfe\n"
	bagit := bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: ISO-8859-1\n"}
	large := bagtest.File{Path: "manifest-md5.txt", Content: line + strings.Repeat(" \n", 3<<20)}
	payload := bagtest.File{Path: "data/grüße", Content: "x"}
	if b := read(t, rawBag(t, bagit, large, payload)); len(b.Problems) > 0 {
		t.Errorf("after bagit.txt: %v", b.Problems)
	}
	b := read(t, rawBag(t, large, bagit, payload))
	if got := codes(b.Problems); !slices.Contains(got, "manifest-encoding") {
		t.Errorf("before bagit.txt: %v", b.Problems)
	}
}

// What a decoder cannot read it replaces; the name that remains is nobody's.
func TestTextThatIsNotInItsEncodingIsRefused(t *testing.T) {
	t.Parallel()
	bagit := bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: Shift_JIS\n"}
	b := read(t, rawBag(t, bagit,
		bagtest.File{Path: "bag-info.txt", Content: "Title: \x81\xff\n"},
		bagtest.File{Path: "manifest-md5.txt", Content: md5Of("x") + "  data/\x81\xff\n"}))
	for code, path := range map[string]string{"tag-file-encoding": "bag-info.txt", "manifest-encoding": "manifest-md5.txt"} {
		if !slices.ContainsFunc(b.Problems, func(f bag.Finding) bool {
			return f.Code == code && f.Path == path && strings.Contains(f.Message, "SHIFT_JIS")
		}) {
			t.Errorf("no %s of %s in %v", code, path, b.Problems)
		}
	}
}

// rawBag is a tar with the files and nothing else.
func rawBag(t testing.TB, files ...bagtest.File) []byte {
	t.Helper()
	spec := bagtest.Spec{Files: []bagtest.File{}, Manifests: []string{}, TagManifests: []string{}, Unlisted: files}
	for _, tag := range [][2]string{
		{"bagit.txt", "BagIt-Version"},
		{"bagit.txt", "Tag-File-Character-Encoding"},
		{"bag-info.txt", "Source-Organization"},
		{"bag-info.txt", "Bagging-Date"},
		{"bag-info.txt", "Bag-Count"},
		{"bag-info.txt", "Payload-Oxum"},
		{"aptrust-info.txt", "Title"},
		{"aptrust-info.txt", "Access"},
		{"aptrust-info.txt", "Storage-Option"},
	} {
		spec.Tags = append(spec.Tags, bagtest.Tag{File: tag[0], Name: tag[1], Value: bagtest.Omit})
	}
	return sample(t, spec)
}
