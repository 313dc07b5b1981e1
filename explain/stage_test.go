package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ingestOrder are the stages of an ingest as the registry has them.
func ingestOrder() []registry.Stage {
	return []registry.Stage{
		"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup",
	}
}

// What is said of the time to come needs a basis, and only this attempt is one.
func TestRateAndTimeLeft(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	running := record.WorkItem{Action: "Ingest", Status: "Started", Stage: "Store", ClaimToken: 9, Order: ingestOrder()}
	half := progress.Counters{ // of 100 MiB, 10 by an earlier attempt, 40 in 10 s
		Stage: "Store", Token: 9, Elapsed: 10 * time.Second, Moved: 10 * time.Second,
		Files: 5, FilesBefore: 1, FilesTotal: 10, Bytes: 50 * mib, BytesBefore: 10 * mib, BytesTotal: 100 * mib,
	}
	for name, tc := range map[string]struct {
		change     func(i *record.WorkItem, c *progress.Counters)
		age        time.Duration
		done, pace string
	}{
		"half of it": {nil, 0, "5 of 10 files, 50.0 MiB of 100.0 MiB (50%)", "4.0 MiB/s, 0.4 files/s; about 12s left"},
		"some seconds later": {
			nil, 4 * time.Second, "5 of 10 files, 50.0 MiB of 100.0 MiB (50%)",
			"4.0 MiB/s, 0.4 files/s; about 8s left",
		},
		"too early": {
			func(_ *record.WorkItem, c *progress.Counters) { c.Elapsed, c.Moved = 4*time.Second, 4*time.Second }, 0,
			"5 of 10 files, 50.0 MiB of 100.0 MiB (50%)", "10.0 MiB/s, 1.0 files/s; remaining time not known yet",
		},
		"too little": {
			func(_ *record.WorkItem, c *progress.Counters) { c.BytesTotal, c.FilesTotal = 1<<50, 1e6 }, 0,
			"5 of 1000000 files, 50.0 MiB of 1.0 PiB (0%)", "4.0 MiB/s, 0.4 files/s; remaining time not known yet",
		},
		"only what an earlier attempt did": {
			func(_ *record.WorkItem, c *progress.Counters) { c.Files, c.Bytes = c.FilesBefore, c.BytesBefore }, 0,
			"1 of 10 files, 10.0 MiB of 100.0 MiB (10%)", "rate not known yet; remaining time not known yet",
		},
		"nothing moves": {
			func(_ *record.WorkItem, c *progress.Counters) { c.Elapsed = 200 * time.Second }, 0,
			"5 of 10 files, 50.0 MiB of 100.0 MiB (50%)", "204.8 KiB/s, 0.0 files/s; no progress for 3m10s",
		},
		"many small files": {func(_ *record.WorkItem, c *progress.Counters) {
			c.Bytes, c.BytesBefore, c.BytesTotal, c.Files, c.FilesBefore, c.FilesTotal = 1000, 0, 2000, 1000, 0, 2000
		}, 0, "1000 of 2000 files, 1000 B of 2.0 KiB (50%)", "100 B/s, 100.0 files/s; about 10s left"},
		"by files": {func(i *record.WorkItem, c *progress.Counters) {
			i.Stage, c.Stage, c.BytesTotal = "Storage Validation", "Storage Validation", 1<<40
		}, 0, "5 of 10 files, 50.0 MiB of 1.0 TiB (50%)", "4.0 MiB/s, 0.4 files/s; about 12s left"},
		"files not known": {
			func(i *record.WorkItem, c *progress.Counters) {
				i.Stage, c.Stage, c.FilesTotal = "Receive", "Receive", -1
			}, 0,
			"5 files, 50.0 MiB of 100.0 MiB (50%)", "4.0 MiB/s, 0.4 files/s; about 12s left",
		},
		"another attempt's": {func(_ *record.WorkItem, c *progress.Counters) { c.Token = 8 }, 0, "not known yet", "rate not known yet; remaining time not known yet"},
		"another stage's":   {func(_ *record.WorkItem, c *progress.Counters) { c.Stage = "Receive" }, 0, "not known yet", "rate not known yet; remaining time not known yet"},
		"nothing to do": {
			func(_ *record.WorkItem, c *progress.Counters) { *c = progress.Counters{Stage: "Store", Token: 9} }, 0,
			"0 of 0 files, 0 B of 0 B (100%)", "rate not known yet; remaining time not known yet",
		},
		"waits for another attempt": {
			func(i *record.WorkItem, _ *progress.Counters) { i.Status, i.ClaimToken = "Pending", 10 }, 0,
			"5 of 10 files, 50.0 MiB of 100.0 MiB (50%)", "rate not known yet; remaining time not known yet",
		},
	} {
		i, c := running, half
		if tc.change != nil {
			tc.change(&i, &c)
		}
		v := newStage(i, map[registry.Stage]progress.Measure{"Storage Validation": progress.ByFiles}[i.Stage], c, tc.age, true)
		if v.Done() != tc.done || v.Pace() != tc.pace {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", name, v.Done(), v.Pace(), tc.done, tc.pace)
		}
		if told := strings.Contains(tc.pace, "about"); told != (v.SecondsLeft != nil) {
			t.Errorf("%s: seconds left %v", name, v.SecondsLeft)
		}
		if v.Place() != fmt.Sprintf("stage %d of 9, %s", map[registry.Stage]int{"Store": 6, "Receive": 1, "Storage Validation": 7}[i.Stage], i.Stage) {
			t.Errorf("%s: %s", name, v.Place())
		}
	}
	if v := newStage(running, progress.ByBytes, half, 0, false); v.FilesDone != nil || v.Done() != "not known yet" {
		t.Errorf("nothing was counted: %+v", v)
	}
}
