package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// keeps has the interim metadata kept from now on.
func (a *archive) keeps() {
	a.t.Helper()
	a.deps.Kept = a.created(a.s3.Prefix + "kept")
}

// keptLines are the lines that are kept of an item; none if nothing is.
func (a *archive) keptLines(id int64) (lines []string) {
	a.t.Helper()
	content, err := a.tryContent(a.deps.Kept, KeptKey(id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		a.t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		a.t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(z); err != nil {
		a.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// keptWhole fails the test unless all of the sample is kept, with verified copies.
func (a *archive) keptWhole(id int64) {
	a.t.Helper()
	lines := a.keptLines(id)
	if len(lines) < sampleFiles+2 {
		a.t.Fatalf("%d lines are kept", len(lines))
	}
	var h keptHeader
	if err := json.Unmarshal([]byte(lines[0]), &h); err != nil || h.Item.ID != id || h.Item.Stage != "Cleanup" || len(h.Missing) != 0 || len(h.Bag.Tags) == 0 {
		a.t.Errorf("header %s, %v", lines[0], err)
	}
	for _, line := range lines[1 : len(lines)-1] {
		var f ItemFile
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			a.t.Fatal(err)
		}
		switch f.State {
		case "packaging":
		case "added":
			if len(f.Copies) != 2 || f.Copies[1].VerifiedAt == nil || f.Format == "" || len(f.Digests["sha512"]) != 128 {
				a.t.Errorf("kept: %s", line)
			}
		default:
			a.t.Errorf("kept: %s", line)
		}
	}
	k, err := a.deps.KeptOf(context.Background(), id)
	if err != nil {
		a.t.Fatal(err)
	}
	defer k.Close() //nolint:errcheck // it was read
	if list, err := (FilePage{Limit: 100, State: "added"}).Of(k.Files()); err != nil || len(list) != sampleFiles {
		a.t.Errorf("%d files are read back, %v", len(list), err)
	}
}

// Cleanup keeps what is known of a bag where that is wanted, and leaves nothing of it in
// Redis and staging either way.
func TestInterimMetadataIsKeptOrNot(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		a := newArchive(t)
		if keeps {
			a.keeps()
		}
		id := a.deposit("sample.tar", a.sample())
		a.work()
		a.intact(id)
		if keys, left := a.redisKeys(), a.keys(a.deps.Staging); len(keys)+len(left) != 0 {
			t.Errorf("left: %q, %q", keys, left)
		}
		if keeps {
			a.keptWhole(id)
		}
	}
}

// A worker that dies between keeping and deleting loses nothing, and the next keeps
// nothing twice: what it finds may be only a part.
func TestCleanupMayDieWhileItKeeps(t *testing.T) {
	t.Parallel()
	kept, deleting := func(r *http.Request) bool { return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".gz") },
		func(r *http.Request) bool {
			return (r.Method == http.MethodPost || r.Method == http.MethodDelete) && strings.Contains(r.URL.Path, "staging")
		}
	for when, dies := range map[string]func(*http.Request) bool{"when it is kept": kept, "when something is deleted": deleting} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.keeps()
			id := a.deposit("sample.tar", a.sample())
			engine := a.engine()
			a.upTo(engine, "Cleanup")
			direct := a.deps
			way := a.wired()
			ctx, die := context.WithCancel(context.Background())
			defer die()
			way.answers = func(r *http.Response) {
				if dies(r.Request) {
					die()
				}
			}
			w := a.hold(engine, "Cleanup")
			if err := (&cleanup{a.deps}).Run(ctx, w); err == nil || ctx.Err() == nil {
				t.Fatalf("Cleanup = %v, and nobody died", err)
			}
			if len(a.redisKeys()) == 0 {
				t.Error("Redis was emptied first")
			}
			if err := w.hold.Settle(context.Background(), w.done(""), errors.New("it died")); err != nil {
				t.Fatal(err)
			}
			a.exec(`UPDATE work_items SET run_at = now()`)
			way.mu.Lock()
			way.answers = nil
			way.mu.Unlock()
			a.work()
			a.deps = direct
			a.intact(id)
			a.keptWhole(id)
			if n := way.count("PUT", "/items/1.jsonl.gz"); n != 1 {
				t.Errorf("it was kept %d times", n)
			}
			if left := a.redisKeys(); len(left) != 0 {
				t.Errorf("left in Redis: %q", left)
			}
		})
	}
}

// A bucket that fails holds Cleanup back and costs no attempt. Until it works again,
// nothing is deleted.
func TestFailingBucketForInterimMetadataHoldsCleanup(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.Kept = a.bucket(a.s3.Prefix + "kept") // there is none
	id := a.deposit("sample.tar", a.sample())
	stop := a.start()
	defer stop()
	testenv.Eventually(t, "the service to be failing", func() bool {
		return value[bool](a, `SELECT EXISTS (SELECT FROM services WHERE service LIKE '%kept' AND state <> 'ok')`)
	})
	if item := a.item(id); item.Stage != "Cleanup" || item.Status != "Pending" && item.Status != "Started" {
		t.Errorf("item = %+v", item)
	}
	if !slices.Contains(a.keys(a.deps.Staging), "1/"+inventoryName) {
		t.Error("the inventory is gone, and was not kept")
	}
	a.created(a.deps.Kept.Name())
	a.atRest()
	a.unharmed(1)
	a.keptWhole(id)
}

// What the janitor removes of a failed item is kept first, once; while that cannot be,
// it stays. Looking keeps nothing.
func TestJanitorKeepsFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.Kept = a.bucket(a.s3.Prefix + "kept")
	id := a.halfStored("failed", a.engine())
	cancelled := a.deposit("called off.tar", a.bag(bagtest.Spec{Name: "called off"}))
	a.fails(id, "Failed", "invalid-bag", 20)
	before := [][]string{a.keys(a.deps.Staging), a.redisKeys()}
	if report, err := a.janitor().Round(t.Context()); err != nil || len(report.Unchecked) == 0 {
		t.Fatalf("Round = %+v, %v", report, err)
	}
	slices.Sort(before[1])
	after := a.redisKeys()
	slices.Sort(after)
	if diff := cmp.Diff(before, [][]string{a.keys(a.deps.Staging), after}); diff != "" {
		t.Errorf("removed, and not kept (-before +after):\n%s", diff)
	}
	a.created(a.deps.Kept.Name())
	a.janitor().Look(t.Context())
	if lines := a.keptLines(id); lines != nil {
		t.Errorf("looking kept %d lines", len(lines))
	}
	if _, err := a.deps.Registry.Cancel(t.Context(), cancelled, ""); err != nil {
		t.Fatal(err)
	}
	a.round()
	lines := a.keptLines(id)
	if len(a.keys(a.deps.Staging))+len(a.redisKeys()) != 0 || len(lines) < 3+2 {
		t.Errorf("left %q, %q; kept %q", a.keys(a.deps.Staging), a.redisKeys(), lines)
	}
	if !strings.Contains(lines[0], `"status":"Failed"`) || !strings.Contains(strings.Join(lines, "\n"), `"state":"copied"`) {
		t.Errorf("kept: %q", lines)
	}
	a.round()
	if diff := cmp.Diff(lines, a.keptLines(id)); diff != "" {
		t.Errorf("the next round kept something else (-first +second):\n%s", diff)
	}
}

// Credentials that a service put into its words are not kept.
func TestKeptMetadataHasNoSecrets(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.keeps()
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Store")
	w := a.hold(engine, "Store")
	said := "PUT https://user:hunter2@s3.example/x?X-Amz-Signature=hunter2"
	err := errors.Join(
		a.deps.Progress.Put(t.Context(), w.claim(), w.passOf(), "upload:x:1", "hunter2"),
		a.deps.Progress.Fail(t.Context(), w.claim(), progress.Faults{List: []progress.Fault{{Code: "storage-denied", Path: "data/a.bin", Message: said}}}),
		w.hold.Settle(t.Context(), w.done(""), claim.Cancel("bag-changed", said)),
	)
	if err != nil {
		t.Fatal(err)
	}
	a.round()
	text := strings.Join(a.keptLines(id), "\n")
	if !strings.Contains(text, "s3.example") || strings.Contains(text, "hunter2") {
		t.Errorf("kept: %.2000s", text)
	}
}
