package cli

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

// A file is no terminal, and its lines are as long as they need.
func TestAFileIsNotCut(t *testing.T) {
	t.Setenv("COLUMNS", "")
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	note := strings.Repeat("long ", 100)
	if err := WriteNoted(f, []string{"ID", "NOTE"}, [][]string{{"1", note}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil || utf8.RuneCount(text) < 500 {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestColumnsLineUp(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := WriteTable(&b, []string{"ID", "NAME", "NOTE"}, [][]string{{"1", "Füße", strings.Repeat("long ", 100)}, {"200", "x", ""}})
	want := "ID   NAME  NOTE\n1    Füße  " + strings.TrimSpace(strings.Repeat("long ", 100)) + "\n200  x\n"
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}
