package pipeline

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
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// keyOf is the key of a file's copies.
func (a *archive) keyOf(identifier string) string {
	a.t.Helper()
	return value[string](a, `SELECT DISTINCT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier = $1`, identifier)
}

// flip changes one byte of a copy behind the system's back.
func (a *archive) flip(target, identifier string, at int64) {
	a.t.Helper()
	b, key := a.deps.Targets[target], a.keyOf(identifier)
	content := a.content(b, key)
	content[at] ^= 1
	if _, err := b.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))}); err != nil {
		a.t.Fatal(err)
	}
}

// bothReadable has both copies of Standard in a class that can be read at once.
func (a *archive) bothReadable() {
	spec := storage.Targets()[slices.IndexFunc(storage.Targets(), func(s storage.TargetSpec) bool { return s.Name == "Standard-OR" })]
	spec.StorageClass = ""
	a.deps.Targets["Standard-OR"] = a.target(spec)
}

// large is a bag with files that come in several parts.
func large(name string) bagtest.Spec {
	return bagtest.Spec{Name: name, Files: []bagtest.File{
		{Path: "data/a.txt", Content: "hello"},
		{Path: "data/b.bin", Size: 20<<20 + 3},
		{Path: "data/c.bin", Size: 40<<20 + 5},
		{Path: "data/d.txt", Content: "bye"},
	}}
}

// A damaged or missing copy is passed over, wherever the damage is, and what is given
// back is right.
func TestBadCopyIsPassedOver(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	a.ingested(large("bad"))
	a.flip("Standard-VA", "test.edu/bad/data/a.txt", 2)
	a.flip("Standard-VA", "test.edu/bad/data/b.bin", 20<<20)
	a.flip("Standard-VA", "test.edu/bad/data/c.bin", 37<<20)
	if err := a.deps.Targets["Standard-VA"].Delete(context.Background(), a.keyOf("test.edu/bad/data/d.txt")); err != nil {
		t.Fatal(err)
	}
	if item := a.restored("test.edu/bad"); item.Status != "Success" || item.Attempt > 1 {
		t.Fatalf("object: %s: %s", item.Status, item.Note)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.content(a.restoreBucket(), "test.edu/bad.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Fatalf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
	a.sameAsOnRecord(b, "test.edu/bad")
	for _, path := range []string{"data/a.txt", "data/b.bin", "data/d.txt"} {
		if item := a.restored("test.edu/bad/" + path); item.Status != "Success" {
			t.Errorf("%s: %s: %s", path, item.Status, item.Note)
		}
	}
	if got := string(a.content(a.restoreBucket(), "test.edu/bad/data/a.txt")); got != "hello" {
		t.Errorf("file = %q", got)
	}
}

// With no good copy left nothing is given back, and the item says of which files.
func TestNothingWrongIsGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	a.ingested(large("gone"))
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		a.flip(target, "test.edu/gone/data/b.bin", 100)
		for _, path := range []string{"data/c.bin", "data/d.txt"} {
			if err := a.deps.Targets[target].Delete(context.Background(), a.keyOf("test.edu/gone/"+path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, identifier := range []string{"test.edu/gone", "test.edu/gone/data/b.bin", "test.edu/gone/data/d.txt"} {
		item := a.restored(identifier)
		if item.Status != "Failed" || item.ErrorCode != "copies-unreadable" || !item.NeedsAdminReview {
			t.Errorf("%s: %s (%s): %s", identifier, item.Status, item.ErrorCode, item.Note)
		}
		if identifier == "test.edu/gone" && (!strings.Contains(item.Note, "data/c.bin") || !strings.Contains(item.Note, "data/d.txt")) {
			t.Errorf("the note does not name all files: %s", item.Note)
		}
	}
	if keys := a.keys(a.restoreBucket()); len(keys) != 0 {
		t.Errorf("given back: %v", keys)
	}
	for what, b := range map[string]*storage.Bucket{"staging": a.deps.Staging, "the restoration bucket": a.restoreBucket()} {
		if open := a.uploads(b); len(open) != 0 {
			t.Errorf("uploads stay open in %s: %v", what, open)
		}
	}
}

// Where only an archived copy is good, that is made readable and used.
func TestLastGoodCopyIsHadFromTheArchive(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.ColdPoll = 50 * time.Millisecond
	a.ingested(aBag("thaw"))
	a.flip("Standard-VA", "test.edu/thaw/data/a.txt", 0)
	a.flip("Standard-VA", "test.edu/thaw/data/larger.bin", 3<<20)
	for _, identifier := range []string{"test.edu/thaw/data/a.txt", "test.edu/thaw"} {
		if item := a.restored(identifier); item.Status != "Success" {
			t.Fatalf("%s: %s: %s", identifier, item.Status, item.Note)
		}
	}
	if got := string(a.content(a.restoreBucket(), "test.edu/thaw/data/a.txt")); got != "hello" {
		t.Errorf("file = %q", got)
	}
}

// A restoration that broke off near its end goes on there: no more than a part of it
// is read and sent again.
func TestRestorationGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "long", Files: []bagtest.File{{Path: "data/a.txt", Content: "hello"}, {Path: "data/b.bin", Size: 120 << 20}}})
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	id := a.ask("test.edu/long")
	engine := a.engine()
	proxy.CutAfter(2 * 115 << 20) // it passes in and out
	a.request(engine, "Restore Object")
	if item := a.item(id); item.Status != "Pending" || item.Attempt != 0 {
		t.Fatalf("after the cut: %s, attempt %d: %s", item.Status, item.Attempt, item.Note)
	}
	proxy.Resume()
	before := proxy.Bytes()
	a.exec(`UPDATE work_items SET run_at = now()`)
	a.request(engine, "Restore Object")
	if item := a.item(id); item.Status != "Success" {
		t.Fatalf("then: %s: %s", item.Status, item.Note)
	}
	const part, rest = 16 << 20, 120<<20 - 115<<20
	if again := proxy.Bytes() - before; again > 2*(2*part+rest)+4<<20 {
		t.Errorf("%d bytes passed in the second attempt", again)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.content(a.restoreBucket(), "test.edu/long.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Fatalf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
	a.sameAsOnRecord(b, "test.edu/long")
}

// request takes the only item of an action that is due through its stage.
func (a *archive) request(e *claim.Engine, action registry.Action) {
	a.t.Helper()
	items, err := e.Claim(context.Background(), claim.Filter{Action: action, Stages: []claim.Want{{Stage: "Requested", Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		a.t.Fatalf("Claim(%s) = %d items, %v", action, len(items), err)
	}
	r, err := NewRunner(e, a.deps, Steps(a.deps), RunnerOptions{Log: a.deps.Log})
	if err != nil {
		a.t.Fatal(err)
	}
	r.one(context.Background(), items[0])
}

// A tar that is damaged in staging is found there, and never gets its name.
func TestDamagedTarIsNotPublished(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(aBag("damaged"))
	id := a.ask("test.edu/damaged")
	engine := a.engine()
	items, err := engine.Claim(context.Background(), claim.Filter{Action: "Restore Object", Stages: []claim.Want{{Stage: "Requested", Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	w := &work{item: items[0], hold: engine.Hold(context.Background(), items[0]), log: a.deps.Log}
	d := a.deps
	d.room = newRoom(0, 0)
	object, err := w.beforeRestoring(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	g := &giving{Deps: d, w: w}
	l, err := newLayout(context.Background(), g, object, w.item.Request.CreatedAt)
	if err != nil {
		t.Fatal(err)
	}
	s := stream{giving: g, partSize: partSizeOf(l.size), write: l.writeTar}
	r, err := s.from(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
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
		o, err := a.deps.Staging.Put(context.Background(), w.staged(stagedRestore), bytes.NewReader(content), storage.Upload{Size: int64(len(content))})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.judge(context.Background(), g, o); (err == nil) != (what == "nothing") {
			t.Errorf("%s is damaged: %v", what, err)
		}
	}
	if item := a.item(id); item.Status != "Started" {
		t.Errorf("item = %+v", item)
	}
}

// A file that has to be made readable is asked for, and counted, once, however often
// the part that it is in would be tried.
func TestArchivedCopyIsAskedForOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.ColdPoll = time.Hour
	a.ingested(aBag("once"))
	a.flip("Standard-VA", "test.edu/once/data/larger.bin", 5)
	id := a.ask("test.edu/once")
	a.request(a.engine(), "Restore Object")
	item := a.item(id)
	if item.Status != "Pending" || item.ErrorCode != "snoozed" || item.Attempt != 0 || !strings.Contains(item.Note, "data/larger.bin") {
		t.Errorf("item = %s (%s), attempt %d: %s", item.Status, item.ErrorCode, item.Attempt, item.Note)
	}
	blobs, err := a.deps.Progress.Blobs(context.Background(), id, fmt.Sprintf("Requested@%d", value[int64](a, `SELECT entered_token FROM work_items WHERE id = $1`, id)))
	thawed := 0
	for name := range blobs {
		if strings.HasPrefix(name, "thawed:") {
			thawed++
		}
	}
	asked := strings.Count(a.log.String(), "is being made readable first, which takes up to 5.0 hours")
	if err != nil || thawed != 1 || asked != 1 {
		t.Errorf("kept: %v, %v, asked %d times; want one file to be counted, and asked for once", blobs, err, asked)
	}
}

// Uploads to a restoration bucket that no restoration under way can own are aborted once
// they are old; those of others, and of what is being restored, are not.
func TestForgottenUploadsOfRestorationsAreAborted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "live"})
	b := a.restoreBucket()
	for _, key := range []string{"test.edu/gone.tar", "test.edu/gone/data/a.txt", "test.edu/live.tar", "somebody-elses"} {
		a.upload(b, key)
	}
	a.ask("test.edu/live")
	a.round()
	if open := a.uploads(b); len(open) != 4 {
		t.Errorf("left %v: too young", open)
	}
	j := a.janitor()
	j.OrphanAge = time.Nanosecond
	wait(t, 10*time.Second, "the uploads to be old enough", func() bool {
		if report, err := j.Round(t.Context()); err != nil || len(report.Unchecked) > 0 {
			t.Fatalf("Round = %+v, %v", report, err)
		}
		open := a.uploads(b)
		slices.Sort(open)
		return slices.Equal(open, []string{"somebody-elses", "test.edu/live.tar"})
	})
}
