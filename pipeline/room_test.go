package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// Large bags wait for each other and small ones for nobody. Who waits in vain
// takes nothing away.
func TestLargeBagsShareTheRoomInMemory(t *testing.T) {
	t.Parallel()
	a := &archive{t: t, log: &syncBuffer{}}
	r := newRoom(100_000, 0)
	enter := func(ctx context.Context, files int) (*work, error) {
		w := &work{log: a.logger()}
		return w, w.enter(ctx, r, files)
	}
	first, err := enter(t.Context(), 60_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.enter(t.Context(), r, 60_000); err != nil { // it has its room already
		t.Fatal(err)
	}
	for range 20 {
		if _, err := enter(t.Context(), fewFiles); err != nil {
			t.Fatal(err)
		}
	}
	second, err := enter(t.Context(), 40_000)
	if err != nil {
		t.Fatal(err)
	}
	gone, stop := context.WithTimeoutCause(t.Context(), time.Millisecond, claim.ErrLost)
	defer stop()
	if _, err := enter(gone, 40_000); !errors.Is(err, claim.ErrLost) {
		t.Errorf("entered a full room, or was not told why not: %v", err)
	}
	in := make(chan error, 1)
	go func() {
		_, err := enter(t.Context(), 5_000_000) // larger than the room: it gets all there is
		in <- err
	}()
	testenv.Eventually(t, "the third to wait", func() bool { return strings.Contains(a.log.String(), "files=5000000") })
	first.leave()
	select {
	case err := <-in:
		t.Fatalf("entered with the second still there: %v", err)
	default:
	}
	second.leave()
	if err := <-in; err != nil {
		t.Error(err)
	}
}

// The files of a large bag are handed over one by one, and those of a small one
// are kept for the next stage; both in their order, under the same id.
func TestInventoryIsReadWholeOrFileByFile(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.recent, a.deps.room = &recent{}, newRoom(0, 0)
	for id, count := range map[int64]int{1: 10, 2: mostRecent + 1} {
		w := &work{item: claim.Item{ID: id}, log: a.deps.Log}
		b := &bag.Bag{TopDir: "many"}
		for i := range count {
			b.Files = append(b.Files, &bag.File{Path: fmt.Sprintf("data/%d", i), Kind: bag.PayloadFile, Size: int64(i), UUID: fmt.Sprint(i)})
		}
		var inventory bytes.Buffer
		if err := bag.WriteInventory(&inventory, b); err != nil {
			t.Fatal(err)
		}
		if _, err := a.deps.Staging.Put(t.Context(), w.staged(inventoryName), &inventory, storage.Upload{Size: int64(inventory.Len())}); err != nil {
			t.Fatal(err)
		}
		for _, again := range []bool{false, true} {
			var files []*bag.File
			_, streamed, err := w.inventory(t.Context(), a.deps, func(i int, f *bag.File) {
				if i != len(files) {
					t.Fatalf("file %d comes after %d others", i, len(files))
				}
				files = append(files, f)
			})
			if err != nil {
				t.Fatal(err)
			}
			same := func(a, b *bag.File) bool {
				return a.Path == b.Path && a.Kind == b.Kind && a.Size == b.Size && a.UUID == b.UUID
			}
			if !slices.EqualFunc(b.Files, files, same) {
				t.Errorf("%d files, again %v: %d others came back", count, again, len(files))
			}
			if kept := a.deps.recent.get(streamed) != nil; kept != (count <= mostRecent) {
				t.Errorf("%d files: kept %v", count, kept)
			}
			whole, id, err := w.bag(t.Context(), a.deps)
			if err != nil || id != streamed {
				t.Fatalf("whole: id %s, want %s; %v", id, streamed, err)
			}
			if whole.TopDir != b.TopDir || !slices.EqualFunc(b.Files, whole.Files, same) {
				t.Errorf("%d files, whole: %d others came back", count, len(whole.Files))
			}
		}
		w.leave()
	}
}

// The bound is what a Redis for the largest bags is sized by: 250 bytes a file,
// whatever the stage and however many files there are.
func TestAFileTakesLessThan250BytesOfRedis(t *testing.T) {
	t.Parallel()
	const most, files = 250, 1_000
	many := testenv.Soak(300_000)
	a := newArchive(t)
	client := testenv.Redis(t)
	a.deps.Progress = progress.New(client, "small")
	spec := bagtest.Spec{Name: "many"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{
			Path: fmt.Sprintf("data/a-folder-of-usual-length/another-folder/a-document-of-%06d.txt", i), Size: int64(20 + i%50),
		})
	}
	id := a.deposit("many.tar", a.bag(spec))
	engine := a.engine()
	steps := Ingest(a.deps)
	for i, step := range steps[:len(steps)-1] {
		w := a.hold(engine, step.Stage)
		if err := step.run.Run(t.Context(), w); err != nil {
			t.Fatalf("%s: %v", step.Stage, err)
		}
		if used := memoryUsage(t, client) / files; used > most {
			t.Errorf("%s: %d bytes of Redis for each of %d files", step.Stage, used, files)
		}
		results, err := a.deps.Progress.Results(t.Context(), id, w.passOf())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hold.Settle(t.Context(), claim.Done{Next: steps[i+1].Stage, StorageOption: w.storageOption}, nil); err != nil {
			t.Fatal(err)
		}
		if err := a.deps.Progress.Clear(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if len(results) > 0 {
			a.fillRedis(client, step.Stage, results, 10_000, many)
		}
	}
	testenv.Soaked(t, many, "files of a bag in Redis, at each stage")
}

// fillRedis measures what a larger bag would take whose files all had the longest
// of these results.
func (a *archive) fillRedis(client *redis.Client, stage string, results map[int]string, sizes ...int) {
	a.t.Helper()
	longest := ""
	for _, r := range results {
		if len(r) > len(longest) {
			longest = r
		}
	}
	for _, n := range sizes {
		batch := map[int]string{}
		for i := range n {
			batch[i] = longest
			if len(batch) < 5_000 && i < n-1 {
				continue
			}
			if err := a.deps.Progress.Done(a.t.Context(), progress.Claim{Item: 999, Token: 1}, stage, batch); err != nil {
				a.t.Fatal(err)
			}
			clear(batch)
		}
		used := memoryUsage(a.t, client) / int64(n)
		a.t.Logf("%s: %d bytes for each of %d files", stage, used, n)
		if used > 250 {
			a.t.Errorf("%s: %d bytes of Redis for each of %d files", stage, used, n)
		}
		if err := a.deps.Progress.Clear(a.t.Context(), 999); err != nil {
			a.t.Fatal(err)
		}
	}
}

func memoryUsage(t testing.TB, client *redis.Client) (total int64) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		used, err := client.MemoryUsage(t.Context(), key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		total += used
	}
	return total
}

// What Redis keeps of copies is what Storage Validation found, to the millisecond.
func TestCopiesArePackedWithoutLoss(t *testing.T) {
	t.Parallel()
	f := &file{md5: [16]byte{1, 2, 3}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	names := []string{"Standard-VA", "Standard-OR"}
	want := []storedCopy{
		{Target: names[0], ETag: storage.ExpectedETag(f.md5, nil), Stored: at.Truncate(time.Second), Verified: at},
		{Target: names[1], ETag: "0123-5", Stored: at, Verified: at.Add(time.Hour)},
	}
	packed := packCopies(f, want)
	if diff := cmp.Diff(want, unpackCopies(f, names, packed)); diff != "" {
		t.Error(diff)
	}
	for _, other := range []string{
		"", `{"i":3,"copies":[]}`, "x 1 \n", "1 x \n", "1 2\n", packed + "1 2 \n", strings.Replace(packed, " ", "  ", 1),
	} {
		if got := unpackCopies(f, names, other); got != nil {
			t.Errorf("unpacked %q: %v", other, got)
		}
	}
}
