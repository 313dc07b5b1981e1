package registry_test

import (
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// Fixity checks are paused by themselves or with all else, also those that a person
// asked for; what is being checked goes on.
func TestPausedFixityChecksAreNotClaimed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(3)
	for _, path := range []string{"0", "1", "2"} {
		a.checked(path, "Standard-VA", 91*day)
	}
	first := a.claims(fixity.Claim{Most: 1})
	paused := func(stage string) {
		t.Helper()
		list, err := a.Pause(t.Context(), registry.Stage(stage), "Upgrade")
		if err != nil || list[len(list)-1].Stage != registry.FixityStage || !list[len(list)-1].Paused {
			t.Fatalf("Pause(%q) = %+v, %v; want fixity checks among them", stage, list, err)
		}
		must.Get(fixity.In(a.Registry).Request(t.Context(), "test.edu/bag/data/2", "", false))(t)
		if got := names(a.claims(fixity.Claim{Most: 3})); got != "" {
			t.Errorf("while %q is paused %s is claimed", stage, got)
		}
		s, err := fixity.In(a.Registry).Status(t.Context(), fixity.StatusQuery{Days: 90, Tries: 5, Worst: 1})
		if err != nil || !s.Paused || s.PausedBy == nil || s.PauseReason == nil || *s.PauseReason != "Upgrade" || s.DoneAt != nil {
			t.Errorf("status = %+v, %v; want that it is paused and will never be done", s, err)
		}
	}
	paused("")
	kept, err := fixity.In(a.Registry).Keep(t.Context(), day, fixity.Hold{ID: first[0].ID, Token: first[0].Token})
	if err != nil || len(kept) != 1 {
		t.Errorf("KeepFixity = %v, %v; what runs goes on", kept, err)
	}
	must.Get(a.Resume(t.Context(), ""))(t)
	paused(string(registry.FixityStage))
	must.Get(a.Resume(t.Context(), registry.FixityStage))(t)
	if got := names(a.claims(fixity.Claim{Most: 1})); got != "2 VA" {
		t.Errorf("afterwards %s is claimed, want what was asked for", got)
	}
	if _, err := a.Pause(t.Context(), "fixity check", ""); err == nil {
		t.Error("a name that is not written right was taken")
	}
}
