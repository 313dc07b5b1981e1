package words_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/farol-preservation/farol/web/console/words"
)

// FuzzTexts: what a page shows of a text of others has no character that is not seen or turns
// the line around, and a name that is cut keeps its ends and fits.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"plain", "a\u202eb", "\x00\x1b[31m", "\xff\xfe", strings.Repeat("ä", 500), "a\u00a0b", "\U000e0041", "line\nline", "", "<script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := words.Text(s)
		for _, r := range out {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Zs, r) && r != ' ' || r == utf8.RuneError) {
				t.Fatalf("%q is shown with %U", s, r)
			}
		}
		visible := utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' || r == utf8.RuneError }) < 0
		if visible && out != s {
			t.Fatalf("%q is shown as %q", s, out)
		}
		c := words.Cut(s)
		short, whole := c.Short(), c.Whole
		if whole != out {
			t.Fatalf("the whole of %q is %q", s, whole)
		}
		if n := utf8.RuneCountInString(short); n > 65 {
			t.Fatalf("%d characters are shown of %q", n, s)
		}
		if head, tail, cut := strings.Cut(short, "…"); cut && utf8.RuneCountInString(whole) > 64 && (!strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail)) {
			t.Fatalf("%q is no part of %q", short, whole)
		}
	})
}

func TestFiguresOfPages(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 12345: "12,345"} {
		if got := words.Number(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestIntervalsInWords(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][2]time.Duration{
		"9 to 20 min": {9 * time.Minute, 20 * time.Minute}, "50 min to 2 hours": {50 * time.Minute, 2 * time.Hour}, "3 hours": {3 * time.Hour, 3*time.Hour + time.Minute},
		"0 s to 4 min": {-time.Minute, 4 * time.Minute}, "a moment": {-time.Hour, -time.Minute}, "1 hour to 2 hours": {time.Hour, 2 * time.Hour},
	} {
		if got := words.Within(of[0], of[1]); got != want {
			t.Errorf("%v to %v is %q, want %q", of[0], of[1], got, want)
		}
	}
}
