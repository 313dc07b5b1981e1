package bag_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// rewritten is a tar with other headers and contents.
func rewritten(t *testing.T, data []byte, change func(h *tar.Header, content string) string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(r))(t)
		text := change(h, string(content))
		h.Size, h.Format = int64(len(text)), tar.FormatPAX
		must.Do(t, errors.Join(w.WriteHeader(h), second(w.Write([]byte(text)))))
	}
	must.Do(t, w.Close())
	return out.Bytes()
}

func second(_ int, err error) error { return err }

// What the tar of macOS adds is named once, with the way to pack without it, and has no
// other findings: neither that it is in no directory, nor that no manifest lists it, nor
// that Payload-Oxum is wrong.
func TestWhatMacOSAddsIsNamed(t *testing.T) {
	t.Parallel()
	added := func(path string) bagtest.File { return bagtest.File{Path: path, Content: "\x00\x05\x16\x07"} }
	inside := []bagtest.File{added("._bagit.txt"), added("data/._hello.txt"), added("data/folder/._list.csv")}
	for name, tt := range map[string]struct {
		spec bagtest.Spec
		path string
		more string
	}{
		"beside and inside": {bagtest.Spec{Unlisted: inside, Entries: []bagtest.Entry{{Name: "._sample-bag", Type: '0', Content: "x"}}}, "._sample-bag", ""},
		"beside, dotted":    {bagtest.Spec{Entries: []bagtest.Entry{{Name: "./._sample-bag", Type: '0', Content: "x"}, {Name: "._other", Type: '0'}}}, "./._sample-bag", ""},
		"inside":            {bagtest.Spec{Unlisted: inside}, "data/._hello.txt", " and 1 more file"},
		"one inside":        {bagtest.Spec{Unlisted: inside[:2]}, "data/._hello.txt", "._hello.txt. The tar of macOS"},
	} {
		v := read(t, sample(t, tt.spec)).Validate(nil)
		if diff := cmp.Diff([]string{"apple-double"}, codes(v.Errors)); diff != "" {
			t.Errorf("%s: %s\n%+v", name, diff, v.Errors)
			continue
		}
		if e := v.Errors[0]; e.Path != tt.path || !strings.Contains(e.Message, tt.more) || !strings.Contains(e.Message, "COPYFILE_DISABLE=1 tar --no-mac-metadata -cf") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	listed := read(t, sample(t, bagtest.Spec{Files: []bagtest.File{added("data/._kept")}})).Validate(nil)
	if !listed.Valid {
		t.Errorf("a bag whose manifests list such a file: %+v", listed.Errors)
	}
}

// In a directory the way out is another one.
func TestWhatMacOSLeftInADirectoryIsNamed(t *testing.T) {
	t.Parallel()
	dir := unpacked(t, sample(t, bagtest.Spec{}))
	must.Do(t, os.WriteFile(filepath.Join(dir, "data", "._hello.txt"), []byte("x"), 0o600))
	b := must.Get(bag.ReadDir(t.Context(), dir, bag.ReadOptions{}))(t)
	v := b.Validate(nil)
	if diff := cmp.Diff([]string{"apple-double"}, codes(v.Errors)); diff != "" || !strings.Contains(v.Errors[0].Message, "The directory contains") || !strings.Contains(v.Errors[0].Message, "-delete") {
		t.Errorf("%s %+v", diff, v.Errors)
	}
}

// unpacked writes the regular files of a tar below a directory, and returns the bag's.
func unpacked(t *testing.T, data []byte) (dir string) {
	t.Helper()
	parent := t.TempDir()
	rewritten(t, data, func(h *tar.Header, content string) string {
		path := filepath.Join(parent, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			must.Do(t, os.MkdirAll(path, 0o700))
			return ""
		}
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)))
		return content
	})
	return filepath.Join(parent, "sample-bag")
}

// Entries that no bag may have come from options of tar: the message names the one that
// avoids them.
func TestUnsupportedEntriesSayHowToPackWithoutThem(t *testing.T) {
	t.Parallel()
	for what, entry := range map[string]struct {
		of   bagtest.Entry
		want []string
	}{
		"a hard link":     {bagtest.Entry{Name: "sample-bag/data/twin", Type: tar.TypeLink, Linkname: "sample-bag/data/hello.txt"}, []string{"--hard-dereference"}},
		"a symbolic link": {bagtest.Entry{Name: "sample-bag/data/link", Type: tar.TypeSymlink, Linkname: "hello.txt"}, []string{"tar -h"}},
		"a named pipe":    {bagtest.Entry{Name: "sample-bag/data/pipe", Type: tar.TypeFifo}, []string{"only regular files and directories."}},
	} {
		v := read(t, sample(t, bagtest.Spec{Entries: []bagtest.Entry{entry.of}})).Validate(nil)
		if len(v.Errors) != 1 || v.Errors[0].Code != "unsupported-entry" || !strings.Contains(v.Errors[0].Message, what+" ") {
			t.Errorf("%s: %+v", what, v.Errors)
			continue
		}
		for _, want := range entry.want {
			if !strings.Contains(v.Errors[0].Message, want) {
				t.Errorf("%s: %s", what, v.Errors[0].Message)
			}
		}
	}
}

// A manifest with backslashes is wrong once: its files are neither missing nor unlisted, and
// are compared with what it says.
func TestBackslashesInAManifestAreSaidOnce(t *testing.T) {
	t.Parallel()
	backslashes := func(t *testing.T, spec bagtest.Spec) []byte {
		t.Helper()
		spec.TagManifests = []string{}
		return rewritten(t, sample(t, spec), func(h *tar.Header, content string) string {
			if strings.HasSuffix(h.Name, "/manifest-md5.txt") {
				return strings.ReplaceAll(content, "/", `\`)
			}
			return content
		})
	}
	for name, first := range map[string]bool{"manifests last": false, "manifests first": true} {
		v := read(t, backslashes(t, bagtest.Spec{ManifestsFirst: first})).Validate(nil)
		if len(v.Errors) != 1 || v.Errors[0].Code != "manifest-backslash" || v.Errors[0].Path != "manifest-md5.txt" ||
			!strings.Contains(v.Errors[0].Message, `data\`) || !strings.Contains(v.Errors[0].Message, "data/") || len(v.Warnings) > 0 {
			t.Errorf("%s: %+v, warnings %+v", name, v.Errors, v.Warnings)
		}
	}
	v := read(t, backslashes(t, bagtest.Spec{Corrupt: []string{"data/folder/list.csv"}, Leave: []string{"data/folder/noise.bin"}})).Validate(nil)
	if diff := cmp.Diff([]string{"manifest-backslash", "digest-mismatch", "digest-mismatch", "payload-oxum-mismatch", "file-missing"}, codes(v.Errors)); diff != "" {
		t.Errorf("a bag with other faults: %s\n%+v", diff, v.Errors)
	}
	literal := read(t, sample(t, bagtest.Spec{Files: []bagtest.File{{Path: `data/a\b`, Content: "x"}}})).Validate(nil)
	if !literal.Valid {
		t.Errorf("a file with a backslash in its name: %+v", literal.Errors)
	}
	tarred := rewritten(t, sample(t, bagtest.Spec{}), func(h *tar.Header, content string) string {
		h.Name = strings.ReplaceAll(h.Name, "/", `\`)
		return content
	})
	v = read(t, tarred).Validate(nil)
	if len(v.Errors) != 1 || v.Errors[0].Code != "no-top-directory" || !strings.Contains(v.Errors[0].Message, "have backslashes where a tar has slashes") {
		t.Errorf("a tar with backslashes: %+v", v.Errors)
	}
}

// A label is one with white space before its colon, too; before, its line was taken to
// continue the tag above it.
func TestWhiteSpaceBeforeAColonIsTolerated(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"Title : A\nAccess\t: Institution\n":            {"A", "Institution"},
		"Title :A\nAccess: Institution\n":               {"A", "Institution"},
		"Title: A\n  and : so on\nAccess : Consortia\n": {"A and : so on", "Consortia"},
		"Title: A\nsee http ://x\nAccess: Consortia\n":  {"A see http ://x", "Consortia"},
	} {
		data := rewritten(t, sample(t, bagtest.Spec{TagManifests: []string{}}), func(h *tar.Header, content string) string {
			if strings.HasSuffix(h.Name, "/aptrust-info.txt") {
				return text
			}
			return content
		})
		b := read(t, data)
		title, _ := b.Tag("aptrust-info.txt", "Title")
		access, _ := b.Tag("aptrust-info.txt", "Access")
		if title != want[0] || access != want[1] {
			t.Errorf("%q: %q and %q", text, title, access)
		}
		warned := 0
		for _, w := range b.Warnings {
			if w.Code == "tag-label-space" {
				warned++
			}
		}
		if loose := strings.Contains(text, "Title :") || strings.Contains(text, "Access :") || strings.Contains(text, "Access\t:"); loose != (warned == 1) || warned > 1 {
			t.Errorf("%q: %+v", text, b.Warnings)
		}
	}
}

// A time that no calendar has is not replaced without a word, and only said once.
func TestTimeThatIsNotKeptIsSaid(t *testing.T) {
	t.Parallel()
	for year, said := range map[int]bool{2026: false, 9999: false, 10000: true, 60000: true} {
		data := rewritten(t, sample(t, bagtest.Spec{}), func(h *tar.Header, content string) string {
			h.ModTime = time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
			return content
		})
		v := read(t, data).Validate(nil)
		if !v.Valid {
			t.Errorf("%d: %+v", year, v.Errors)
		}
		var got []string
		if said {
			got = []string{"file-time-out-of-range"}
		}
		if diff := cmp.Diff(got, codes(v.Warnings)); diff != "" {
			t.Errorf("%d: %s\n%+v", year, diff, v.Warnings)
		}
	}
}
