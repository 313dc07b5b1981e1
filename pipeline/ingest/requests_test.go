package ingest

import (
	"fmt"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// A bag costs few requests to S3 beyond the four that two copies of a file need: one to
// make each, and one to ask for it. Two tag files are stored as well.
func TestRequestsOfABag(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		files int
		size  int64
		most  float64 // beyond the four of each file
	}{
		{3, 4 << 10, 3}, // the bag is read, looked at and deleted
		{20, 64 << 10, 3},
		{20, 200 << 10, 3},
		{300, 1 << 10, 7},   // most of its lists are in staging
		{40, 150 << 10, 20}, // the tar is not kept in memory
		{20, 700 << 10, 25},
		{20, 1500 << 10, 66}, // and ranges are read to identify files
		{4, 5 << 20, 24},     // the server copies a range by three requests, and the copy again by one; the first is looked at
	} {
		t.Run(fmt.Sprintf("%d of %d KiB", tc.files, tc.size>>10), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			w := a.Wired()
			spec := bagtest.Spec{Name: "counted", TagManifests: []string{"md5", "sha256"}}
			for i := range tc.files {
				spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%d.bin", i), Size: tc.size})
			}
			a.Deposit("counted.tar", a.Bag(spec))
			a.Work()
			asked := w.Asked()
			stored := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files`)
			if stored < tc.files || float64(len(asked)) > 4*float64(stored)+tc.most {
				t.Errorf("%d files were stored by %d requests, %.1f each; more than four for each were %d, want %v at most",
					stored, len(asked), float64(len(asked))/float64(stored), len(asked)-4*stored, tc.most)
				for _, one := range asked {
					t.Log(one)
				}
			}
		})
	}
}
