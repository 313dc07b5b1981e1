package browse_test

import (
	"slices"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// A sample is drawn again by its seed, also after other files have come; another seed draws
// others, and a scope has its own files only.
func TestSampleIsDrawnAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	must.Get(a.db.Exec(t.Context(), `INSERT INTO object_holdings (intellectual_object_id, files, bytes)
		SELECT intellectual_object_id, count(*), sum(size) FROM generic_files GROUP BY 1 ON CONFLICT (intellectual_object_id) DO UPDATE SET files = excluded.files`))(t)
	own := registry.Only(a.ins[1])
	for name, scope := range map[string]registry.Scope{"all": registry.Everything(), "one": own} {
		r := browse.In(a.Registry, scope)
		draw := func(seed string, through int64) record.Sample {
			return must.Get(r.Sample(t.Context(), browse.SampleOf{Seed: seed, Files: 40, Through: through}))(t)
		}
		ids := func(s record.Sample) (list []int64) {
			for _, f := range s.Files {
				list = append(list, f.ID)
				if name == "one" && f.Institution != a.ins[1].Identifier {
					t.Errorf("%s is in the sample of %s", f.Identifier, a.ins[1].Identifier)
				}
			}
			return list
		}
		first := draw("a", 0)
		if n := len(first.Files); n < 10 || n > 40 || first.Through == 0 {
			t.Fatalf("%s: %d files through %d", name, n, first.Through)
		}
		if again := draw("a", first.Through); !slices.Equal(ids(again), ids(first)) {
			t.Errorf("%s: drawn again: %v, not %v", name, ids(again), ids(first))
		}
		if other := draw("b", 0); slices.Equal(ids(other), ids(first)) {
			t.Errorf("%s: another seed draws the same", name)
		}
		if fewer := draw("a", first.Through/2); slices.Max(ids(fewer)) > first.Through && name == "all" {
			t.Errorf("%s: drawn from behind the bound: %v", name, ids(fewer))
		}
		if of, err := r.Sample(t.Context(), browse.SampleOf{Institution: "nowhere.edu", Seed: "a", Files: 40}); err != nil || len(of.Files) != 0 {
			t.Errorf("%s: of no institution: %+v, %v", name, of, err)
		}
	}
}
