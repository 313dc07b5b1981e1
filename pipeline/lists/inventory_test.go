package lists

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// The files of a large bag are handed over one by one, and those of a small one
// are kept for the next stage; both in their order, under the same id.
func TestInventoryIsReadWholeOrFileByFile(t *testing.T) {
	t.Parallel()
	a := pipelinetest.New(t, nil)
	recent := &Recent{}
	for id, count := range map[int64]int{1: 10, 2: mostRecent + 1} {
		w := &Area{Bucket: a.Deps.Staging, Registry: a.Deps.Registry, Item: id, Log: a.Deps.Log, Recent: recent}
		b := &bag.Bag{TopDir: "many"}
		for i := range count {
			b.Files = append(b.Files, &bag.File{Path: fmt.Sprintf("data/%d", i), Size: int64(i), UUID: uuid.New()})
		}
		var inventory bytes.Buffer
		must.Do(t, bag.WriteInventory(&inventory, b))
		must.Get(a.Deps.Staging.Put(t.Context(), Key(id, InventoryName), &inventory, storage.Upload{Size: int64(inventory.Len())}))(t)
		for _, again := range []bool{false, true} {
			var files []*bag.File
			_, streamed, err := w.Inventory(t.Context(), func(i int, f *bag.File) {
				if i != len(files) {
					t.Fatalf("file %d comes after %d others", i, len(files))
				}
				files = append(files, f)
			})
			if err != nil {
				t.Fatal(err)
			}
			same := func(a, b *bag.File) bool {
				return a.Path == b.Path && a.Size == b.Size && a.UUID == b.UUID
			}
			if !slices.EqualFunc(b.Files, files, same) {
				t.Errorf("%d files, again %v: %d others came back", count, again, len(files))
			}
			if kept := recent.bag(streamed) != nil; kept != (count <= mostRecent) {
				t.Errorf("%d files: kept %v", count, kept)
			}
			whole, id, err := w.Inventory(t.Context(), nil)
			if err != nil || id != streamed {
				t.Fatalf("whole: id %s, want %s; %v", id, streamed, err)
			}
			if whole.TopDir != b.TopDir || !slices.EqualFunc(b.Files, whole.Files, same) {
				t.Errorf("%d files, whole: %d others came back", count, len(whole.Files))
			}
		}
	}
}
