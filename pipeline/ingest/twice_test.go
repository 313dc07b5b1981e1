package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// Whatever is read once and comes spoilt, from the receiving bucket or from staging, is
// read again by the stage that needs it. Nothing is sent back for it, and no attempt
// is lost.
func TestOneSpoiltAnswerSendsNothingBack(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"flip", "cut", "short"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.Deposit("sample.tar", a.Sample())
			w := a.Wired()
			engine := a.Engine()
			for _, step := range Steps(a.Deps) {
				a.InStaging()
				w.SpoilFirsts(how)
				a.One(engine, step.Stage)
				if hit := w.SpoilFirsts(""); hit == 0 && step.Stage != "Copy To Staging" && step.Stage != "Cleanup" {
					t.Errorf("nothing was read at %s", step.Stage)
				}
				if item := a.Item(id); item.Retry && item.Stage == step.Stage || pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome <> 'done'`) > 0 {
					t.Fatalf("after %s: %+v", step.Stage, item)
				}
			}
			a.Intact(id)
			a.asItWas(id, truth(t, a.Sample()))
		})
	}
}

// What keeps coming with other bytes is no reason to send anything back either: it is
// not known what is there.
func TestBytesThatDifferEachTimeAreNotBelieved(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	w := a.Wired()
	engine := a.Engine()
	a.UpTo(engine, "Store")
	for at := range int64(200) { // a different one each time
		w.Next(pipelinetest.Spoilt{Object: "sample.tar", At: 50_000 + 15_000*(at%10) + at, How: "flip", Times: 1})
	}
	a.One(engine, "Store")
	if item := a.Item(id); item.Stage != "Store" || item.Status != "Pending" || pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'sent back'`) > 0 {
		t.Errorf("item = %+v", item)
	}
}

// A copy that came spoilt once is not passed over when something is given back.
func TestCopyThatCameSpoiltOnceIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"flip", "cut", "short"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Ingested(pipelinetest.Large("once"))
			w := a.Wired()
			for _, identifier := range []string{"test.edu/once", "test.edu/once/data/a.txt", "test.edu/once/data/b.bin"} {
				w.SpoilFirsts(how)
				item := a.Restored(identifier)
				if hit := w.SpoilFirsts(""); item.Status != "Success" || hit == 0 {
					t.Errorf("%s, %d answers spoilt: %s: %s", identifier, hit, item.Status, item.Note)
				}
			}
			if log := fmt.Sprint(a.Log); strings.Contains(log, "a copy is of no use") {
				t.Error("a copy was passed over")
			}
		})
	}
}
