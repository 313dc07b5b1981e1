package main

import (
	"testing"
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
		if got := firstFinding(note); got != want {
			t.Errorf("%q: %q, want %q", note, got, want)
		}
	}
}
