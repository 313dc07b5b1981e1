package main

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// However wide the cells and however narrow the line, no line is too long, no row is
// lost, and columns keep the width of their header.
func TestNarrowColumnsFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := []string{"ID", "NAME", "STAGE"}
		cells := rapid.SliceOfN(rapid.StringMatching(`[a-zü]{0,60}`), 3, 3).Draw(t, "cells")
		most := rapid.IntRange(15, 120).Draw(t, "most")
		widths := widthsOf([][]string{header, cells})
		narrow(widths, header, most)
		for i, w := range widths {
			if w < len(header[i]) {
				t.Errorf("column %d is %d wide", i, w)
			}
		}
		if total(widths)+4 > most {
			t.Errorf("%v do not fit into %d", widths, most)
		}
	})
}

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

// A file is no terminal, and its lines are as long as they need.
func TestAFileIsNotCut(t *testing.T) {
	t.Setenv("COLUMNS", "")
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	note := strings.Repeat("long ", 100)
	if err := writeNoted(f, []string{"ID", "NOTE"}, [][]string{{"1", note}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil || utf8.RuneCount(text) < 500 {
		t.Errorf("%v\n%s", err, text)
	}
}
