package ingest

import (
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
)

// What is odd of a valid bag stays with its item to the end, and on record.
func TestWarningsStayWithTheItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	tar := a.Bag(bagtest.Spec{Tags: []bagtest.Tag{{File: "bagit.txt", Name: "Third", Value: "tag"}}, Unlisted: []bagtest.File{{Path: "a/B", Content: "1"}, {Path: "a/b", Content: "2"}}})
	verdict := truth(t, tar).Validate(nil)
	if !verdict.Valid || len(verdict.Warnings) != 2 {
		t.Fatalf("verdict = %+v", verdict)
	}
	id := a.Deposit("odd.tar", tar)
	engine := a.Engine()
	a.UpTo(engine, "Reingest Check")
	want := "2 warnings: " + verdict.Warnings[0].Message + " | " + verdict.Warnings[1].Message
	if note := a.Item(id).Note; note != "Bag is valid. "+want {
		t.Errorf("the note of Validate is %q", note)
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" || item.Note != "Finished cleanup. Ingest complete. "+want {
		t.Errorf("%s: %s", item.Status, item.Note)
	}
	attempts := must.Get(a.Deps.Registry.Attempts(t.Context(), id))(t)
	if got := registry.RemarkOf(attempts); got != want {
		t.Errorf("in the ledger: %q", got)
	}
	if info := pipelinetest.Value[string](a, `SELECT outcome_information FROM premis_events WHERE event_type = 'validation'`); info != "Bag is valid. "+want {
		t.Errorf("the event says %q", info)
	}
}

// The warnings of a bag that is refused are kept beside its errors.
func TestWarningsOfARefusedBagAreKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("bad.tar", a.Bag(bagtest.Spec{
		Tags: []bagtest.Tag{{File: "bagit.txt", Name: "Third", Value: "tag"}}, Leave: []string{"data/hello.txt"},
	}))
	engine := a.Engine()
	a.One(engine, "Receive")
	a.One(engine, "Validate")
	f := a.Faults(id)
	if len(f.List) != 2 || len(f.Warnings) != 1 || f.Warnings[0].Code != "bagit-txt-extra" || strings.Contains(a.Item(id).Note, "Third") {
		t.Errorf("kept: %+v", f)
	}
}
