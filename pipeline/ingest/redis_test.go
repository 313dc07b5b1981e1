package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// The bound is what a Redis for the largest bags is sized by: 250 bytes a file,
// whatever the stage and however many files there are.
func TestAFileTakesLessThan250BytesOfRedis(t *testing.T) {
	t.Parallel()
	const most, files = 250, 1_000
	many := testenv.Soak(300_000)
	a := newArchive(t)
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "small")
	spec := bagtest.Spec{Name: "many"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{
			Path: fmt.Sprintf("data/a-folder-of-usual-length/another-folder/a-document-of-%06d.txt", i), Size: int64(20 + i%50),
		})
	}
	id := a.Deposit("many.tar", a.Bag(spec))
	engine := a.Engine()
	steps := Steps(a.Deps)
	for i, step := range steps[:len(steps)-1] {
		w := a.Hold(engine, step.Stage)
		if err := step.Run.Run(t.Context(), w); err != nil {
			t.Fatalf("%s: %v", step.Stage, err)
		}
		if used := memoryUsage(t, client) / files; used > most {
			t.Errorf("%s: %d bytes of Redis for each of %d files", step.Stage, used, files)
		}
		results := must.Get(a.Deps.Progress.Results(t.Context(), id, w.Pass()))(t)
		must.Do(t, w.Hold.Settle(t.Context(), claim.Done{Next: steps[i+1].Stage, StorageOption: w.StorageOption}, nil))
		must.Do(t, a.Deps.Progress.Clear(t.Context(), id))
		if len(results) > 0 {
			a.fillRedis(client, string(step.Stage), results, 10_000, many)
		}
	}
	testenv.Soaked(t, many, "files of a bag in Redis, at each stage")
}

// fillRedis measures what a larger bag would take whose files all had the longest
// of these results.
func (a *archive) fillRedis(client *redis.Client, stage string, results map[int]string, sizes ...int) {
	a.T.Helper()
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
			must.Do(a.T, a.Deps.Progress.Done(a.T.Context(), progress.Claim{Item: 999, Token: 1}, stage, batch))
			clear(batch)
		}
		used := memoryUsage(a.T, client) / int64(n)
		a.T.Logf("%s: %d bytes for each of %d files", stage, used, n)
		if used > 250 {
			a.T.Errorf("%s: %d bytes of Redis for each of %d files", stage, used, n)
		}
		must.Do(a.T, a.Deps.Progress.Clear(a.T.Context(), 999))
	}
}

func memoryUsage(t testing.TB, client *redis.Client) (total int64) {
	t.Helper()
	keys := must.Get(client.Keys(t.Context(), "*").Result())(t)
	for _, key := range keys {
		used := must.Get(client.MemoryUsage(t.Context(), key, 0).Result())(t)
		total += used
	}
	return total
}

// What Redis keeps of copies is what Storage Validation found, to the millisecond.
func TestCopiesArePackedWithoutLoss(t *testing.T) {
	t.Parallel()
	f := &lists.File{Content: copies.Content{MD5: [16]byte{1, 2, 3}}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	names := []string{"Standard-VA", "Standard-OR"}
	want := []lists.Copy{
		{Target: names[0], ETag: storage.ExpectedETag(f.MD5, nil), Stored: at.Truncate(time.Second), Verified: at},
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
