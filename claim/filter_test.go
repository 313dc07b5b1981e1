package claim

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/registry"
)

// Claims share a statement exactly if their filters take the same items.
func TestFilterKey(t *testing.T) {
	t.Parallel()
	// Few letters, so that lists meet which differ only in where a name ends.
	names := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune{'a', '"', ' ', 0, 1, 2}), 0, 3, -1), 0, 3)
	filters := rapid.Custom(func(t *rapid.T) Filter {
		f := Filter{
			Action:  rapid.SampledFrom([]registry.Action{"", registry.Ingest, registry.Delete}).Draw(t, "action"),
			MinSize: rapid.Int64Range(0, 2).Draw(t, "min"), MaxSize: rapid.Int64Range(0, 2).Draw(t, "max"),
			Institutions: names.Draw(t, "institutions"), StorageOptions: names.Draw(t, "options"),
		}
		for _, stage := range names.Draw(t, "stages") {
			f.Stages = append(f.Stages, Want{registry.Stage(stage), rapid.IntRange(0, 9).Draw(t, "most")})
		}
		return f
	})
	same := func(a, b Filter) bool {
		stages := func(f Filter) (list []registry.Stage) {
			for _, w := range f.Stages {
				list = append(list, w.Stage)
			}
			slices.Sort(list)
			return list
		}
		return a.action() == b.action() && a.MinSize == b.MinSize && a.MaxSize == b.MaxSize && slices.Equal(stages(a), stages(b)) &&
			slices.Equal(a.Institutions, b.Institutions) && slices.Equal(a.StorageOptions, b.StorageOptions)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := filters.Draw(t, "one"), filters.Draw(t, "other")
		switch rapid.IntRange(0, 3).Draw(t, "kind") { // or two are seldom near each other
		case 0:
			b = a
			b.Stages = slices.Clone(a.Stages)
			slices.Reverse(b.Stages)
		case 1:
			b = a
			b.Institutions = []string{strings.Join(a.Institutions, "")}
		case 2:
			b = a
			b.Institutions, b.StorageOptions = a.StorageOptions, a.Institutions
		}
		if alike := a.key() == b.key(); alike != same(a, b) {
			t.Fatalf("the keys of %+v and %+v are the same: %v", a, b, alike)
		}
	})
}
