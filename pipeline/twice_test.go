package pipeline

import (
	"fmt"
	"strings"
	"testing"
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
			id := a.deposit("sample.tar", a.sample())
			w := a.wired()
			engine := a.engine()
			for _, step := range Ingest(a.deps) {
				w.spoilFirsts(how)
				a.one(engine, step.Stage)
				if hit := w.spoilFirsts(""); hit == 0 && step.Stage != "Cleanup" {
					t.Errorf("nothing was read at %s", step.Stage)
				}
				if item := a.item(id); item.Retry && item.Stage == step.Stage || value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome <> 'done'`) > 0 {
					t.Fatalf("after %s: %+v", step.Stage, item)
				}
			}
			a.intact(id)
			a.asItWas(id, truth(t, a.sample()))
		})
	}
}

// What keeps coming with other bytes is no reason to send anything back either: it is
// not known what is there.
func TestBytesThatDifferEachTimeAreNotBelieved(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	w := a.wired()
	engine := a.engine()
	a.upTo(engine, "Store")
	for key := range a.written(a.deps.Staging) {
		if strings.Contains(key, "/pack-") {
			for at := range int64(200) { // a different one each time
				w.next(spoilt{object: key, at: 5 + 15_000*(at%10) + at, how: "flip", times: 1})
			}
		}
	}
	a.one(engine, "Store")
	if item := a.item(id); item.Stage != "Store" || item.Status != "Pending" || value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'sent back'`) > 0 {
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
			a.ingested(large("once"))
			w := a.wired()
			for _, identifier := range []string{"test.edu/once", "test.edu/once/data/a.txt", "test.edu/once/data/b.bin"} {
				w.spoilFirsts(how)
				item := a.restored(identifier)
				if hit := w.spoilFirsts(""); item.Status != "Success" || hit == 0 {
					t.Errorf("%s, %d answers spoilt: %s: %s", identifier, hit, item.Status, item.Note)
				}
			}
			if log := fmt.Sprint(a.log); strings.Contains(log, "a copy is of no use") {
				t.Error("a copy was passed over")
			}
		})
	}
}
