package pipeline_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/retry"
)

// counters are those that people see of an item.
func (a *archive) counters(id int64) (progress.Counters, bool) {
	a.T.Helper()
	c, _, ok, err := a.Deps.Progress.Counters(context.Background(), id)
	if err != nil {
		a.T.Fatal(err)
	}
	return c, ok
}

// watchCounting looks at figures all the time, and fails the test when one falls or
// goes beyond its total. The function that it returns ends that.
func watchCounting(t *testing.T, c *pipeline.Counting) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		var last progress.Counters
		for retry.Pause(ctx, time.Millisecond) {
			n := c.Now()
			if n.Stage == "" {
				continue
			}
			if n.Files < last.Files || n.Bytes < last.Bytes || n.Elapsed < last.Elapsed {
				t.Errorf("figures fell from %+v to %+v", last, n)
			}
			if n.FilesTotal >= 0 && n.Files > n.FilesTotal || n.Bytes > n.BytesTotal || n.Bytes < n.BytesBefore || n.Moved > n.Elapsed {
				t.Errorf("impossible figures: %+v", n)
			}
			last = n
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// At its end a stage has counted all it had to do, and no more.
func TestFiguresAreRightAtTheEndOfEachStage(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	sample := a.Sample()
	id := a.Deposit("sample.tar", sample)
	const payload = 10*15_000 + 10*120_000 + 3<<20
	engine := a.Engine()
	steps := ingest.Steps(a.Deps)
	for i, step := range steps[:len(steps)-1] {
		w := a.Hold(engine, step.Stage)
		stop := watchCounting(t, &w.Count)
		err := step.Run.Run(w.Hold.Context(), w)
		w.Count.End(t.Context(), false)
		stop()
		if err != nil {
			t.Fatalf("%s: %v", step.Stage, err)
		}
		got, ok := a.counters(id)
		if !ok {
			t.Fatalf("%s: nothing was counted", step.Stage)
		}
		tags := got.BytesTotal - payload // of the two tag files
		want := progress.Counters{Stage: step.Stage, Token: w.Item.Token, Files: pipelinetest.SampleFiles, FilesTotal: pipelinetest.SampleFiles, Bytes: got.BytesTotal, BytesTotal: got.BytesTotal}
		switch step.Stage {
		case "Receive":
			want.Files, want.FilesTotal, want.BytesTotal, want.Bytes = regularFiles(t, sample), -1, int64(len(sample)), int64(len(sample))
		case "Validate", "Reingest Check", "Copy To Staging", "Record": // which have no figures of their own
			want = progress.Counters{Stage: steps[max(i-1, 0)].Stage, Token: got.Token, Files: got.Files, FilesTotal: got.FilesTotal, Bytes: got.Bytes, BytesTotal: got.BytesTotal}
			if step.Stage == "Reingest Check" || step.Stage == "Copy To Staging" {
				want.Stage = "Receive"
			}
		default:
			if tags <= 0 || tags > 1000 {
				t.Errorf("%s: the tag files have %d bytes", step.Stage, tags)
			}
		}
		got.Elapsed, got.Moved = 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.Stage, diff)
		}
		must.Do(t, w.Hold.Settle(t.Context(), claim.Done{Next: steps[i+1].Stage, Note: step.Note}, nil))
	}
}

func regularFiles(t *testing.T, content []byte) (n int64) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			n++
		}
	}
}

// What an earlier attempt had done counts for the total, and not for the rate.
func TestFiguresGoOnAfterAnAttemptThatFailed(t *testing.T) {
	t.Parallel()
	const files, size = 60, 120_000
	a := newArchive(t)
	a.Deps.Files = 1
	spec := bagtest.Spec{Name: "figures"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: "data/" + string(rune('a'+i/26)) + string(rune('a'+i%26)), Size: size})
	}
	id := a.Deposit("figures.tar", a.Bag(spec))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	engine := a.Engine()
	a.UpTo(engine, "Store")
	proxy.CutAfter(files * size * 3 / 2) // every byte passes three times: it is read, and stored twice
	a.One(engine, "Store")
	first, ok := a.counters(id)
	if !ok || first.Stage != "Store" || first.Files < 3 || first.Files >= files || first.FilesBefore != 0 ||
		first.FilesTotal != files+2 || first.Bytes < (first.Files-2)*size || first.Bytes >= first.BytesTotal {
		t.Fatalf("of the first attempt: %+v, %v", first, ok)
	}
	summary, err := a.Deps.Progress.Summary(t.Context(), id)
	if err != nil || len(summary) != 1 {
		t.Fatalf("summary %v, %v", summary, err)
	}
	var kept int64
	for _, n := range summary {
		kept = n
	}
	if first.Files != kept {
		t.Errorf("%d files were counted, and %d are kept", first.Files, kept)
	}

	proxy.Resume()
	a.Exec(`UPDATE work_items SET run_at = now()`)
	w := a.Hold(engine, "Store")
	stop := watchCounting(t, &w.Count)
	err = ingest.Steps(a.Deps)[5].Run.Run(w.Hold.Context(), w)
	w.Count.End(t.Context(), false)
	stop()
	second, _ := a.counters(id)
	if err != nil || second.FilesBefore != kept || second.Files != files+2 || second.Bytes != second.BytesTotal || second.BytesBefore != first.Bytes ||
		second.Token != w.Item.Token || second.Token == first.Token {
		t.Errorf("of the second attempt: %+v after %+v, %v", second, first, err)
	}
}

// An emptied Redis knows nothing, and within a second again what there is.
func TestFiguresComeBackAfterFLUSHALL(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "flushed")
	id := a.Deposit("sample.tar", a.Sample())
	w := a.Hold(a.Engine(), "Receive")
	w.StartCounting(w.Hold.Context(), progress.Counters{FilesTotal: 10, BytesTotal: 1000, FilesBefore: 2, BytesBefore: 100})
	known := func() bool { _, ok := a.counters(id); return ok }
	testenv.Eventually(t, "the first figures", known)
	hand := w.Count.Take(3, "data/a", 1, 50)
	w.Count.Finish(hand, 50)
	must.Do(t, client.FlushDB(t.Context()).Err())
	if c, ok := a.counters(id); ok {
		t.Errorf("right after FLUSHDB: %+v", c)
	}
	testenv.Eventually(t, "figures after FLUSHDB", known)
	if c, _ := a.counters(id); c.Files != 3 || c.Bytes != 150 || c.FilesBefore != 2 || c.FilesTotal != 10 {
		t.Errorf("after FLUSHDB: %+v", c)
	}
	w.Count.End(t.Context(), true)
}

// Parts of a large file count as they come, for all its copies together, and those
// of earlier attempts apart.
func TestFiguresOfALargeFile(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deposit("sample.tar", a.Sample())
	w := a.Hold(a.Engine(), "Receive")
	w.StartCounting(w.Hold.Context(), progress.Counters{FilesTotal: 2, BytesTotal: 1100})
	defer w.Count.End(t.Context(), true)
	const big = 1 // its index
	check := func(when string, bytes, before int64, hands ...progress.CurrentFile) {
		t.Helper()
		n := w.Count.Now()
		if n.Bytes != bytes || n.BytesBefore != before {
			t.Errorf("%s: %d bytes and %d before, want %d and %d", when, n.Bytes, n.BytesBefore, bytes, before)
		}
		if diff := cmp.Diff(hands, n.CurrentFiles); diff != "" {
			t.Errorf("%s: in hand (-want +got):\n%s", when, diff)
		}
	}
	hand, other := w.Count.Take(big, "big", 1, 1000), w.Count.Take(2, "small", 1, 100)
	inHand := func(bytes int64) []progress.CurrentFile {
		return []progress.CurrentFile{{Path: "big", Files: 1, Size: 1000, Bytes: bytes}, {Path: "small", Files: 1, Size: 100}}
	}
	w.Count.Copies(big, 2)
	check("at first", 0, 0, inHand(0)...)
	sent := w.Count.Parts(big, "one")
	sent(400, true) // by an earlier attempt
	check("a part of an earlier attempt", 200, 200, inHand(200)...)
	sent(400, false)
	check("a part", 400, 200, inHand(400)...)
	sent = w.Count.Parts(big, "one") // another try
	check("another try", 400, 200, inHand(0)...)
	sent(400, true)
	check("some of what the try before sent", 400, 200, inHand(200)...)
	sent(400, true)
	check("what the try before sent", 400, 200, inHand(400)...)
	sent(200, false)
	w.Count.Parts(big, "two")(1000, false)
	check("all parts", 1000, 200, inHand(1000)...)
	w.Count.Finish(hand, 1000)
	w.Count.Drop(hand)
	check("finished", 1000, 200, progress.CurrentFile{Path: "small", Files: 1, Size: 100})
	w.Count.Drop(other)
	check("given up", 1000, 200)
}
