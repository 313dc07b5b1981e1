package registry_test

import (
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
