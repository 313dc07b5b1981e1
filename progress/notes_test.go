package progress_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/progress"
)

func counted(t *testing.T, s *progress.Store) (progress.Counters, bool) {
	t.Helper()
	c, age, ok, err := s.Counters(t.Context(), item)
	must(t, err)
	if age < 0 || age > time.Minute {
		t.Errorf("counted %v ago", age)
	}
	return c, ok
}

// Anyone who looks sees what was counted last, or that nothing is known.
func TestCountersAreTheLastOnesOrNone(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	ctx := t.Context()
	if c, ok := counted(t, s); ok {
		t.Errorf("at first: %+v", c)
	}
	c := progress.Counters{
		Stage: stage, Elapsed: time.Second, Moved: time.Millisecond, Files: 3, FilesBefore: 1, FilesTotal: -1,
		Bytes: 1 << 40, BytesBefore: 5, BytesTotal: 1 << 41, Busy: 1, CurrentFiles: []progress.CurrentFile{{Path: "data/ü", Files: 1, Size: -1, Bytes: 2}},
	}
	must(t, s.Count(ctx, claim(4), progress.Counters{Stage: "Receive"}))
	must(t, s.Count(ctx, claim(4), c))
	c.Token = 4
	got, ok := counted(t, s)
	equal(t, "counters", c, got)
	if !ok {
		t.Error("they are said not to be known")
	}
	if err := s.Count(ctx, claim(3), progress.Counters{}); !errors.Is(err, progress.ErrLost) {
		t.Errorf("an older claim counted: %v", err)
	}
	must(t, client.FlushDB(ctx).Err())
	if c, ok := counted(t, s); ok {
		t.Errorf("after FLUSHDB: %+v", c)
	}
	must(t, s.Count(ctx, claim(4), c))
	if _, ok := counted(t, s); !ok {
		t.Error("nothing is counted after FLUSHDB")
	}
	must(t, s.Clear(ctx, item))
	equal(t, "the database", map[string]any{}, dump(t, client))
}

// What people may want to see must not grow with the bag.
func TestNotesAreSmall(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	ctx := t.Context()
	long := strings.Repeat("ü", 5000)
	c, f := progress.Counters{}, progress.Faults{More: 7}
	for i := range 10_000 {
		c.CurrentFiles = append(c.CurrentFiles, progress.CurrentFile{Path: fmt.Sprint(i, long), Size: 1 << 50})
		f.List = append(f.List, progress.Fault{Code: "x", Path: long, Expected: long, Found: long, Message: long})
	}
	must(t, s.Count(ctx, claim(1), c))
	must(t, s.Fail(ctx, claim(1), f))
	got, ok, err := s.Faults(ctx, item)
	must(t, err)
	if !ok || got.Token != 1 || len(got.List) != progress.MaxFaults || got.More != 10_000-progress.MaxFaults+7 {
		t.Errorf("%d faults and %d more, of %d", len(got.List), got.More, got.Token)
	}
	if p := got.List[0].Path; len(p) > 600 || !strings.HasSuffix(p, "ü…") {
		t.Errorf("a path of %d bytes: %q", len(p), p)
	}
	for name, most := range map[string]int64{"counters": 8 << 10, "faults": 160 << 10} {
		used, err := client.MemoryUsage(ctx, "farol:{7}:note:"+name).Result()
		must(t, err)
		if used > most {
			t.Errorf("%s take %d bytes, want %d at most", name, used, most)
		}
	}
}

// Nothing else in the database may be taken for a note.
func TestNoteThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	for _, value := range []string{"", "x {}", "1 {", "{}"} {
		must(t, client.Set(t.Context(), "farol:{7}:note:counters", value, 0).Err())
		if _, _, ok, err := s.Counters(t.Context(), item); err == nil || ok {
			t.Errorf("%q = %v, %v", value, ok, err)
		}
	}
}
