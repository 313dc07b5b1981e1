package registry_test

import (
	"slices"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/registry"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"It has  two spaces, ü and 😀.":  "It has  two spaces, ü and 😀.",
		"one\ntwo\r\n\tthree\n":         "one two three",
		"\x1b[31mred\x00":               "[31mred",
		"a\u009bb\u202ec\u2066d\u2028e": "a b c d e",
		"bad \xff byte":                 "bad \uFFFD byte",
	} {
		if got := registry.CleanText(text); got != want {
			t.Errorf("CleanText(%q) = %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := registry.CleanText(rapid.String().Draw(t, "text"))
		for _, r := range got {
			if unicode.IsControl(r) {
				t.Fatalf("%q has a control character", got)
			}
		}
		if again := registry.CleanText(got); again != got {
			t.Fatalf("%q becomes %q", got, again)
		}
	})
}

// A name that a depositor chose must be no formula in the spreadsheet of who reads a table.
func TestCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	in := []string{"", "test.edu/bag", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a=1", "'=1", "漢"}
	want := []string{"", "test.edu/bag", "'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'\r=1", "a=1", "'=1", "漢"}
	if got := registry.HarmlessCells(in); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
