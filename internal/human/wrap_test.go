package human

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// No word is lost, and no line is longer than the terminal but for a single long word.
func TestLinesAreBrokenBetweenWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zü.]{1,12}`), 1, 30).Draw(t, "words")
		most := rapid.IntRange(1, 60).Draw(t, "most")
		lines := Wrap(strings.Join(words, " "), most)
		if got := strings.Fields(strings.Join(lines, " ")); strings.Join(got, " ") != strings.Join(words, " ") {
			t.Errorf("%v became %v", words, got)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > most && strings.Contains(line, " ") {
				t.Errorf("%q is longer than %d", line, most)
			}
		}
	})
}
