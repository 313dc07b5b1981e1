package explain

import (
	"slices"
	"testing"

	"github.com/farol-preservation/farol/record"
)

func TestFirstFinding(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{
		"":                                 "",
		"Bag is in receiving bucket":       "Bag is in receiving bucket",
		"a | b":                            "a (+1 more)",
		"a\nb\n\nc | d":                    "a (+3 more)",
		"\n a \n":                          "a",
		"a | b | Too many errors: 9 more.": "a (+10 more)",
	} {
		if got := FirstFinding(note); got != want {
			t.Errorf("%q: %q, want %q", note, got, want)
		}
	}
}

// The warnings are those of the last time that the bag was found valid.
func TestWarningsAreFoundInTheLedger(t *testing.T) {
	t.Parallel()
	done, failed := "done", "transient"
	attempts := []record.Attempt{
		{Stage: "Validate", Outcome: &done, Error: "1 warnings: old"},
		{Stage: "Validate", Outcome: &done, Error: "2 warnings: a: b | c"},
		{Stage: "Validate", Outcome: &failed, Error: "x: y"},
		{Stage: "Store", Outcome: &done},
	}
	for n, want := range map[int][]string{0: {}, 1: {"old"}, 2: {"a: b", "c"}, 4: {"a: b", "c"}} {
		if got := warningsOf(attempts[:n]); !slices.Equal(got, want) {
			t.Errorf("%d attempts: %q, want %q", n, got, want)
		}
	}
}
