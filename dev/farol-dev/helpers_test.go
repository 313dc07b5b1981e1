package main

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A helper is ended ten seconds after it is asked to stop. Until then it must
// have given its items back, unless the user wants it otherwise.
func TestHelpersGiveItemsBackBeforeTheyAreEnded(t *testing.T) {
	for user, want := range map[string]string{"": "FAROL_GRACE=5s", "2s": "FAROL_GRACE=2s"} {
		t.Setenv("FAROL_GRACE", user)
		h := must.Get(newHelpers("farol", t.TempDir(), nil, slog.New(slog.DiscardHandler)))(t)
		last := ""
		for _, setting := range slices.Backward(h.env) { // the last one counts
			if name := "FAROL_GRACE="; len(setting) > len(name) && setting[:len(name)] == name {
				last = setting
				break
			}
		}
		if last != want {
			t.Errorf("with FAROL_GRACE=%q a helper gets %q, want %q", user, last, want)
		}
	}
}
