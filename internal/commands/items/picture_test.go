package items

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
)

// The picture is drawn over the one before, and each line stays a line.
func TestPictureIsDrawnInPlace(t *testing.T) {
	t.Parallel()
	out := must.Get(os.Create(filepath.Join(t.TempDir(), "terminal")))(t)
	defer out.Close() //nolint:errcheck // read below
	p := &picture{out: out}
	item := record.WorkItem{ID: 7, Action: "Ingest", Status: "Started", Retry: true, Stage: "Store", Name: "film\x1b[2J.tar", Institution: "test.edu", Attempt: 2, Order: values.Stages()[:9]}
	number := func(n int64) *int64 { return &n }
	stage := explain.Stage{
		Stage: "Store", Measure: progress.ByBytes, Number: 6, Of: 9, FilesDone: number(1), FilesTotal: number(4), BytesDone: number(100), BytesTotal: number(400), InProgress: 12,
		Files: []explain.File{{Path: "data/\u202egnp.exe", Files: 1, Size: number(200), Bytes: 50}, {Path: "data/a", Files: 3, Size: number(30)}},
	}
	ended := time.Now()
	l := explain.Snapshot{Item: item, State: "in progress", Current: stage, Attempts: []record.Attempt{{Stage: "Receive", ClaimedAt: ended.Add(-3 * time.Second), EndedAt: &ended}}}
	for range 2 {
		must.Do(t, p.show(l))
	}
	p.interrupt()
	must.Do(t, p.show(l))
	text := must.Get(os.ReadFile(out.Name()))(t)
	const over = "\x1b[14A\x1b[J"
	first, rest, _ := strings.Cut(string(text), over)
	if n := strings.Count(first, "\n"); n != 14 || strings.Count(rest, over) != 0 || rest != first+first {
		t.Errorf("%d lines, and then: %q", n, rest)
	}
	for _, want := range []string{
		`Item 7, film\x1b[2J.tar of test.edu, 0 B: Started`, "  1 Receive                done in 3s\n", "  2 Validate               done\n",
		"  6 Store                  attempt 2 [=====               ] 1 of 4 files, 100 B of 400 B (25%), rate not known yet; remaining time not known yet\n",
		`      data/\u202egnp.exe: 50 B of 200 B (25%)` + "\n", "      data/a and 2 more, 30 B\n", "      … and 10 more\n", "  9 Cleanup\n", "  in progress\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("it lacks %q:\n%s", want, first)
		}
	}
	l.Time, l.End = ended, &record.Interval{Low: ended.Add(time.Minute), Likely: ended.Add(2 * time.Minute), High: ended.Add(time.Hour)}
	if lines := draw(l); lines[len(lines)-2] != "  End: in about 2m00s; in 8 of 10 cases in 1m00s to 1h00m" {
		t.Errorf("with an estimate: %q", lines)
	}
	l.End, l.Unknown = nil, "its stage is paused"
	if lines := draw(l); lines[len(lines)-2] != "  End: not known: its stage is paused" {
		t.Errorf("without one: %q", lines)
	}
	l.Unknown = ""
	item.Status, item.Retry = "Success", false
	if lines := strings.Join(draw(explain.Snapshot{Item: item, Current: stage, State: "done"}), "\n"); strings.Count(lines, " done") != 10 {
		t.Errorf("at the end:\n%s", lines)
	}
}
