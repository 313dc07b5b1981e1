package pipeline_test

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// An item may lose its worker any number of times while its attempts make progress. If
// they do not, it is parked after the attempts that its stage has. If Redis has lost its
// data, the attempt counts.
func TestAttemptsThatMakeProgressDoNotCount(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "marks")
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	attempt := func(before ...int64) {
		t.Helper()
		w := a.Hold(engine, "Receive")
		m := pipeline.NewHighWater(w, a.Deps.Registry)
		for _, n := range before {
			m.Compare(t.Context(), n)
		}
		must.Do(t, w.Hold.Settle(t.Context(), claim.Done{}, errors.New("trouble")))
		a.Exec(`UPDATE work_items SET run_at = now() WHERE run_at > now() AND retry`)
	}
	expect := func(status registry.Status, count int) {
		t.Helper()
		if item := a.Item(id); item.Status != status || item.Attempt != count {
			t.Fatalf("item is %s with %d attempts, want %s with %d", item.Status, item.Attempt, status, count)
		}
	}
	attempt(0)
	expect("Pending", 1)
	for n := range int64(5) {
		attempt(10 * (n + 1))
		expect("Pending", 1)
	}
	attempt(50) // as far as the one before
	expect("Pending", 2)
	attempt(50, 60) // parts of a large file are found later
	expect("Pending", 1)
	attempt(40) // what was lost in the meantime is no progress when it is made again
	expect("Pending", 2)
	must.Do(t, client.FlushDB(t.Context()).Err())
	attempt(5)
	expect("Suspended", 3)
}

// A worker that has lost the item resets no attempts, nor does a first attempt.
func TestOnlyTheClaimResetsAttempts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	resets := func(token int64, want bool) {
		t.Helper()
		before := a.Item(id).Attempt
		reset, err := a.Deps.Registry.ResetAttempts(t.Context(), id, token)
		if reset != want || err != nil {
			t.Errorf("claim %d: reset %v, %v, want %v", token, reset, err, want)
		}
		if after := a.Item(id).Attempt; !want && after != before || want && after != 1 {
			t.Errorf("claim %d: attempt %d became %d", token, before, after)
		}
	}
	first := a.Hold(engine, "Receive")
	resets(first.Item.Token, false)
	must.Do(t, first.Hold.Settle(t.Context(), claim.Done{}, errors.New("trouble")))
	a.Exec(`UPDATE work_items SET run_at = now() WHERE run_at > now() AND retry`)
	second := a.Hold(engine, "Receive")
	resets(first.Item.Token, false)
	resets(second.Item.Token+1, false)
	resets(second.Item.Token, true)
	resets(second.Item.Token, false)
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM attempt_resets`); n != 1 {
		t.Errorf("%d are on record, want 1", n)
	}
}
