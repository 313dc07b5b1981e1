package bag_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
)

func TestFetchTxtIsChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		errors     []string
	}{
		{"of a file that is there", "https://example.org/a 1 data/a\n", nil},
		{"of any length", "https://example.org/a\t-\tdata/a\r\n", nil},
		{"blank", "\n\n", nil},
		{"of a name with a space", "https://example.org/a 1 data/b c\n", nil},
		{"of an encoded name", "https://example.org/a 1 data/100%25\n", nil},
		{"of a file that nobody fetched", "https://example.org/a 1 data/absent\n", []string{"file-missing"}},
		{"of a file in no manifest", "https://example.org/a 1 data/unknown\n", []string{"fetch-not-in-manifest"}},
		{"of a tag file", "https://example.org/a 1 bag-info.txt\n", []string{"fetch-scope"}},
		{"without an address", "a 1 data/a\n", []string{"fetch-line-malformed"}},
		{"with a length in words", "https://example.org/a one data/a\n", []string{"fetch-line-malformed"}},
		{"with a negative length", "https://example.org/a -1 data/a\n", []string{"fetch-line-malformed"}},
		{"without a path", "https://example.org/a 1\n", []string{"fetch-line-malformed"}},
		{
			"out of the bag", "https://example.org/a 1 data/../../etc/passwd\nhttps://example.org/a 1 /etc/passwd\nhttps://example.org/a 1 ~/x\n",
			[]string{"fetch-illegal-path", "fetch-illegal-path", "fetch-illegal-path"},
		},
		{"not in UTF-8", "https://example.org/a 1 data/\xff\n", []string{"fetch-illegal-path"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			manifest := ""
			files := []bagtest.File{{Path: "fetch.txt", Content: tt.text}}
			for _, path := range []string{"data/a", "data/b c", "data/100%"} {
				manifest += md5Of(path) + "  " + path + "\n"
				files = append(files, bagtest.File{Path: path, Content: path})
			}
			if tt.errors != nil && tt.errors[0] == "file-missing" {
				manifest += md5Of("absent") + "  data/absent\n"
			}
			files = append(files,
				bagtest.File{Path: "manifest-md5.txt", Content: manifest},
				bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"})
			v := read(t, rawBag(t, files...)).Validate(profile.Plain())
			if diff := cmp.Diff(tt.errors, codes(v.Errors)); diff != "" {
				t.Errorf("%v: %s", v.Errors, diff)
			}
		})
	}
}

// In a 0.97 bag it is enough that one of the payload manifests lists a file.
func TestBefore10OneManifestIsEnough(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]string{
		"0.97": nil,
		"0.96": nil,
		"1.0":  {"file-not-in-manifest", "file-not-in-manifest"},
	} {
		v := read(t, rawBag(t,
			bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: " + version + "\nTag-File-Character-Encoding: UTF-8\n"},
			bagtest.File{Path: "data/a", Content: "a"},
			bagtest.File{Path: "data/b", Content: "b"},
			bagtest.File{Path: "manifest-md5.txt", Content: md5Of("a") + "  data/a\n"},
			bagtest.File{Path: "manifest-sha1.txt", Content: "e9d71f5ee7c92d6dc9e92ffdad17b8bd49418f98  data/b\n"},
		)).Validate(profile.Plain())
		if diff := cmp.Diff(want, codes(v.Errors)); diff != "" {
			t.Errorf("%s: %v: %s", version, v.Errors, diff)
		}
	}
	v := read(t, rawBag(t,
		bagtest.File{Path: "bagit.txt", Content: "BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n"},
		bagtest.File{Path: "data/a", Content: "a"},
		bagtest.File{Path: "manifest-md5.txt", Content: ""},
	)).Validate(profile.Plain())
	if diff := cmp.Diff([]string{"file-not-in-manifest"}, codes(v.Errors)); diff != "" {
		t.Errorf("in none: %v: %s", v.Errors, diff)
	}
}
