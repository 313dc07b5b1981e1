package bag_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/text/unicode/norm"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
)

// repacked is a tar with other names.
func repacked(t *testing.T, data []byte, rename func(string) string) []byte {
	t.Helper()
	return rewritten(t, data, func(h *tar.Header, content string) string {
		h.Name, h.PAXRecords = rename(h.Name), nil
		return content
	})
}

// A bag that was packed without its directory has one fault, whatever is in it, and
// the message says how to pack it.
func TestBagWithoutItsDirectoryHasOneFault(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]bagtest.Spec{
		"good":                 {},
		"manifests first":      {ManifestsFirst: true},
		"BTR":                  {Profile: bagtest.BTR},
		"a bag in the payload": {Files: []bagtest.File{{Path: "data/bagit.txt", Content: "x"}, {Path: "data/manifest-md5.txt", Content: "x"}}},
		"bad as well":          {Corrupt: []string{"data/hello.txt"}, Leave: []string{"data/folder/noise.bin"}},
		"other folders first":  {Files: []bagtest.File{{Path: "aaa/x", Content: "x"}, {Path: "data/x", Content: "x"}}},
		"no bagit.txt":         {Leave: []string{"bagit.txt"}},
		"payload at its top":   {Files: []bagtest.File{{Path: "readme", Content: "x"}, {Path: "data/x", Content: "x"}}},
		"no payload at all":    {Files: []bagtest.File{}},
	} {
		for _, prefix := range []string{"", "./"} {
			data := repacked(t, sample(t, spec), func(n string) string { return prefix + strings.TrimPrefix(n, "sample-bag/") })
			v := read(t, data).Validate(nil)
			if len(v.Errors) != 1 || v.Errors[0].Code != "no-top-directory" || !strings.Contains(v.Errors[0].Message, "tar -cf bag.tar bag") || len(v.Warnings) > 0 {
				t.Errorf("%s, %q: %+v, warnings %+v", name, prefix, v.Errors, v.Warnings)
			}
		}
	}
	v := read(t, sample(t, bagtest.Spec{Entries: []bagtest.Entry{{Name: "bagit.txt", Type: '0', Content: "x"}, {Name: ".DS_Store", Type: '0'}}})).Validate(nil)
	if diff := cmp.Diff([]string{"illegal-path", "illegal-path"}, codes(v.Errors)); diff != "" {
		t.Errorf("files beside a good bag: %s", diff)
	}
}

// A second tar is not ignored: what it has would be lost without a word.
func TestReadRefusesASecondTar(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{})
	for name, between := range map[string][]byte{
		"at once": nil, "after padding": make([]byte, 9<<10), "after much of it": make([]byte, 1<<20), "after other data": bytes.Repeat([]byte("x"), 700),
	} {
		b := read(t, slices.Concat(data, between, make([]byte, -(len(data)+len(between))&511), data))
		if diff := cmp.Diff([]string{"tar-trailing-data"}, codes(b.Problems)); diff != "" || len(b.Warnings) > 0 {
			t.Errorf("%s: %v, %s", name, b.Warnings, diff)
		}
	}
}

// A tag file that cannot be read is one fault: nothing is said of what may be in it.
func TestUnreadTagFileIsOneFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for _, file := range []string{"aptrust-info.txt", "bag-info.txt", "bagit.txt"} {
		for _, profile := range []bagtest.Profile{bagtest.APTrust, bagtest.BTR} {
			if profile == bagtest.BTR && file == "aptrust-info.txt" {
				continue
			}
			v := read(t, sample(t, bagtest.Spec{Profile: profile, Tags: []bagtest.Tag{{File: file, Name: "AAA", Value: long}}})).Validate(nil)
			if diff := cmp.Diff([]string{"tag-file-too-large"}, codes(v.Errors)); diff != "" {
				t.Errorf("%s of %s: %s", file, profile, diff)
			}
		}
	}
}

func TestLinesOfGNUToolsAreExplained(t *testing.T) {
	t.Parallel()
	b := withManifest(t, `\`+md5Of("hello")+`  data/a\\b`+"\n"+md5Of("a")+"  data/a\n")
	if diff := cmp.Diff([]string{"manifest-digest-malformed"}, codes(b.Problems)); diff != "" || !strings.Contains(b.Problems[0].Message, "md5sum of GNU") {
		t.Errorf("%+v: %s", b.Problems, diff)
	}
}

// A payload file may stand in a manifest once by BagIt 1.0; before, and in tag
// manifests, it may be listed again with the same digest.
func TestFileListedTwice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ version, manifest, path, digest, errors, warnings string }{
		{"1.0", "manifest-sha1.txt", "data/a", "", "manifest-duplicate", ""},
		{"1.0", "manifest-sha1.txt", "./data/a", "", "manifest-duplicate", "manifest-dot-slash"},
		{"1.0", "manifest-sha1.txt", "data/a", "0", "manifest-conflict", ""},
		{"0.97", "manifest-sha1.txt", "data/a", "", "", "manifest-duplicate"},
		{"0.97", "manifest-sha1.txt", "data/a", "0", "manifest-conflict", ""},
		{"1.0", "tagmanifest-sha1.txt", "bagit.txt", "", "", "manifest-duplicate"},
	} {
		content := "hello"
		if tt.path == "bagit.txt" {
			content = "BagIt-Version: " + tt.version + "\nTag-File-Character-Encoding: UTF-8\n"
		}
		lines := fmt.Sprintf("%x  %s\n%x  %s\n", sha1.Sum([]byte(content)), strings.TrimPrefix(tt.path, "./"), sha1.Sum([]byte(content+tt.digest)), tt.path)
		b := read(t, sample(t, bagtest.Spec{
			Manifests: []string{"sha256"}, TagManifests: []string{}, Files: []bagtest.File{{Path: "data/a", Content: "hello"}},
			Tags:     []bagtest.Tag{{File: "bagit.txt", Name: "BagIt-Version", Value: tt.version}},
			Unlisted: []bagtest.File{{Path: tt.manifest, Content: lines}},
		}))
		got := fmt.Sprint(strings.Join(codes(b.Problems), " "), "/", strings.Join(codes(b.Warnings), " "))
		if got != tt.errors+"/"+tt.warnings {
			t.Errorf("%+v: %s: %+v", tt, got, b.Problems)
		}
	}
}

// What differs in the form of Unicode only is the same file, if there is one that it
// can be.
func TestFormsOfUnicode(t *testing.T) {
	t.Parallel()
	nfc, nfd := norm.NFC.String("data/éü.txt"), norm.NFD.String("data/éü.txt")
	mixed := "data/e\u0301\u00fc.txt"
	list := func(names ...string) (out string) {
		out = md5Of("a") + "  data/a\n"
		for _, n := range names {
			out += md5Of("x") + "  " + n + "\n"
		}
		return out
	}
	for name, tt := range map[string]struct {
		listed, there    []string
		errors, warnings []string
	}{
		"the manifest composed": {[]string{nfc}, []string{nfd}, nil, []string{"manifest-unicode-form"}},
		"the tar composed":      {[]string{nfd}, []string{nfc}, nil, []string{"manifest-unicode-form"}},
		"neither":               {[]string{mixed}, []string{nfc}, nil, []string{"manifest-unicode-form"}},
		"both the same":         {[]string{nfd}, []string{nfd}, nil, nil},
		"two that match":        {[]string{mixed}, []string{nfc, nfd}, []string{"file-not-in-manifest", "file-not-in-manifest", "file-missing"}, []string{"name-clash"}},
		"both of them listed":   {[]string{nfc, nfd}, []string{nfd}, []string{"file-missing"}, nil},
		"two for one":           {[]string{nfc, mixed}, []string{nfd}, []string{"file-missing"}, []string{"manifest-unicode-form"}},
		"other letters":         {[]string{"data/É.txt"}, []string{norm.NFD.String("data/é.txt")}, []string{"file-not-in-manifest", "file-missing"}, nil},
	} {
		var files []bagtest.File
		for _, n := range tt.there {
			files = append(files, bagtest.File{Path: n, Content: "x"})
		}
		v := withManifest(t, list(tt.listed...), files...).Validate(nil)
		if diff := cmp.Diff(tt.errors, codes(v.Errors), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: errors %+v: %s", name, v.Errors, diff)
		}
		if diff := cmp.Diff(tt.warnings, codes(v.Warnings), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: warnings %+v: %s", name, v.Warnings, diff)
		}
	}
}

// Where nothing is wrong but that a manifest cannot be verified, there is no verdict.
func TestManifestThatCannotBeVerified(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		manifest string
		spec     bagtest.Spec
		unknown  bool
	}{
		{"manifest-sha224.txt", bagtest.Spec{}, true},
		{"tagmanifest-sha384.txt", bagtest.Spec{}, true},
		{"manifest-blake3.txt", bagtest.Spec{}, true},
		{"manifest-sha384.txt", bagtest.Spec{Corrupt: []string{"data/hello.txt"}}, false},
	} {
		tt.spec.Unlisted, tt.spec.TagManifests = []bagtest.File{{Path: tt.manifest, Content: "x"}}, []string{}
		v := read(t, sample(t, tt.spec)).Validate(profile.Plain())
		if v.Valid || v.Unknown != tt.unknown || len(v.Errors) == 0 {
			t.Errorf("%s: %+v", tt.manifest, v)
		}
	}
}

func TestDeclarationHasTwoLinesInOrder(t *testing.T) {
	t.Parallel()
	const version, encoding = "BagIt-Version: 1.0\n", "Tag-File-Character-Encoding: UTF-8\n"
	for text, want := range map[string]string{
		version + encoding:                "",
		encoding + version:                "bagit-txt-order",
		version + encoding + "X: y\n":     "bagit-txt-extra",
		"X: y\n" + encoding + version:     "bagit-txt-extra bagit-txt-order",
		version + encoding + encoding:     "bagit-txt-extra",
		"bagit-version: 1.0\n" + encoding: "",
	} {
		v := read(t, sample(t, bagtest.Spec{
			Leave: []string{"bagit.txt"}, TagManifests: []string{}, Entries: []bagtest.Entry{{Name: "sample-bag/bagit.txt", Type: '0', Content: text}},
		})).Validate(nil)
		if got := strings.Join(codes(v.Warnings), " "); got != want || !v.Valid {
			t.Errorf("%q: %s, %+v", text, got, v)
		}
	}
}

// Profile 2.3 has all of 2.2 and Wasabi-TX, and a bag that names 2.2 may have that.
func TestOptionOfTheNewerProfile(t *testing.T) {
	t.Parallel()
	const of22 = "https://raw.githubusercontent.com/APTrust/preservation-services/master/profiles/aptrust-v2.2.json"
	for _, tt := range []struct{ option, profile, errors, warnings string }{
		{"Wasabi-TX", "aptrust-v2.3", "", "profile-not-named"},
		{"wasabi-tx", "aptrust-v2.3", "", "profile-not-named"},
		{"Wasabi-OR", "aptrust-v2.2", "", ""},
		{"Attic", "aptrust-v2.2", "tag-illegal-value", ""},
	} {
		v := read(t, sample(t, bagtest.Spec{
			StorageOption: tt.option, Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "BagIt-Profile-Identifier", Value: of22}},
		})).Validate(nil)
		if v.Profile != tt.profile || strings.Join(codes(v.Errors), " ") != tt.errors || strings.Join(codes(v.Warnings), " ") != tt.warnings {
			t.Errorf("%s: %+v", tt.option, v)
		}
	}
}
