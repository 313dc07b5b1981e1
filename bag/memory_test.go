package bag_test

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
)

// A bag of 400,000 files is held in the memory that docs/internals/memory.md says: what manifests
// say of a file takes none, whether they come before it or after it.
func TestFileOfTheIndexIsSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(bag.File{}); size > 256 {
		t.Errorf("a file has %d bytes, want 256", size)
	}
	for _, first := range []bool{false, true} {
		b := read(t, sample(t, bagtest.Spec{
			Files: []bagtest.File{{Path: "data/a", Size: 10}}, Manifests: []string{"md5", "sha256"}, ManifestsFirst: first,
		}))
		f := file(t, b, "data/a")
		if len(f.Expected()) != 2 || cap(f.Others) > 0 || !b.Validate(nil).Valid {
			t.Errorf("manifests first: %v: %d list the file, and space is taken for %d", first, len(f.Expected()), cap(f.Others))
		}
	}
}

// However many files lie in 64 MiB of a tar, a checkpoint has some thousand at the most: it is
// in memory whole, as JSON.
func TestCheckpointHasFewFiles(t *testing.T) {
	t.Parallel()
	const files = 25_000
	entry := func(i int) []byte { return rawEntry(fmt.Sprintf("b/data/%d", i), '0', -1, "") }
	var had []int
	_, err := bag.Read(t.Context(), &endless{entry: entry, count: files}, bag.ReadOptions{
		Checkpoint: func(_ context.Context, c bag.Checkpoint) error {
			had = append(had, len(c.Files))
			return nil
		},
	})
	if err != nil || len(had) != 2 || had[0] != 10_000 || had[1] != 10_000 {
		t.Errorf("checkpoints of %d files: %v, %v", files, had, err)
	}
}
