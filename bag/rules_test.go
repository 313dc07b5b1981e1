package bag

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// The rules that the built-in profiles have no use for, but which a profile may
// have.
func TestProfilesMayBeStricterThanTheOnesWeHave(t *testing.T) {
	t.Parallel()
	data := must.Get(bagtest.Spec{Unlisted: []bagtest.File{
		{Path: "manifest-sha224.txt", Content: "x"}, {Path: "fetch.txt", Content: "\n"},
	}}.Bytes())(t)
	b := must.Get(Read(t.Context(), bytes.NewReader(data), ReadOptions{}))(t)
	base := profile.Rules{
		Serialization:       "required",
		AcceptSerialization: []string{"application/tar"},
		AcceptVersion:       []string{"1.0"},
		AllowFetch:          true,
	}
	// manifests of any algorithm are allowed, but one that cannot be verified is
	// no use; and it is not listed in the tag manifest
	usual := []string{"manifest-unsupported", "file-not-in-manifest"}
	for _, tt := range []struct {
		name   string
		change func(r *profile.Rules)
		errors []string // beside the usual
	}{
		{"as it is", func(*profile.Rules) {}, nil},
		{"any algorithm, spelled out", func(r *profile.Rules) { r.ManifestsAllowed = []string{"*"} }, nil},
		{"no tar", func(r *profile.Rules) { r.AcceptSerialization = []string{"application/zip"} }, []string{"serialization-not-allowed"}},
		{"only folders", func(r *profile.Rules) { r.Serialization = "forbidden" }, []string{"serialization-not-allowed"}},
		{"listed tag files", func(r *profile.Rules) {
			r.TagFilesAllowed = []string{"bag-info.txt", "aptrust-info.txt"}
		}, []string{"tag-file-not-allowed"}},
		{"required tag file", func(r *profile.Rules) { r.TagFilesRequired = []string{"rights.txt"} }, []string{"tag-file-missing"}},
		{"required tag manifest", func(r *profile.Rules) { r.TagManifestsRequired = []string{"sha512"} }, []string{"manifest-missing"}},
		{"required tags of a file", func(r *profile.Rules) {
			r.OtherInfo = map[string]map[string]profile.TagRule{"rights.txt": {"Licence": {Required: true}}}
		}, []string{"tag-file-missing"}},
	} {
		p := &Profile{Name: tt.name, Rules: base}
		tt.change(&p.Rules)
		var got []string
		for _, f := range b.Validate(p).Errors {
			got = append(got, f.Code)
		}
		want := append(slices.Clone(tt.errors), usual...)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// Without rules everything would be legal.
func TestABagIsNotValidIfItsRulesCannotBeRead(t *testing.T) {
	t.Parallel()
	v := (&Bag{}).Validate(&Profile{Name: "x", Fault: errors.New("no such file")})
	if v.Valid || v.Errors[0].Code != finding.ProfileUnreadable {
		t.Errorf("verdict %+v", v)
	}
}

// A reader that neither reads nor fails must not hold a worker without end.
func TestReadGivesUpOnAReaderThatIsStuck(t *testing.T) {
	t.Parallel()
	if _, err := Read(t.Context(), stuck{}, ReadOptions{}); err == nil {
		t.Error("no error")
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }
