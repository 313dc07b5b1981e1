package bag_test

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
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
		{"binary mark", a + " *data/a\n" + oddLine, nil},
		{"upper case", strings.ToUpper(a) + "  data/a\n" + oddLine, nil},
		{"CR LF", a + "  data/a\r\n" + oddLine, nil},
		{"CR", a + "  data/a\r" + oddLine, nil},
		{"blank lines", "\n\n" + a + "  data/a\n \n" + oddLine + "\n", nil},
		{"no end of line", oddLine + a + "  data/a", nil},
		{"dot slash", a + "  ./data/a\n" + oddLine, []string{"manifest-dot-slash"}},
		{"byte order mark", "\ufeff" + a + "  data/a\n" + oddLine, []string{"byte-order-mark"}},
		{"twice", a + "  data/a\n" + oddLine + a + "  data/a\n", []string{"manifest-duplicate"}},
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
			if diff := cmp.Diff(want, file(t, b, "data/a").Expected); diff != "" {
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
	const path = "data/grüße"
	line := md5Of("x") + "  " + path + "\n"
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
	for encoding, encode := range map[string]func(string) string{"ISO-8859-1": latin1, "UTF-16": utf16} {
		files := []bagtest.File{
			{Path: "bag-info.txt", Content: encode("Source-Organization: Universität\n")},
			{Path: path, Content: "x"},
			{Path: "manifest-md5.txt", Content: encode(line)},
			{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: " + encoding + "\n"},
		}
		b := read(t, rawBag(t, files[3], files[0], files[1], files[2]))
		if len(b.Problems) > 0 {
			t.Errorf("%s: %v", encoding, b.Problems)
		}
		if got, _ := b.Tag("bag-info.txt", "source-organization"); got != "Universität" {
			t.Errorf("%s: tag %q", encoding, got)
		}
		if f := file(t, b, path); f.Missing || len(f.Expected) != 1 {
			t.Errorf("%s: %+v", encoding, f)
		}
		// in a tar that is read once, a manifest before bagit.txt cannot be understood
		b = read(t, rawBag(t, files...))
		if !strings.Contains(strings.Join(codes(b.Problems), " "), "manifest-encoding") {
			t.Errorf("%s: problems %v", encoding, b.Problems)
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
