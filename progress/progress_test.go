package progress_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	item  = 7
	stage = "Copy To Staging"
)

func claim(token int64) progress.Claim { return progress.Claim{Item: item, Token: token} }

func store(t *testing.T) (*progress.Store, *redis.Client) {
	t.Helper()
	client := testenv.Redis(t)
	return progress.New(client, "farol"), client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, s *progress.Store, token int64) map[int]string {
	t.Helper()
	results, err := s.Begin(t.Context(), claim(token), stage)
	must(t, err)
	return results
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestTheNextAttemptFindsWhatTheLastOneFinished(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	equal(t, "at first", map[int]string{}, begin(t, s, 1))
	must(t, s.Done(t.Context(), claim(1), stage, map[int]string{0: "a", 12: ""}))
	must(t, s.Done(t.Context(), claim(1), stage, map[int]string{0: "b", 999_999: "c"}))
	must(t, s.Done(t.Context(), claim(1), "Store", map[int]string{1: "other"}))
	must(t, s.Done(t.Context(), progress.Claim{Item: 70, Token: 1}, stage, map[int]string{5: "other"}))
	equal(t, "after", map[int]string{0: "b", 12: "", 999_999: "c"}, begin(t, s, 2))
	some, err := s.ResultsOf(t.Context(), item, stage, []int{999_999, 1, 12})
	must(t, err)
	equal(t, "of some files", map[int]string{12: "", 999_999: "c"}, some)
}

func TestManyFilesComeBackWhole(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	want := map[int]string{}
	for i := range 12_345 {
		want[i] = fmt.Sprint("result ", i)
	}
	must(t, s.Done(t.Context(), claim(1), stage, want))
	equal(t, "results", want, begin(t, s, 1))
	entries := make([]string, 10_001)
	for i := range entries {
		entries[i] = fmt.Sprint(i)
	}
	must(t, s.Append(t.Context(), claim(1), stage, "log", entries...))
	got, err := s.Entries(t.Context(), item, stage, "log")
	must(t, err)
	equal(t, "entries", entries, got)
}

// A worker that slept through its lease must not undo the work of the next one.
func TestAnOlderClaimChangesNothing(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	ctx := t.Context()
	begin(t, s, 9)
	must(t, s.Done(ctx, claim(9), stage, map[int]string{1: "old"}))
	begin(t, s, 10) // 10 is the newer one as a number, not as text
	must(t, s.Put(ctx, claim(10), stage, "blob", "new"))
	must(t, s.Append(ctx, claim(10), stage, "log", "new"))
	before := dump(t, client)

	stale := claim(9)
	_, beginErr := s.Begin(ctx, stale, stage)
	for name, err := range map[string]error{
		"Begin":             beginErr,
		"Begin elsewhere":   func() error { _, err := s.Begin(ctx, stale, "Store"); return err }(),
		"Done":              s.Done(ctx, stale, stage, map[int]string{1: "stale", 2: "stale"}),
		"Done with nothing": s.Done(ctx, stale, stage, nil),
		"Put":               s.Put(ctx, stale, stage, "blob", "stale"),
		"Put of nothing":    s.Put(ctx, stale, stage, "blob", ""),
		"Append":            s.Append(ctx, stale, stage, "log", "stale"),
		"ClearStage":        s.ClearStage(ctx, stale, stage),
	} {
		if !errors.Is(err, progress.ErrLost) {
			t.Errorf("%s = %v, want ErrLost", name, err)
		}
	}
	equal(t, "the database", before, dump(t, client))
	equal(t, "results", map[int]string{1: "old"}, begin(t, s, 10))
}

// dump returns all that the database holds, by key.
func dump(t *testing.T, client *redis.Client) map[string]any {
	t.Helper()
	ctx := t.Context()
	keys, err := client.Keys(ctx, "*").Result()
	must(t, err)
	values := map[string]any{}
	for _, key := range keys {
		kind, err := client.Type(ctx, key).Result()
		must(t, err)
		switch kind {
		case "hash":
			values[key], err = client.HGetAll(ctx, key).Result()
		case "set":
			values[key], err = client.SMembersMap(ctx, key).Result()
		case "list":
			values[key], err = client.LRange(ctx, key, 0, -1).Result()
		default:
			values[key], err = client.Get(ctx, key).Result()
		}
		must(t, err)
	}
	return values
}

// Lua's numbers would take these for one.
func TestTokensAreDistinguishedToTheLastDigit(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	begin(t, s, math.MaxInt64)
	if _, err := s.Begin(t.Context(), claim(math.MaxInt64-1), stage); !errors.Is(err, progress.ErrLost) {
		t.Errorf("Begin = %v, want ErrLost", err)
	}
	for _, token := range []int64{0, -1} {
		if _, err := s.Begin(t.Context(), claim(token), stage); err == nil || errors.Is(err, progress.ErrLost) {
			t.Errorf("Begin with token %d = %v", token, err)
		}
	}
}

// A newer claim may write before it begins a stage: it is newer all the same.
func TestAWriteRaisesTheFence(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	begin(t, s, 1)
	must(t, s.Done(t.Context(), claim(3), stage, map[int]string{1: "new"}))
	if err := s.Done(t.Context(), claim(2), stage, map[int]string{1: "stale"}); !errors.Is(err, progress.ErrLost) {
		t.Errorf("Done = %v, want ErrLost", err)
	}
}

func TestAnEmptiedRedisLooksAsIfNothingWereDone(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	ctx := t.Context()
	begin(t, s, 5)
	must(t, s.Done(ctx, claim(5), stage, map[int]string{1: "a"}))
	must(t, client.FlushDB(ctx).Err())
	must(t, client.ScriptFlush(ctx).Err())

	must(t, s.Done(ctx, claim(5), stage, map[int]string{2: "b"}))
	equal(t, "results", map[int]string{2: "b"}, begin(t, s, 5))
	if err := s.Done(ctx, claim(4), stage, nil); !errors.Is(err, progress.ErrLost) {
		t.Errorf("Done(stale) = %v, want ErrLost", err)
	}
	must(t, client.FlushDB(ctx).Err())
	summary, err := s.Summary(ctx, item)
	must(t, err)
	equal(t, "summary", map[string]int64{}, summary)
	blob, err := s.Get(ctx, item, stage, "upload")
	must(t, err)
	equal(t, "blob", "", blob)
	must(t, s.Clear(ctx, item))
}

func TestBlobsAndLogsAreKept(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	ctx := t.Context()
	must(t, s.Put(ctx, claim(1), stage, "a", "1"))
	must(t, s.Put(ctx, claim(1), stage, "b", "2"))
	must(t, s.Put(ctx, claim(1), stage, "b", "3"))
	must(t, s.Put(ctx, claim(1), stage, "a", ""))
	must(t, s.Put(ctx, claim(1), "Store", "c", "other"))
	blobs, err := s.Blobs(ctx, item, stage)
	must(t, err)
	equal(t, "blobs", map[string]string{"b": "3"}, blobs)
	got, err := s.Get(ctx, item, stage, "b")
	must(t, err)
	equal(t, "blob", "3", got)

	must(t, s.Append(ctx, claim(1), stage, "log", "x", "y"))
	must(t, s.Append(ctx, claim(2), stage, "log"))
	must(t, s.Append(ctx, claim(2), stage, "log", "z"))
	entries, err := s.Entries(ctx, item, stage, "log")
	must(t, err)
	equal(t, "entries", []string{"x", "y", "z"}, entries)
}

func TestSummaryCountsTheFilesOfEachStage(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	ctx := t.Context()
	must(t, s.Done(ctx, claim(1), stage, map[int]string{1: "", 2: ""}))
	must(t, s.Done(ctx, claim(1), stage, map[int]string{2: ""}))
	must(t, s.Done(ctx, claim(1), "Store", map[int]string{3: ""}))
	must(t, s.Put(ctx, claim(1), "Validate", "a", "b"))
	got, err := s.Summary(ctx, item)
	must(t, err)
	equal(t, "summary", map[string]int64{stage: 2, "Store": 1}, got)
}

func fill(t *testing.T, s *progress.Store, stage string) {
	t.Helper()
	must(t, s.Done(t.Context(), claim(3), stage, map[int]string{1: "a"}))
	must(t, s.Put(t.Context(), claim(3), stage, "b", "c"))
	must(t, s.Append(t.Context(), claim(3), stage, "d", "e"))
}

func TestClearStageLeavesTheOtherStages(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	fill(t, s, "Store")
	kept := dump(t, client)
	fill(t, s, stage)
	must(t, s.ClearStage(t.Context(), claim(3), stage))
	equal(t, "the database", kept, dump(t, client))
}

func TestClearLeavesNothing(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	fill(t, s, stage)
	fill(t, s, "Store")
	must(t, s.Clear(t.Context(), item))
	keys, err := client.Keys(t.Context(), "*").Result()
	must(t, err)
	equal(t, "keys", []string{}, keys)
}

// What nobody clears ends by itself, but not while the item is worked on: a
// write to any stage keeps the others.
func TestEverythingLivesThirtyDaysFromTheLastWrite(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	ctx := t.Context()
	fill(t, s, stage)
	keys, err := client.Keys(ctx, "*").Result()
	must(t, err)
	for _, key := range keys {
		must(t, client.Expire(ctx, key, time.Minute).Err())
	}
	begin(t, s, 3)
	for _, key := range keys {
		left, err := client.TTL(ctx, key).Result()
		must(t, err)
		if left < 29*24*time.Hour || left > 30*24*time.Hour {
			t.Errorf("%s lives %v", key, left)
		}
	}
	if len(keys) != 5 {
		t.Errorf("keys %v", keys)
	}
}

// The bound is what design and sizing count with.
func TestAFileTakesLessThan250Bytes(t *testing.T) {
	t.Parallel()
	for _, files := range []int{3_000, 100_000} {
		s, client := store(t)
		results := map[int]string{}
		for i := range files {
			// as Store writes it: an etag and the digest's beginning, or alike
			results[i] = fmt.Sprintf("%064x", i)
			if len(results) == 1_000 || i == files-1 {
				must(t, s.Done(t.Context(), claim(1), stage, results))
				clear(results)
			}
		}
		total := int64(0)
		keys, err := client.Keys(t.Context(), "*").Result()
		must(t, err)
		for _, key := range keys {
			used, err := client.MemoryUsage(t.Context(), key, 0).Result()
			must(t, err)
			total += used
		}
		per := total / int64(files)
		t.Logf("%d files: %d bytes each", files, per)
		if per > 250 {
			t.Errorf("%d files: %d bytes each, want 250 at most", files, per)
		}
	}
}

func TestManyWritersOfOneClaim(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	begin(t, s, 1)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := s.Done(t.Context(), claim(1), stage, map[int]string{i: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := begin(t, s, 1); len(got) != 50 {
		t.Errorf("%d files, want 50", len(got))
	}
}

func TestAnEndedContextEndsTheCall(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Done(ctx, claim(1), stage, map[int]string{1: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Done = %v", err)
	}
}

func TestNegativeFilesAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := store(t)
	if err := s.Done(t.Context(), claim(1), stage, map[int]string{-1: "a"}); err == nil {
		t.Error("Done took file -1")
	}
}
