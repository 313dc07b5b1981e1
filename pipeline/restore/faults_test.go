package restore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// A damaged or missing copy is passed over, wherever the damage is, and what is given
// back is right.
func TestBadCopyIsPassedOver(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Ingested(pipelinetest.Large("bad"))
	a.Flip("Standard-VA", "test.edu/bad/data/a.txt", 2)
	a.Flip("Standard-VA", "test.edu/bad/data/b.bin", 20<<20)
	a.Flip("Standard-VA", "test.edu/bad/data/c.bin", 37<<20)
	must.Do(t, a.Deps.Targets["Standard-VA"].Delete(context.Background(), a.KeyOf("test.edu/bad/data/d.txt")))
	if item := a.Restored("test.edu/bad"); item.Status != "Success" || item.Attempt > 1 ||
		!strings.Contains(item.Note, "/test.edu/bad.tar. Bad copies were skipped and recorded; they can be repaired from the good ones: test.edu/bad/data/") {
		t.Fatalf("object: %s: %s", item.Status, item.Note)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.Content(a.RestoreBucket(), "test.edu/bad.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Fatalf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
	a.SameAsOnRecord(b, "test.edu/bad")
	for _, path := range []string{"data/a.txt", "data/b.bin", "data/d.txt"} {
		if item := a.Restored("test.edu/bad/" + path); item.Status != "Success" {
			t.Errorf("%s: %s: %s", path, item.Status, item.Note)
		}
	}
	if got := string(a.Content(a.RestoreBucket(), "test.edu/bad/data/a.txt")); got != "hello" {
		t.Errorf("file = %q", got)
	}
}

// With no good copy left nothing is given back, and the item names the files.
func TestNothingWrongIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Ingested(pipelinetest.Large("gone"))
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		a.Flip(target, "test.edu/gone/data/b.bin", 100)
		for _, path := range []string{"data/c.bin", "data/d.txt"} {
			must.Do(t, a.Deps.Targets[target].Delete(context.Background(), a.KeyOf("test.edu/gone/"+path)))
		}
	}
	for _, identifier := range []string{"test.edu/gone", "test.edu/gone/data/b.bin", "test.edu/gone/data/d.txt"} {
		item := a.Restored(identifier)
		if item.Status != "Failed" || item.ErrorCode != "copies-unreadable" || !item.NeedsAdminReview {
			t.Errorf("%s: %s (%s): %s", identifier, item.Status, item.ErrorCode, item.Note)
		}
		if identifier == "test.edu/gone" && (!strings.Contains(item.Note, "data/c.bin") || !strings.Contains(item.Note, "data/d.txt")) {
			t.Errorf("the note does not name all files: %s", item.Note)
		}
	}
	if keys := a.Keys(a.RestoreBucket()); len(keys) != 0 {
		t.Errorf("given back: %v", keys)
	}
	for what, b := range map[string]*storage.Bucket{"staging": a.Deps.Staging, "the restoration bucket": a.RestoreBucket()} {
		if open := a.Uploads(b); len(open) != 0 {
			t.Errorf("uploads stay open in %s: %v", what, open)
		}
	}
}

// Where only an archived copy is good, that is made readable and used.
func TestLastGoodCopyIsHadFromTheArchive(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ColdPoll = 50 * time.Millisecond
	a.Ingested(pipelinetest.ABag("thaw"))
	a.Flip("Standard-VA", "test.edu/thaw/data/a.txt", 0)
	a.Flip("Standard-VA", "test.edu/thaw/data/larger.bin", 3<<20)
	for _, identifier := range []string{"test.edu/thaw/data/a.txt", "test.edu/thaw"} {
		if item := a.Restored(identifier); item.Status != "Success" {
			t.Fatalf("%s: %s: %s", identifier, item.Status, item.Note)
		}
	}
	if got := string(a.Content(a.RestoreBucket(), "test.edu/thaw/data/a.txt")); got != "hello" {
		t.Errorf("file = %q", got)
	}
}

// A restoration that broke off near its end goes on there: no more than a part of it
// is read and sent again.
func TestRestorationGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "long", Files: []bagtest.File{{Path: "data/a.txt", Content: "hello"}, {Path: "data/b.bin", Size: 120 << 20}}})
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	id := a.Ask("test.edu/long")
	engine := a.Engine()
	proxy.CutAfter(2 * 115 << 20) // it passes in and out
	a.Request(engine, "Restore Object")
	if item := a.Item(id); item.Status != "Pending" || item.Attempt != 0 {
		t.Fatalf("after the cut: %s, attempt %d: %s", item.Status, item.Attempt, item.Note)
	}
	proxy.Resume()
	before := proxy.Bytes()
	a.Exec(`UPDATE work_items SET run_at = now()`)
	a.Request(engine, "Restore Object")
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("then: %s: %s", item.Status, item.Note)
	}
	const part, rest = 16 << 20, 120<<20 - 115<<20
	const proof = 2 * (120 << 20) // it is read back from either bucket
	if again := proxy.Bytes() - before; again > 2*(2*part+rest)+proof+4<<20 {
		t.Errorf("%d bytes passed in the second attempt", again)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.Content(a.RestoreBucket(), "test.edu/long.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Fatalf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
	a.SameAsOnRecord(b, "test.edu/long")
}

// A tar that is damaged in staging is found there, and never gets its name.
func TestDamagedTarIsNotPublished(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("damaged"))
	id := a.Ask("test.edu/damaged")
	engine := a.Engine()
	items, err := engine.Claim(context.Background(), claim.Filter{Action: "Restore Object", Stages: []claim.Want{{Stage: "Requested", Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	w := &pipeline.Work{Item: items[0], Hold: engine.Hold(context.Background(), items[0]), Log: a.Deps.Log, Progress: a.Deps.Progress}
	object := must.Get(beforeRestoring(context.Background(), a.Deps.Registry, w))(t)
	g := newGiving(a.Deps, w)
	l := must.Get(newLayout(context.Background(), g, object, w.Item.Request.CreatedAt))(t)
	s := stream{giving: g, partSize: partSizeOf(l.size), write: l.writeTar}
	r := must.Get(s.from(context.Background(), 0))(t)
	tar, err := io.ReadAll(r)
	if err != nil || int64(len(tar)) != l.size {
		t.Fatalf("%d bytes, %v; want %d", len(tar), err, l.size)
	}
	r.Close()
	manifest := bytes.Index(tar, []byte("damaged/manifest-sha256.txt")) + 512
	for what, damage := range map[string]func([]byte) []byte{
		"a byte of a manifest": func(b []byte) []byte { b[manifest+3] ^= 1; return b },
		"a byte of a header":   func(b []byte) []byte { b[bytes.Index(b, []byte("data/empty"))] = 'x'; return b },
		"a byte of a tag file": func(b []byte) []byte { b[bytes.Index(b, []byte("Source-Organization"))] ^= 1; return b },
		"its end":              func(b []byte) []byte { return b[:len(b)-4096] },
		"nothing":              func(b []byte) []byte { return b },
	} {
		content := damage(slices.Clone(tar))
		o := must.Get(a.Deps.Staging.Put(context.Background(), lists.Key(w.Item.ID, stagedRestore), bytes.NewReader(content), storage.Upload{Size: int64(len(content))}))(t)
		if err := l.judge(context.Background(), g, o); (err == nil) != (what == "nothing") {
			t.Errorf("%s is damaged: %v", what, err)
		}
	}
	if item := a.Item(id); item.Status != "Started" {
		t.Errorf("item = %+v", item)
	}
}

// A file that has to be made readable is asked for, and counted, once, however often
// the part that it is in would be tried.
func TestArchivedCopyIsAskedForOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ColdPoll = time.Hour
	a.Ingested(pipelinetest.ABag("once"))
	a.Flip("Standard-VA", "test.edu/once/data/larger.bin", 5)
	id := a.Ask("test.edu/once")
	a.Request(a.Engine(), "Restore Object")
	item := a.Item(id)
	if item.Status != "Pending" || item.ErrorCode != "snoozed" || item.Attempt != 0 || !strings.Contains(item.Note, "data/larger.bin") {
		t.Errorf("item = %s (%s), attempt %d: %s", item.Status, item.ErrorCode, item.Attempt, item.Note)
	}
	blobs, err := a.Deps.Progress.Blobs(context.Background(), id, fmt.Sprintf("Requested@%d", pipelinetest.Value[int64](a, `SELECT entered_token FROM work_items WHERE id = $1`, id)))
	thawed := 0
	for name := range blobs {
		if strings.HasPrefix(name, "thawed:") {
			thawed++
		}
	}
	asked := strings.Count(a.Log.String(), "is being restored by the provider first, which takes up to 5.0 hours")
	if err != nil || thawed != 1 || asked != 1 {
		t.Errorf("kept: %v, %v, asked %d times; want one file to be counted, and asked for once", blobs, err, asked)
	}
}
