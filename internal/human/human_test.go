package human

import (
	"testing"
	"time"
)

func TestFiguresAreForPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"},
		{Bytes(1023), "1023 B"},
		{Bytes(1 << 10), "1.0 KiB"},
		{Bytes(1000 << 10), "1.0 MiB"},
		{Bytes(5 << 40), "5.0 TiB"},
		{Bytes(1<<63 - 1), "8.0 EiB"},
		{Duration(-time.Second), "0s"},
		{Duration(59*time.Second + 999*time.Millisecond), "59s"},
		{Duration(61 * time.Second), "1m01s"},
		{Duration(90 * time.Minute), "1h30m"},
		{Duration(50 * time.Hour), "2d02h"},
		{Count(1, "file", "files"), "1 file"},
		{Count(int64(0), "file", "files"), "0 files"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// A terminal obeys what depositors write, unless it is cleaned first.
func TestNamesCannotCommandATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Füße 漢字.tar":   "Füße 漢字.tar",
		"\x1b[2Jgone":   `\x1b[2Jgone`,
		"a\tb\nc\rd":    `a\tb\nc\rd`,
		"\u202egnp.exe": `\u202egnp.exe`,
		"\u009b31m":     `\u009b31m`,
		"\xff":          "\ufffd",
	} {
		if got := Line(in); got != want {
			t.Errorf("plain(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"lease", "laese", 2}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
