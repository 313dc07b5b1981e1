package claim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// An item whose lists do not fit into a worker's memory goes back without an attempt,
// and only to a worker that has as much. If there is none it is parked, with the need
// named, and a requeue has it done when there is one.
func TestItemWaitsForAWorkerThatHasTheMemory(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	worker := func(memory string) *claim.Engine {
		e := q.engine()
		e.Describe([]byte(`[{"name": "p", "stages": ["Receive"], "actions": ["Ingest"], "slots": 1, "memory": ` + memory + `}]`))
		must.Do(t, e.Beat(context.Background()))
		return e
	}
	takes := func(e *claim.Engine, memory int64) []claim.Item {
		f := at("Receive", 1)
		f.Memory = memory
		return must.Get(e.Claim(context.Background(), f, 1))(t)
	}
	small := worker("104857600")
	for _, item := range takes(small, 100*mib) {
		q.settle(small.Hold(context.Background(), item), claim.Done{}, claim.NeedMemory(300*mib))
	}
	if r := q.row(id); r.Status != "Pending" || r.Attempt != 0 || !r.Due || r.Code != "memory-need" {
		t.Fatalf("given back, it is %+v", r)
	}
	if got := takes(small, 100*mib); len(got) != 0 {
		t.Error("a worker took what it has too little memory for")
	}
	const want = "o live worker has the memory: it needs 300 MiB, the largest has 100 MiB"
	if why := value[string](q, `SELECT detail FROM why_not($1) WHERE reason = 'memory'`, id); !strings.Contains(why, want) {
		t.Errorf("why_not says %q", why)
	}
	tidy := func() {
		t.Helper()
		must.Do(t, small.Tidy(context.Background()))
	}
	tidy() // too early
	if r := q.row(id); r.Status != "Pending" {
		t.Fatalf("parked at once: %+v", r)
	}
	q.exec(`UPDATE work_items SET updated_at = now() - interval '2 minutes'`)
	tidy()
	if r := q.row(id); r.Status != "Suspended" || r.Code != "memory-need" || !strings.Contains(r.Note, want) {
		t.Fatalf("with no worker that has the memory it is %+v", r)
	}
	large := worker("419430400")
	q.exec(`SELECT requeue($1)`, id)
	q.exec(`UPDATE work_items SET updated_at = now() - interval '2 minutes'`)
	tidy()
	if got := takes(large, 400*mib); len(got) != 1 {
		t.Errorf("a worker that has the memory took %d items", len(got))
	}
}
