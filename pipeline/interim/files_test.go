package interim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A page is sorted whatever order the files come in, and pages leave no file out.
func TestPagesOfFilesAreSorted(t *testing.T) {
	t.Parallel()
	const n = 2_500
	files := func(yield func(*File, error) bool) {
		for i := range n {
			if !yield(&File{Path: fmt.Sprintf("data/%05d", i*1_009%n), State: []string{"copied", "identified"}[i%2]}, nil) {
				return
			}
		}
	}
	for _, state := range []string{"", "copied"} {
		var all []string
		for after := ""; ; after = all[len(all)-1] {
			list := must.Get(Page{State: state, After: after, Limit: 300}.Of(files))(t)
			for _, f := range list {
				all = append(all, f.Path)
			}
			if len(list) < 300 {
				break
			}
		}
		want := n
		if state != "" {
			want = n / 2
		}
		if len(all) != want || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != want {
			t.Errorf("state %q: %d files, sorted %v", state, len(all), slices.IsSorted(all))
		}
	}
}
