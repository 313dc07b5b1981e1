package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// An item whose bag was found invalid begins at Receive when it is requeued, however
// that is asked for: what Validate judged may not be what the bag has.
func TestInvalidBagIsReadAgainWhenItIsRequeued(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	engine := a.Engine()
	invalid := func(name string) int64 {
		t.Helper()
		id := a.Deposit(name+".tar", a.motley(name))
		a.One(engine, "Receive")
		a.changeInventory(id, func(b *bag.Bag) {
			f := b.Files[1]
			f.Agreed, f.Others = 0, f.Expected()
			f.Digests.SHA256[0] ^= 1
		})
		a.One(engine, "Validate")
		if item := a.Item(id); item.Status != "Failed" || item.ErrorCode != "invalid-bag" {
			t.Fatalf("item = %+v", item)
		}
		return id
	}
	for i, way := range []string{
		`SELECT requeue(%d)`,
		`SELECT requeue(%d, 'Validate')`,
		`SELECT requeue(%d, 'Receive')`,
		`SELECT * FROM requeue_where('id = %d', dry_run => false)`,
		`SELECT * FROM requeue_where('id = %d', 'Validate', false)`,
		`UPDATE work_items SET status = 'Pending' WHERE id = %d`,
		`UPDATE work_items SET status = 'Pending', stage = 'Validate' WHERE id = %d`,
		`UPDATE work_items SET status = 'Suspended' WHERE id = %[1]d; SELECT requeue(%[1]d)`,
		`SELECT plan_apply((plan_make('requeue', 'id = %d', 'Validate')).id)`,
	} {
		id := invalid(fmt.Sprintf("bag-%02d", i))
		a.Exec(fmt.Sprintf(way, id))
		if item := a.Item(id); item.Status != "Pending" || item.Stage != "Receive" || !strings.Contains(item.Note, "Receive") && item.Note != "" {
			t.Errorf("%s: item is %s at %s: %s", way, item.Status, item.Stage, item.Note)
		}
		a.Work()
		if item := a.Item(id); item.Status != "Success" {
			t.Errorf("%s: item = %+v", way, item)
		}
	}

	id := invalid("preview")
	for _, stage := range []string{`NULL`, `'Validate'`} {
		said := pipelinetest.Value[string](a, fmt.Sprintf(`SELECT string_agg(reason, '; ') FROM requeue_where('id = %d', %s)`, id, stage))
		if !strings.Contains(said, "Failed at Validate, to Receive: the bag is read again") {
			t.Errorf("the preview of a requeue to %s says %q", stage, said)
		}
		a.Exec(fmt.Sprintf(`SELECT plan_make('requeue', 'id = %d', %s)`, id, stage))
		if said := pipelinetest.Value[string](a, `SELECT detail FROM plan_items ORDER BY plan_id DESC LIMIT 1`); said != "to Receive: the bag is read again" {
			t.Errorf("a plan to %s says %q", stage, said)
		}
	}
	if _, err := a.Deps.Registry.Requeue(t.Context(), id, "Store"); err == nil {
		t.Error("it was requeued to a stage that it has not come to")
	}

	// Once it was read again, the verdict before is of no account.
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.One(engine, "Receive")
	a.One(engine, "Validate")
	a.One(engine, "Reingest Check")
	a.Exec(fmt.Sprintf(`SELECT requeue(%d, 'Validate')`, id))
	if item := a.Item(id); item.Stage != "Validate" {
		t.Errorf("item is at %s", item.Stage)
	}
}
