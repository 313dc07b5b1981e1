package bag_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// index is ReadIndex of what is in memory.
func index(t testing.TB, data []byte, o object) *bag.Bag {
	t.Helper()
	b, err := bag.ReadIndex(context.Background(), bytes.NewReader(data), o.known(t), bag.ReadOptions{})
	if err != nil {
		t.Fatalf("ReadIndex: %v", err)
	}
	return b
}

func drawName(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "B", "report", " ", "%", "%25", "%0A", "\n", "\r", "é", "e\u0301", "ü", "表紙", "…", "~", "*", "'", `\`, "💡", "\u200f", ".", "-", "%ZZ",
		strings.Repeat("long", 70),
	}), 1, 4).Draw(t, label), "")
}

func drawObject(t *rapid.T) object {
	o := object{
		top:     rapid.SampledFrom([]string{"b", "~b", "bag 100%", "grüße", strings.Repeat("top", 60)}).Draw(t, "top"),
		changes: []bag.Tag{{Name: "Bagging-Date", Value: "2026-11-22T13:14:15Z"}, {Name: "Bag-Size", Value: "1 KB"}, {Name: "Bagging-Software", Value: "Farol"}},
	}
	info := rapid.SampledFrom([]string{
		"Source-Organization: X\nBagging-Date: 2020\nPayload-Oxum: 1.1\n",
		"Source-Organization: X\r\nBagging-Date: 2020\r\n and\r\n more\r\nPayload-Oxum: 1.1\r\npayload-oxum: 2.2",
		"Bagging-Date:\n 2020\nSource-Organization: X\n\nPayload-Oxum:1.1",
	}).Draw(t, "bag-info.txt")
	files := map[string]string{"bag-info.txt": info}
	switch rapid.IntRange(0, 2).Draw(t, "profile") {
	case 0:
		o.profile, _ = profile.Named("aptrust-v2.3")
		files["aptrust-info.txt"] = "Title: x\nAccess: Restricted\n"
	case 1:
		o.profile, _ = profile.Named("btr-v1.0")
		files["bag-info.txt"] = "BagIt-Profile-Identifier: " + o.profile.Identifier() + "\n" + info
	default:
		o.profile = profile.Plain()
		if rapid.Bool().Draw(t, "no bag-info.txt") {
			delete(files, "bag-info.txt")
		}
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "files") {
		name := drawName(t, "name")
		if rapid.IntRange(0, 3).Draw(t, "payload") > 0 {
			name = "data/" + name
		}
		if _, err := bag.EntryHeader(o.top+"/"+name, 0, restoredAt); err == nil {
			files[name] = strings.Repeat(fmt.Sprint(i), rapid.SampledFrom([]int{0, 1, 511, 512, 513, 20_000, 70_000}).Draw(t, "size"))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		o.files = append(o.files, member{path: path, content: files[path], modTime: restoredAt.AddDate(-10, 0, len(o.files))})
	}
	return o
}

// A restored bag is a bag: read whole, as anyone would, and by its index it gets
// the same verdict, and that is a good one.
func TestRestoredBagsAreValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		o := drawObject(rt)
		tar := assemble(t, o)
		data := tar.all()
		whole := read(t, data)
		byIndex := index(t, data, o)
		if diff := cmp.Diff(whole, byIndex); diff != "" {
			rt.Fatalf("by its index the bag is another one: %s", diff)
		}
		v := whole.Validate(o.profile)
		var odd []string // no profile takes these, not even when they come in
		for _, m := range o.files {
			if strings.ContainsAny(m.path, "\r\n") {
				odd = append(odd, m.path)
			}
		}
		var refused []string
		for _, f := range v.Errors {
			if f.Code != "illegal-control-character" {
				rt.Errorf("%s: %s", f.Code, f.Message)
			}
			refused = append(refused, f.Path)
		}
		if !slices.Equal(odd, refused) || v.Valid != (len(odd) == 0) {
			rt.Errorf("%q were refused, want %q", refused, odd)
		}
		for _, f := range v.Warnings {
			if f.Code != "name-clash" && f.Code != "bidirectional-control" && f.Code != "profile-not-named" {
				rt.Errorf("warning %s: %s", f.Code, f.Message)
			}
		}
		if whole.TopDir != o.top || whole.NoPayloadDir || len(whole.Problems) > 0 {
			rt.Errorf("top %q, no payload dir %v, problems %v", whole.TopDir, whole.NoPayloadDir, whole.Problems)
		}
		for _, m := range o.files {
			if f := file(t, whole, m.path); !f.ModTime.Equal(m.modTime) {
				rt.Errorf("%s: time %v, want %v", m.path, f.ModTime, m.modTime)
			}
		}
	})
}

// What is in the payload is listed in the payload manifests; all else but the tag
// manifests themselves in these.
func TestRestoredBagsListAllTheirFiles(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	b := read(t, assembled(t, o))
	if v := b.Validate(o.profile); !v.Valid || len(v.Warnings) > 1 {
		t.Fatalf("errors %v, warnings %v", v.Errors, v.Warnings)
	}
	var order []string
	for _, f := range b.Files {
		order = append(order, f.Path)
		want := 2
		if f.Kind() == bag.TagManifest {
			want = 0
		}
		if len(f.Expected()) != want {
			t.Errorf("%s is listed %d times, want %d", f.Path, len(f.Expected()), want)
		}
	}
	want := []string{
		"bagit.txt", "aptrust-info.txt", "bag-info.txt", "custom/notes.txt", "data/a.txt", "data/block", "data/empty", "data/larger",
		"manifest-md5.txt", "manifest-sha256.txt", "tagmanifest-md5.txt", "tagmanifest-sha256.txt",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

func assembled(t testing.TB, o object) []byte {
	t.Helper()
	tar := assemble(t, o)
	return tar.all()
}

// The tag files of a bag stay in the encoding that they came in, so that the rest
// of the bag must be in it too.
func TestRestoredBagsKeepTheirEncoding(t *testing.T) {
	t.Parallel()
	latin1 := func(s string) string {
		out := make([]byte, 0, len(s))
		for _, r := range s {
			out = append(out, byte(r))
		}
		return string(out)
	}
	utf16le := func(s string) string {
		out := []byte{0xff, 0xfe}
		for _, r := range s {
			out = append(out, byte(r), byte(r>>8))
		}
		return string(out)
	}
	for name, encode := range map[string]func(string) string{"iso-8859-1": latin1, "UTF-16": utf16le} {
		o := object{top: "b", encoding: name, profile: profile.Plain(), files: []member{
			{path: "bag-info.txt", content: encode("Contact-Name: Jürgen\nPayload-Oxum: 9.9\n")},
			{path: "data/grüße", content: "x"},
			{path: "über.txt", content: encode("ü")},
		}}
		data := assembled(t, o)
		b := read(t, data)
		if v := b.Validate(o.profile); !v.Valid || len(v.Warnings) > 0 {
			t.Errorf("%s: errors %v, warnings %v", name, v.Errors, v.Warnings)
		}
		if b.Encoding() != name {
			t.Errorf("encoding %q, want %q", b.Encoding(), name)
		}
		want := []bag.Tag{
			{File: "bag-info.txt", Name: "Contact-Name", Value: "Jürgen"},
			{File: "bag-info.txt", Name: "Payload-Oxum", Value: "1.1"},
			{File: "bag-info.txt", Name: "Original-Payload-Oxum", Value: "9.9"},
		}
		if diff := cmp.Diff(want, b.Tags[2:]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(b, index(t, data, o)); diff != "" {
			t.Errorf("%s, by its index: %s", name, diff)
		}
	}
}

func TestEncodingIsWhatBagitTxtDeclares(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"BagIt-Version: 1.0\nTag-File-Character-Encoding: Shift_JIS\n":  "Shift_JIS",
		"BagIt-Version: 1.0\ntag-file-character-encoding:  utf-16le \n": "utf-16le",
		"BagIt-Version: 1.0\nTag-File-Character-Encoding:\n":            "UTF-8",
		"BagIt-Version: 1.0\n": "UTF-8",
	} {
		b := read(t, rawBag(t, bagtest.File{Path: "bagit.txt", Content: text}, bagtest.File{Path: "bag-info.txt", Content: "Tag-File-Character-Encoding: no"}))
		if got := b.Encoding(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestBagitTxtIsItselfInUTF8(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]string{
		"":            "UTF-8",
		"utf8":        "UTF-8",
		"US-ASCII":    "UTF-8",
		"UTF-16":      "UTF-16",
		" ISO-8859-1": "ISO-8859-1",
		"Shift_JIS":   "Shift_JIS",
	} {
		got, err := tagfile.BagitTxt(encoding)
		if want := "BagIt-Version: 1.0\nTag-File-Character-Encoding: " + want + "\n"; err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", encoding, got, err)
		}
	}
	for _, encoding := range []string{"EBCDIC", "UTF-8\nBagIt-Version: 0.97", "UTF-7"} {
		if got, err := tagfile.BagitTxt(encoding); err == nil {
			t.Errorf("%q: %q, and no error", encoding, got)
		}
	}
}

func TestRestoreAlgorithmsFollowTheProfile(t *testing.T) {
	t.Parallel()
	load := func(rules string) *bag.Profile {
		return must.Get(profile.Load(strings.NewReader(rules), "p"))(t)
	}
	for _, tt := range []struct {
		profile        *bag.Profile
		manifests, tag string
	}{
		{profileNamed(t, "aptrust-v2.2"), "md5 sha256", "md5 sha256"},
		{profileNamed(t, "aptrust-v2.3"), "md5 sha256", "md5 sha256"},
		{profileNamed(t, "btr-v1.0"), "sha1 sha256 sha512", "sha1 sha256 sha512"},
		{profile.Plain(), "sha256 sha512", "sha256 sha512"},
		{load(`{}`), "sha256 sha512", "sha256 sha512"},
		{load(`{"Manifests-Required": ["md5"]}`), "md5 sha256", "md5 sha256"},
		{load(`{"Manifests-Required": ["sha512", "sha1"], "Manifests-Allowed": ["sha1", "sha512"]}`), "sha1 sha512", "sha1 sha512"},
		{load(`{"Manifests-Allowed": ["md5", "sha1"]}`), "sha1", "sha1"},
		{load(`{"Manifests-Allowed": ["*"]}`), "sha256 sha512", "sha256 sha512"},
		{load(`{"Manifests-Allowed": ["blake3"], "Tag-Manifests-Allowed": ["blake3"]}`), "sha256", ""},
		{load(`{"Manifests-Required": ["md5"], "Tag-Manifests-Required": ["sha1"]}`), "md5 sha256", "md5 sha1 sha256"},
		{load(`{"Manifests-Required": ["md5"], "Tag-Manifests-Allowed": ["sha256", "sha512"]}`), "md5 sha256", "sha256"},
		{load(`{"Manifests-Allowed": ["md5"], "Tag-Manifests-Allowed": ["sha1", "sha512"]}`), "md5", "sha512"},
	} {
		manifests, tagManifests := tt.profile.RestoreAlgorithms()
		if got := words(manifests); got != tt.manifests {
			t.Errorf("%s: manifests %q, want %q", tt.profile, got, tt.manifests)
		}
		if got := words(tagManifests); got != tt.tag {
			t.Errorf("%s: tag manifests %q, want %q", tt.profile, got, tt.tag)
		}
	}
}

func words(list []bag.Algorithm) string {
	var out []string
	for _, a := range list {
		out = append(out, string(a))
	}
	return strings.Join(out, " ")
}
