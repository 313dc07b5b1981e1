package bag_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// profile is one of the members given, in addition to those that every profile
// has.
func profileOf(t testing.TB, members string) *bag.Profile {
	t.Helper()
	text := `{"BagIt-Profile-Info": {"BagIt-Profile-Identifier": "https://example.org/p.json", "Version": "1"}`
	if members != "" {
		text += ", " + members
	}
	return must.Get(profile.Load(strings.NewReader(text+"}"), "p.json"))(t)
}

func TestEveryRuleOfAProfileIsObeyed(t *testing.T) {
	t.Parallel()
	const info = "bag-info.txt"
	tag := func(name, value string) bagtest.Spec {
		return bagtest.Spec{Tags: []bagtest.Tag{{File: info, Name: name, Value: value}}}
	}
	payload := func(files ...bagtest.File) bagtest.Spec { return bagtest.Spec{Files: files} }
	a := bagtest.File{Path: "data/a.txt", Content: "a"}
	sub := bagtest.File{Path: "data/sub/b.tif", Content: "b"}
	fetch := bagtest.Spec{Unlisted: []bagtest.File{{Path: "fetch.txt", Content: "https://example.org/a 1 data/hello.txt\n"}}}
	for _, tt := range []struct {
		name, members    string
		spec             bagtest.Spec
		errors, warnings []string
	}{
		{"no rules", "", bagtest.Spec{}, nil, nil},

		{"required tag", `"Bag-Info": {"Contact-Name": {"required": true}}`, tag("Contact-Name", "Ann"), nil, nil},
		{"required tag in another case", `"Bag-Info": {"Contact-Name": {"required": true}}`, tag("CONTACT-NAME", "Ann"), nil, nil},
		{"required tag is missing", `"Bag-Info": {"Contact-Name": {"required": true}}`, bagtest.Spec{}, []string{"tag-missing"}, nil},
		{"required tag is empty", `"Bag-Info": {"Contact-Name": {"required": true}}`, tag("Contact-Name", ""), []string{"tag-empty"}, nil},
		{"optional tag", `"Bag-Info": {"Contact-Name": {"required": false, "description": "who"}}`, bagtest.Spec{}, nil, nil},
		{"recommended tag is missing", `"Bag-Info": {"Contact-Name": {"recommended": true}}`, bagtest.Spec{}, nil, []string{"tag-recommended"}},
		{"recommended tag", `"Bag-Info": {"Contact-Name": {"recommended": true}}`, tag("Contact-Name", "Ann"), nil, nil},
		{"value", `"Bag-Info": {"Contact-Name": {"values": ["Ann", "Bob"]}}`, tag("Contact-Name", "bob"), nil, nil},
		{"another value", `"Bag-Info": {"Contact-Name": {"values": ["Ann", "Bob"]}}`, tag("Contact-Name", "Eve"), []string{"tag-illegal-value"}, nil},
		{"each value counts", `"Bag-Info": {"Contact-Name": {"values": ["Ann"], "repeatable": true}}`, tag("Contact-Name", "Ann\nContact-Name: Eve"), []string{"tag-illegal-value"}, nil},
		{"not repeatable", `"Bag-Info": {"Contact-Name": {"repeatable": false}}`, tag("Contact-Name", "Ann\nContact-Name: Ann"), []string{"tag-not-repeatable"}, nil},
		{"not repeated", `"Bag-Info": {"Contact-Name": {"repeatable": false}}`, tag("Contact-Name", "Ann"), nil, nil},
		{"repeatable", `"Bag-Info": {"Contact-Name": {"required": true, "repeatable": true}}`, tag("Contact-Name", "Ann\nContact-Name: Bob"), nil, nil},
		{"bag-info.txt is missing", `"Bag-Info": {"Contact-Name": {"required": true}}`, bagtest.Spec{Leave: []string{info}, TagManifests: []string{}}, []string{"tag-file-missing"}, []string{"profile-not-named"}},
		{"bag-info.txt need not be", `"Bag-Info": {"Contact-Name": {}}`, bagtest.Spec{Leave: []string{info}, TagManifests: []string{}}, nil, []string{"profile-not-named"}},

		{"manifests", `"Manifests-Required": ["md5"], "Manifests-Allowed": ["md5", "sha256"]`, bagtest.Spec{}, nil, nil},
		{"manifest is missing", `"Manifests-Required": ["sha512"]`, bagtest.Spec{}, []string{"manifest-missing"}, nil},
		{"manifest is not allowed", `"Manifests-Allowed": ["sha256"]`, bagtest.Spec{}, []string{"manifest-not-allowed"}, nil},
		{"tag manifest is missing", `"Tag-Manifests-Required": ["md5"]`, bagtest.Spec{}, []string{"manifest-missing"}, nil},
		{"tag manifest is not allowed", `"Tag-Manifests-Allowed": ["md5"]`, bagtest.Spec{}, []string{"manifest-not-allowed"}, nil},

		{"tag file is missing", `"Tag-Files-Required": ["rights.txt"]`, bagtest.Spec{}, []string{"tag-file-missing"}, nil},
		{"tag files", `"Tag-Files-Required": ["custom-tags/notes.txt"], "Tag-Files-Allowed": ["aptrust-info.txt", "custom-tags/*.txt"]`, bagtest.Spec{}, nil, nil},
		{"tag file is not allowed", `"Tag-Files-Allowed": ["aptrust-*.txt"]`, bagtest.Spec{}, []string{"tag-file-not-allowed"}, nil},
		{"any tag file", `"Tag-Files-Allowed": ["*"]`, bagtest.Spec{}, nil, nil},

		{"payload", `"Payload-Files-Required": ["data/a.txt"], "Payload-Files-Allowed": ["data/*"]`, payload(a, sub), nil, nil},
		{"payload without data/", `"Payload-Files-Required": ["a.txt", "sub/"], "Payload-Files-Allowed": ["a.txt", "sub/*"]`, payload(a, sub), nil, nil},
		{"payload file is missing", `"Payload-Files-Required": ["data/README"]`, payload(a), []string{"payload-file-missing"}, nil},
		{"payload directory is missing", `"Payload-Files-Required": ["data/sub/"]`, payload(a), []string{"payload-file-missing"}, nil},
		{"payload file is not allowed", `"Payload-Files-Allowed": ["*.txt"]`, payload(a, sub), []string{"payload-file-not-allowed"}, nil},
		{"empty payload", `"Data-Empty": true`, payload(bagtest.File{Path: "data/.keep"}), nil, nil},
		{"payload of one byte", `"Data-Empty": true`, payload(a), []string{"payload-not-empty"}, nil},
		{"payload of two empty files", `"Data-Empty": true`, payload(bagtest.File{Path: "data/.keep"}, bagtest.File{Path: "data/x"}), []string{"payload-not-empty"}, nil},

		{"fetch.txt by default", "", fetch, nil, nil},
		{"fetch.txt is not allowed", `"Allow-Fetch.txt": false`, fetch, []string{"fetch-not-allowed"}, nil},
		{"fetch.txt is required", `"Fetch.txt-Required": true`, fetch, nil, nil},
		{"fetch.txt is missing", `"Fetch.txt-Required": true`, bagtest.Spec{}, []string{"fetch-missing"}, nil},

		{"tar", `"Serialization": "required", "Accept-Serialization": ["application/zip", "application/x-tar"]`, bagtest.Spec{}, nil, nil},
		{"no tar", `"Serialization": "required", "Accept-Serialization": ["application/zip"]`, bagtest.Spec{}, []string{"serialization-not-allowed"}, nil},
		{"not serialized", `"Serialization": "forbidden"`, bagtest.Spec{}, []string{"serialization-not-allowed"}, nil},
		{"version", `"Accept-BagIt-Version": ["0.97", "1.0"]`, bagtest.Spec{}, nil, nil},
		{"another version", `"Accept-BagIt-Version": ["0.97"]`, bagtest.Spec{}, []string{"version-not-allowed"}, nil},

		{
			"members of nobody", `"Manifest-Required": ["sha512"], "Bag-Info": {"Contact-Name": {"mandatory": true}}, "Other-Info": {"rights.txt": {}}`,
			bagtest.Spec{},
			nil,
			[]string{"profile-member-unknown", "profile-member-unknown", "profile-member-unknown"},
		},
		{"rules for aptrust-info.txt", `"Other-Info": {"aptrust-info.txt": {"Title": {"values": ["Other"]}}}`, bagtest.Spec{}, []string{"tag-illegal-value"}, nil},
		{"storage option of nobody", "", bagtest.Spec{StorageOption: "Floppy"}, []string{"tag-illegal-value"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Tags = append(tt.spec.Tags, bagtest.Tag{File: info, Name: "BagIt-Profile-Identifier", Value: "https://example.org/p.json"})
			v := read(t, sample(t, tt.spec)).Validate(profileOf(t, tt.members))
			if diff := cmp.Diff(tt.errors, codes(v.Errors)); diff != "" {
				t.Errorf("errors %v: %s", v.Errors, diff)
			}
			if diff := cmp.Diff(tt.warnings, codes(v.Warnings)); diff != "" {
				t.Errorf("warnings %v: %s", v.Warnings, diff)
			}
		})
	}
}

// The author of a profile is told all that is wrong with it at once, and where.
func TestAWrongProfileIsRefusedWithItsFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want []string
	}{
		{``, []string{"not a JSON object"}},
		{`null]`, []string{"not a JSON object"}},
		{`[]`, []string{"expected an object, found a JSON array"}},
		{`{"Manifests-Required": "md5"}`, []string{"Manifests-Required: expected a list of strings, found a JSON string"}},
		{`{"Manifests-Required": [1]}`, []string{"Manifests-Required: expected a string, found a JSON number"}},
		{`{"Allow-Fetch.txt": "no"}`, []string{"Allow-Fetch.txt: expected true or false, found a JSON string"}},
		{`{"Bag-Info": {"Title": {"required": "yes"}}}`, []string{"Bag-Info, tag Title: required: expected true or false"}},
		{`{"Bag-Info": {"Title": true}}`, []string{"Bag-Info, tag Title: expected an object"}},
		{`{"Bag-Info": []}`, []string{"Bag-Info: expected an object"}},
		{`{"Other-Info": []}`, []string{"Other-Info: expected an object"}},
		{`{"BagIt-Profile-Info": {"BagIt-Profile-Identifier": 7}}`, []string{"BagIt-Profile-Info: BagIt-Profile-Identifier: expected a string"}},
		{`{"Serialization": "maybe", "Data-Empty": 1}`, []string{`Serialization: expected forbidden, required or optional, found "maybe"`, "Data-Empty"}},
		{`{"Manifests-Required": ["md5"], "Manifests-Allowed": ["sha256"]}`, []string{"Manifests-Required lists md5, which Manifests-Allowed does not allow"}},
		{`{"Tag-Manifests-Required": ["md5"], "Tag-Manifests-Allowed": ["sha256"]}`, []string{"Tag-Manifests-Required lists md5"}},
		{`{"Tag-Files-Required": ["a.txt"], "Tag-Files-Allowed": ["b*"]}`, []string{"Tag-Files-Required lists a.txt"}},
		{`{"Payload-Files-Required": ["data/a"], "Payload-Files-Allowed": ["b*"]}`, []string{"Payload-Files-Required lists data/a"}},
		{`{"Fetch.txt-Required": true, "Allow-Fetch.txt": false}`, []string{"Fetch.txt-Required is true, but Allow-Fetch.txt is false"}},
		{`{"Data-Empty": true, "Payload-Files-Required": ["a", "b"]}`, []string{"Data-Empty is true"}},
		{`{"x": "` + strings.Repeat("x", 1<<20) + `"}`, []string{"more than 1048576 bytes"}},
	} {
		_, err := profile.Load(strings.NewReader(tt.text), "mine.json")
		if err == nil {
			t.Errorf("%.60s was taken", tt.text)
			continue
		}
		for _, want := range append(tt.want, "mine.json") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%.60s: %v, want %q", tt.text, err, want)
			}
		}
	}
}

func TestABagIsJudgedByTheProfileThatItNames(t *testing.T) {
	t.Parallel()
	mine := profileOf(t, `"Manifests-Required": ["sha512"]`)
	all := must.Get(bag.NewProfiles(mine))(t)
	for identifier, want := range map[string]string{
		"https://example.org/p.json":     "https://example.org/p.json",
		"https://example.org/other.json": "aptrust-v2.3",
		"":                               "aptrust-v2.3",
		"https://raw.githubusercontent.com/dpscollaborative/btr_bagit_profile/master/btr-bagit-profile.json": "btr-v1.0",
	} {
		b := &bag.Bag{Tags: []bag.Tag{{File: "bag-info.txt", Name: "BagIt-Profile-Identifier", Value: identifier}}}
		if got := all.Of(b).String(); got != want {
			t.Errorf("%s: %s, want %s", identifier, got, want)
		}
	}
	for name, further := range map[string][]*bag.Profile{
		"two of one name":   {mine, mine},
		"one without":       {profile.Plain()},
		"one of a built-in": {loaded(t, `{"BagIt-Profile-Info": {"BagIt-Profile-Identifier": "https://example.org/aptrust-v2.2.json"}}`)},
	} {
		if _, err := bag.NewProfiles(further...); err == nil || !strings.Contains(err.Error(), "BagIt-Profile-Identifier") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func loaded(t testing.TB, text string) *bag.Profile {
	t.Helper()
	return must.Get(profile.Load(strings.NewReader(text), "p.json"))(t)
}

// As in Python's fnmatch, by which the reference validator goes.
func TestPatternsOfFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.txt", "a.txt", true},
		{"a.txt", "b.txt", false},
		{"a.txt", "a.txt.bak", false},
		{"*.txt", "a/b.txt", true},
		{"*.txt", ".txt", true},
		{"*.txt", "a.tif", false},
		{"a*b*c", "aXbXbXc", true},
		{"a*b*c", "aXbXbX", false},
		{"?.txt", "ä.txt", true},
		{"?.txt", ".txt", false},
		{"[a-c].txt", "b.txt", true},
		{"[a-c].txt", "d.txt", false},
		{"[!a-c].txt", "d.txt", true},
		{"[!a-c].txt", "b.txt", false},
		{"[]].txt", "].txt", true},
		{"[!]].txt", "].txt", false},
		{"[-a].txt", "-.txt", true},
		{"[a.txt", "[a.txt", true},
		{"**a", "ba", true},
		{"", "a", false},
	} {
		pattern := must.Get(json.Marshal(tt.pattern))(t)
		p := loaded(t, fmt.Sprintf(`{"Payload-Files-Allowed": [%s]}`, pattern))
		v := (&bag.Bag{Files: []*bag.File{{Path: "data/" + tt.name}}}).Validate(p)
		refused := false
		for _, f := range v.Errors {
			refused = refused || f.Code == "payload-file-not-allowed"
		}
		if refused == tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, !refused)
		}
	}
}
