package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
)

// keptWhole fails the test unless all of the sample is kept, with verified copies.
func (a *archive) keptWhole(id int64) {
	a.T.Helper()
	lines := a.KeptLines(id)
	if len(lines) < pipelinetest.SampleFiles+2 {
		a.T.Fatalf("%d lines are kept", len(lines))
	}
	var h struct {
		Item struct {
			ID    int64  `json:"id"`
			Stage string `json:"stage"`
		} `json:"item"`
		Bag struct {
			Tags []bag.Tag `json:"tags"`
		} `json:"bag"`
		Missing []string `json:"missing"`
	}
	if err := json.Unmarshal([]byte(lines[0]), &h); err != nil || h.Item.ID != id || h.Item.Stage != "Cleanup" || len(h.Missing) != 0 || len(h.Bag.Tags) == 0 {
		a.T.Errorf("header %s, %v", lines[0], err)
	}
	for _, line := range lines[1 : len(lines)-1] {
		var f interim.File
		must.Do(a.T, json.Unmarshal([]byte(line), &f))
		switch f.State {
		case "packaging":
		case "added":
			if len(f.Copies) != 2 || f.Copies[1].VerifiedAt == nil || f.Format == "" || len(f.Digests["sha512"]) != 128 {
				a.T.Errorf("kept: %s", line)
			}
		default:
			a.T.Errorf("kept: %s", line)
		}
	}
	k := must.Get(interim.Open(context.Background(), a.Deps.Kept, id))(a.T)
	defer k.Close() //nolint:errcheck // it was read
	if list, err := (interim.Page{Limit: 100, State: "added"}).Of(k.Files()); err != nil || len(list) != pipelinetest.SampleFiles {
		a.T.Errorf("%d files are read back, %v", len(list), err)
	}
}

// Cleanup keeps what is known of a bag where that is wanted, and leaves nothing of it in
// Redis and staging either way.
func TestInterimMetadataIsKeptOrNot(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		a := newArchive(t)
		if keeps {
			a.Keeps()
		}
		id := a.Deposit("sample.tar", a.Sample())
		a.Work()
		a.Intact(id)
		if keys, left := a.RedisKeys(), a.Keys(a.Deps.Staging); len(keys)+len(left) != 0 {
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
			a.Keeps()
			id := a.Deposit("sample.tar", a.Sample())
			engine := a.Engine()
			a.UpTo(engine, "Cleanup")
			a.InStaging()
			direct := a.Deps
			way := a.Wired()
			ctx, die := context.WithCancel(context.Background())
			defer die()
			way.Answers = func(r *http.Response) {
				if dies(r.Request) {
					die()
				}
			}
			w := a.Hold(engine, "Cleanup")
			if err := a.Stage("Cleanup").Run(ctx, w); err == nil || ctx.Err() == nil {
				t.Fatalf("Cleanup = %v, and was not stopped", err)
			}
			if len(a.RedisKeys()) == 0 {
				t.Error("Redis was emptied first")
			}
			must.Do(t, w.Hold.Settle(context.Background(), claim.Done{}, errors.New("it died")))
			a.Exec(`UPDATE work_items SET run_at = now()`)
			way.Mu.Lock()
			way.Answers = nil
			way.Mu.Unlock()
			a.Work()
			a.Deps = direct
			a.Intact(id)
			a.keptWhole(id)
			if n := way.Count("PUT", "/items/1.jsonl.gz"); n != 1 {
				t.Errorf("it was kept %d times", n)
			}
			if left := a.RedisKeys(); len(left) != 0 {
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
	a.Deps.Kept = a.Bucket(a.S3.Prefix + "kept") // there is none
	id := a.Deposit("sample.tar", a.Sample())
	stop := a.Start()
	defer stop()
	testenv.Eventually(t, "the service to be failing", func() bool {
		return pipelinetest.Value[bool](a, `SELECT EXISTS (SELECT FROM services WHERE service LIKE '%kept' AND state <> 'ok')`)
	})
	if item := a.Item(id); item.Stage != "Cleanup" || item.Status != "Pending" && item.Status != "Started" {
		t.Errorf("item = %+v", item)
	}
	if !pipelinetest.Value[bool](a, `SELECT EXISTS (SELECT FROM work_item_lists WHERE name = '`+lists.InventoryName+`')`) {
		t.Error("the inventory is gone, and was not kept")
	}
	a.Created(a.Deps.Kept.Name())
	a.AtRest()
	a.Unharmed(1)
	a.keptWhole(id)
}

// What the janitor removes of a failed item is kept first, once; while that cannot be,
// it stays. Looking keeps nothing.
func TestJanitorKeepsFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.Kept = a.Bucket(a.S3.Prefix + "kept")
	id := a.halfStored("failed", a.Engine())
	cancelled := a.Deposit("called off.tar", a.Bag(bagtest.Spec{Name: "called off"}))
	a.Fails(id, "Failed", "invalid-bag", 20)
	before := [][]string{a.Keys(a.Deps.Staging), a.RedisKeys()}
	if report, err := a.janitor().Round(t.Context()); err != nil || len(report.Unchecked) == 0 {
		t.Fatalf("Round = %+v, %v", report, err)
	}
	slices.Sort(before[1])
	after := a.RedisKeys()
	slices.Sort(after)
	if diff := cmp.Diff(before, [][]string{a.Keys(a.Deps.Staging), after}); diff != "" {
		t.Errorf("removed, and not kept (-before +after):\n%s", diff)
	}
	a.Created(a.Deps.Kept.Name())
	a.janitor().Look(t.Context())
	if lines := a.KeptLines(id); lines != nil {
		t.Errorf("looking kept %d lines", len(lines))
	}
	must.Get(a.Deps.Registry.Cancel(t.Context(), cancelled, ""))(t)
	a.round()
	lines := a.KeptLines(id)
	if len(a.Keys(a.Deps.Staging))+len(a.RedisKeys()) != 0 || len(lines) < 3+2 {
		t.Errorf("left %q, %q; kept %q", a.Keys(a.Deps.Staging), a.RedisKeys(), lines)
	}
	if !strings.Contains(lines[0], `"status":"Failed"`) || !strings.Contains(strings.Join(lines, "\n"), `"state":"copied"`) {
		t.Errorf("kept: %q", lines)
	}
	a.round()
	if diff := cmp.Diff(lines, a.KeptLines(id)); diff != "" {
		t.Errorf("the next round kept something else (-first +second):\n%s", diff)
	}
}

// Credentials that a service put into its words are not kept.
func TestKeptMetadataHasNoSecrets(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Keeps()
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Store")
	w := a.Hold(engine, "Store")
	said := "PUT https://user:hunter2@s3.example/x?X-Amz-Signature=hunter2"
	must.Do(t, errors.Join(
		a.Deps.Progress.Put(t.Context(), w.Claim(), w.Pass(), "upload:x:1", "hunter2"),
		a.Deps.Progress.Fail(t.Context(), w.Claim(), progress.Faults{List: []progress.Fault{{Code: "storage-denied", Path: "data/a.bin", Message: said}}}),
		w.Hold.Settle(t.Context(), claim.Done{}, claim.Cancel("bag-changed", said)),
	))
	a.round()
	text := strings.Join(a.KeptLines(id), "\n")
	if !strings.Contains(text, "s3.example") || strings.Contains(text, "hunter2") {
		t.Errorf("kept: %.2000s", text)
	}
}
