package bag_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// One rule of the profiles or of BagIt is broken in each row. A row says all
// that is reported, so that one fault does not draw others after it.
func TestValidateReportsEachBrokenRule(t *testing.T) {
	t.Parallel()
	const bagit, info, aptrust = "bagit.txt", "bag-info.txt", "aptrust-info.txt"
	tag := func(file, name, value string) bagtest.Spec {
		return bagtest.Spec{Tags: []bagtest.Tag{{File: file, Name: name, Value: value}}}
	}
	btr := func(s bagtest.Spec) bagtest.Spec { s.Profile = bagtest.BTR; return s }
	for _, tt := range []struct {
		name     string
		spec     bagtest.Spec
		errors   []string
		warnings []string
	}{
		{"APTrust", bagtest.Spec{}, nil, nil},
		{"BTR", btr(bagtest.Spec{}), nil, nil},
		{"all algorithms", bagtest.Spec{Manifests: []string{"md5", "sha1", "sha256", "sha512"}, TagManifests: []string{"md5", "sha1", "sha256", "sha512"}}, nil, nil},
		{"no tag manifests", bagtest.Spec{TagManifests: []string{}}, nil, nil},
		{"no payload", bagtest.Spec{Files: []bagtest.File{}, TagManifests: []string{}}, nil, []string{"payload-directory-missing"}},
		{"no payload in data/", bagtest.Spec{
			Files: []bagtest.File{}, TagManifests: []string{}, Entries: []bagtest.Entry{{Name: "sample-bag/data/", Type: '5'}},
		}, nil, nil},
		{"version 0.97", tag(bagit, "BagIt-Version", "0.97"), nil, nil},
		{"version 2.0", tag(bagit, "BagIt-Version", "2.0"), []string{"version-not-allowed"}, nil},
		{"blank version", tag(bagit, "BagIt-Version", ""), []string{"version-missing"}, nil},
		{"no version", tag(bagit, "BagIt-Version", bagtest.Omit), []string{"version-missing"}, nil},
		{"no encoding", tag(bagit, "Tag-File-Character-Encoding", bagtest.Omit), []string{"tag-missing"}, nil},
		{"encoding that APTrust refuses", tag(bagit, "Tag-File-Character-Encoding", "ISO-8859-1"), []string{"tag-illegal-value"}, nil},
		{"encoding that BTR takes", btr(tag(bagit, "Tag-File-Character-Encoding", "ISO-8859-1")), nil, nil},
		{"no bagit.txt", bagtest.Spec{Leave: []string{bagit}, TagManifests: []string{}}, []string{"tag-file-missing"}, nil},
		{"no aptrust-info.txt", bagtest.Spec{Leave: []string{aptrust}, TagManifests: []string{}}, []string{"tag-file-missing"}, nil},
		{"no bag-info.txt is fine for APTrust", bagtest.Spec{Leave: []string{info}, TagManifests: []string{}}, nil, nil},
		{"no title", tag(aptrust, "Title", bagtest.Omit), []string{"tag-missing"}, nil},
		{"blank title", tag(aptrust, "Title", ""), []string{"tag-empty"}, nil},
		{"no access", tag(aptrust, "Access", bagtest.Omit), []string{"tag-missing"}, nil},
		{"unknown access", tag(aptrust, "Access", "Everyone"), []string{"tag-illegal-value"}, nil},
		{"access in another case", tag(aptrust, "Access", "RESTRICTED"), nil, nil},
		{"no storage option", tag(aptrust, "Storage-Option", bagtest.Omit), nil, nil},
		{"blank storage option", tag(aptrust, "Storage-Option", ""), []string{"tag-empty"}, nil},
		{"unknown storage option", tag(aptrust, "Storage-Option", "Floppy"), []string{"tag-illegal-value"}, nil},
		{"Wasabi-TX", tag(aptrust, "Storage-Option", "wasabi-tx"), nil, nil},
		{"BTR needs an organization", btr(tag(info, "Source-Organization", bagtest.Omit)), []string{"tag-missing"}, nil},
		{"BTR needs an oxum", btr(tag(info, "Payload-Oxum", "")), []string{"tag-empty"}, nil},
		{"BTR takes any storage option for standard", btr(tag(info, "APTrust-Storage-Option", "Floppy")), nil, []string{"storage-option-ignored"}},
		{"oxum that is wrong", tag(info, "Payload-Oxum", "1.1"), []string{"payload-oxum-mismatch"}, nil},
		{"oxum that is none", tag(info, "Payload-Oxum", "12 MB"), []string{"payload-oxum-malformed"}, nil},
		{"oxum beyond counting", tag(info, "Payload-Oxum", "99999999999999999999.1"), []string{"payload-oxum-malformed"}, nil},
		{"no oxum", tag(info, "Payload-Oxum", bagtest.Omit), nil, nil},
		{"unknown profile", tag(info, "BagIt-Profile-Identifier", "https://example.org/mine.json"), nil, []string{"profile-unknown"}},
		{"no manifests", bagtest.Spec{Manifests: []string{}, TagManifests: []string{}}, []string{"manifest-missing", "manifest-missing"}, nil},
		{"APTrust needs md5", bagtest.Spec{Manifests: []string{"sha256"}}, []string{"manifest-missing"}, nil},
		{"BTR does not", btr(bagtest.Spec{Manifests: []string{"sha1"}}), nil, nil},
		{"manifest of another algorithm", bagtest.Spec{Unlisted: []bagtest.File{{Path: "manifest-sha224.txt", Content: "x"}}, TagManifests: []string{}}, []string{"manifest-not-allowed"}, nil},
		{"tag manifest of another algorithm", bagtest.Spec{Unlisted: []bagtest.File{{Path: "tagmanifest-sha224.txt", Content: "x"}}}, []string{"manifest-not-allowed"}, nil},
		{"fetch.txt", bagtest.Spec{Unlisted: []bagtest.File{{Path: "fetch.txt", Content: "http://x 1 data/hello.txt\n"}}}, []string{"fetch-not-allowed"}, nil},
		{"fetch.txt of nothing listed", bagtest.Spec{Unlisted: []bagtest.File{{Path: "fetch.txt", Content: "http://x 1 data/y\n"}}}, []string{"fetch-not-in-manifest", "fetch-not-allowed"}, nil},
		{"more in bagit.txt", tag(bagit, "Title", "x"), nil, []string{"bagit-txt-extra"}},
		{"byte order mark in bagit.txt", bagtest.Spec{
			Tags:     []bagtest.Tag{{File: bagit, Name: "BagIt-Version", Value: bagtest.Omit}, {File: bagit, Name: "Tag-File-Character-Encoding", Value: bagtest.Omit}},
			Unlisted: []bagtest.File{{Path: bagit, Content: "\ufeffBagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"}},
		}, []string{"byte-order-mark"}, nil},
		{"text from right to left", named("data/\u202etxt.exe"), nil, []string{"bidirectional-control"}},
		{"payload is missing", bagtest.Spec{Leave: []string{"data/hello.txt"}}, []string{"payload-oxum-mismatch", "file-missing"}, nil},
		{"listed tag file is missing", bagtest.Spec{Leave: []string{"custom-tags/notes.txt"}}, []string{"file-missing"}, nil},
		{"payload nobody listed", bagtest.Spec{Unlisted: []bagtest.File{{Path: "data/extra", Content: "x"}}}, []string{"file-not-in-manifest", "payload-oxum-mismatch"}, nil},
		{"tag file nobody listed", bagtest.Spec{Unlisted: []bagtest.File{{Path: "extra.txt", Content: "x"}}}, nil, nil},
		{"changed payload", bagtest.Spec{Corrupt: []string{"data/hello.txt"}}, []string{"digest-mismatch", "digest-mismatch"}, nil},
		{"changed tag file", bagtest.Spec{Corrupt: []string{"custom-tags/notes.txt"}}, []string{"digest-mismatch"}, nil},
		{"control character", named("data/bell\a.txt"), []string{"illegal-control-character"}, nil},
		{"C1 control character", named("data/\u0085.txt"), []string{"illegal-control-character"}, nil},
		{"no-break space", named("data/a\u00a0b"), []string{"illegal-control-character"}, nil},
		{"escaped control character", named(`data/a\u0085b`), []string{"illegal-control-character"}, nil},
		{"escaped delete", named(`data/a\U007Fb`), []string{"illegal-control-character"}, nil},
		{"escaped letter", named(`data/a\u0041b`), nil, nil},
		{"two cases", named("data/A", "data/a"), nil, []string{"name-clash"}},
		{"two normal forms", named("data/\u00e9", "data/e\u0301"), nil, []string{"name-clash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := read(t, sample(t, tt.spec)).Validate(nil)
			if diff := cmp.Diff(tt.errors, codes(v.Errors)); diff != "" {
				t.Errorf("errors %v: %s", v.Errors, diff)
			}
			if diff := cmp.Diff(tt.warnings, codes(v.Warnings)); diff != "" {
				t.Errorf("warnings %v: %s", v.Warnings, diff)
			}
			if v.Valid != (tt.errors == nil) {
				t.Errorf("valid is %v", v.Valid)
			}
		})
	}
}

func named(paths ...string) bagtest.Spec {
	var s bagtest.Spec
	for _, p := range paths {
		s.Files = append(s.Files, bagtest.File{Path: p, Content: p})
	}
	return s
}

// The depositor learns everything at the first try, not one class of faults at
// a time.
func TestValidateCollectsTheFaultsOfAllRules(t *testing.T) {
	t.Parallel()
	v := read(t, sample(t, bagtest.Spec{
		Access:    "Everyone",
		Manifests: []string{"sha256"},
		Tags:      []bagtest.Tag{{File: "bagit.txt", Name: "BagIt-Version", Value: "9"}, {File: "aptrust-info.txt", Name: "Title", Value: ""}},
		Leave:     []string{"data/folder/list.csv"},
		Corrupt:   []string{"data/hello.txt"},
		Unlisted:  []bagtest.File{{Path: "data/extra", Content: "x"}},
		Entries:   []bagtest.Entry{{Name: "sample-bag/data/link", Type: '2', Linkname: "x"}},
	})).Validate(nil)
	want := []string{
		"unsupported-entry", "version-not-allowed", "manifest-missing", "tag-illegal-value", "tag-empty",
		"digest-mismatch", "file-not-in-manifest", "payload-oxum-mismatch", "file-missing",
	}
	if diff := cmp.Diff(want, codes(v.Errors)); diff != "" || v.Valid {
		t.Errorf("%v: %s", v.Errors, diff)
	}
}

func TestValidateStopsCountingErrorsAtAThousand(t *testing.T) {
	t.Parallel()
	var s bagtest.Spec
	for i := range 1500 {
		s.Unlisted = append(s.Unlisted, bagtest.File{Path: fmt.Sprintf("data/%04d", i), Content: "x"})
	}
	v := read(t, sample(t, s)).Validate(nil)
	if len(v.Errors) != 1000 || v.More != 501 { // and one for the oxum
		t.Errorf("%d errors and %d more", len(v.Errors), v.More)
	}
}

// The counts and lists of a verdict are read by programs.
func TestVerdictHasAFixedForm(t *testing.T) {
	t.Parallel()
	b := read(t, sample(t, bagtest.Spec{}))
	got := must.Get(json.Marshal(b.Validate(nil)))(t)
	want := fmt.Sprintf(`{"valid":true,"errors":[],"warnings":[],"profile":"aptrust-v2.3","files":%d,"bytes":%d}`, len(b.Files), b.Bytes)
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A name that differs only in how an accent is written looks the same on
// screen; without help nobody would find the fault.
func TestAMissingFileIsDistinguishedFromOneThatLooksTheSame(t *testing.T) {
	t.Parallel()
	manifest := md5Of("a") + "  data/a\n" + md5Of("x") + "  data/\u00c9.txt\n"
	v := withManifest(t, manifest, bagtest.File{Path: "data/e\u0301.txt", Content: "x"}).Validate(nil)
	i := slices.IndexFunc(v.Errors, func(f bag.Finding) bool { return f.Code == "file-missing" })
	if i < 0 || !strings.Contains(v.Errors[i].Message, `data/e\u0301.txt`) {
		t.Errorf("errors %v", v.Errors)
	}
}

func TestTheProfileFollowsFromTheIdentifier(t *testing.T) {
	t.Parallel()
	const canonical = "https://github.com/dpscollaborative/btr_bagit_profile/releases/download/1.0/btr-bagit-profile.json"
	const aptrust = "https://raw.githubusercontent.com/APTrust/preservation-services/master/profiles/aptrust-v2.3.json"
	for _, tt := range []struct{ tag, identifier, profile string }{
		{"", aptrust, "aptrust-v2.3"},
		{aptrust, aptrust, "aptrust-v2.3"},
		{strings.Replace(aptrust, "2.3", "2.2", 1), strings.Replace(aptrust, "2.3", "2.2", 1), "aptrust-v2.2"},
		{canonical, canonical, "btr-v1.0"},
		{"https://raw.githubusercontent.com/APTrust/dart/master/profiles/btr-v0.1.json", canonical, "btr-v1.0"},
		{"https://raw.githubusercontent.com/dpscollaborative/btr_bagit_profile/master/btr-bagit-profile.json", canonical, "btr-v1.0"},
		{"https://example.org/btr-bagit-profile-2.json", "https://example.org/btr-bagit-profile-2.json", "btr-v1.0"},
		{"https://example.org/own.json", "https://example.org/own.json", "aptrust-v2.3"},
	} {
		b := &bag.Bag{}
		if tt.tag != "" {
			b.Tags = []bag.Tag{{File: "bag-info.txt", Name: "bagit-profile-identifier", Value: tt.tag}}
		}
		if b.ProfileIdentifier() != tt.identifier || (bag.Profiles{}).Of(b).String() != tt.profile {
			t.Errorf("%s: %s, %s", tt.tag, b.ProfileIdentifier(), bag.Profiles{}.Of(b))
		}
	}
}

func TestTheStorageOptionComesFromTheProfilesOwnTag(t *testing.T) {
	t.Parallel()
	btr := bag.Tag{File: "bag-info.txt", Name: "BagIt-Profile-Identifier", Value: "https://x/btr-bagit-profile.json"}
	inInfo := func(v string) bag.Tag { return bag.Tag{File: "bag-info.txt", Name: "APTrust-Storage-Option", Value: v} }
	inAPTrust := func(v string) bag.Tag { return bag.Tag{File: "aptrust-info.txt", Name: "Storage-Option", Value: v} }
	for _, tt := range []struct {
		tags []bag.Tag
		want string
	}{
		{nil, "Standard"},
		{[]bag.Tag{inAPTrust("glacier-deep-oh")}, "Glacier-Deep-OH"},
		{[]bag.Tag{inAPTrust("Floppy")}, "Floppy"}, // Validate refuses it
		{[]bag.Tag{inInfo("Wasabi-VA")}, "Standard"},
		{[]bag.Tag{btr}, "Standard"},
		{[]bag.Tag{btr, inInfo("Wasabi-TX")}, "Wasabi-TX"},
		{[]bag.Tag{btr, inInfo("Floppy")}, "Standard"},
		{[]bag.Tag{btr, inAPTrust("Wasabi-VA")}, "Standard"},
	} {
		b := &bag.Bag{Tags: tt.tags}
		if got := b.StorageOption(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.tags, got, tt.want)
		}
	}
}

func TestProfile22DoesNotHaveWasabiTexas(t *testing.T) {
	t.Parallel()
	p := must.Get(profile.Named("aptrust-v2.2"))(t)
	v := read(t, sample(t, bagtest.Spec{StorageOption: "Wasabi-TX"})).Validate(p)
	if diff := cmp.Diff([]string{"tag-illegal-value"}, codes(v.Errors)); diff != "" || v.Profile != "aptrust-v2.2" {
		t.Errorf("%s: %s", v.Profile, diff)
	}
	if _, err := profile.Named("none"); err == nil {
		t.Error("no error for a profile that is not there")
	}
}

func TestARepeatedTagWithTwoValuesIsWarnedOf(t *testing.T) {
	t.Parallel()
	b := read(t, sample(t, bagtest.Spec{}))
	b.Tags = append(b.Tags, bag.Tag{File: "aptrust-info.txt", Name: "access", Value: "Consortia"})
	if v := b.Validate(nil); !v.Valid || !slices.Equal(codes(v.Warnings), []string{"tag-repeated"}) {
		t.Errorf("errors %v, warnings %v", v.Errors, v.Warnings)
	}
}

// The codes are an interface; a code without a description is a riddle.
func TestEveryCodeIsDescribed(t *testing.T) {
	t.Parallel()
	source := must.Get(os.ReadFile(filepath.Join("finding", "finding.go")))(t)
	page := must.Get(os.ReadFile("../docs/validation-codes.md"))(t)
	find := func(text []byte, pattern string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	inSource := find(source, `(?m)^\t\w+\s*= "([a-z0-9-]+)"`)
	inPage := find(page, "(?m)^\\| `([a-z0-9-]+)`")
	if diff := cmp.Diff(inSource, inPage); diff != "" || len(inSource) < 40 {
		t.Error(diff)
	}
}
