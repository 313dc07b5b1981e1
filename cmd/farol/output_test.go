package main

import (
	"strings"
	"testing"
	"time"
)

func TestFiguresAreForPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{sizeOf(0), "0 B"},
		{sizeOf(1023), "1023 B"},
		{sizeOf(1 << 10), "1.0 KiB"},
		{sizeOf(1000 << 10), "1.0 MiB"},
		{sizeOf(5 << 40), "5.0 TiB"},
		{sizeOf(1<<63 - 1), "8.0 EiB"},
		{spanOf(-time.Second), "0s"},
		{spanOf(59*time.Second + 999*time.Millisecond), "59s"},
		{spanOf(61 * time.Second), "1m01s"},
		{spanOf(90 * time.Minute), "1h30m"},
		{spanOf(50 * time.Hour), "2d02h"},
		{count(1, "file", "files"), "1 file"},
		{count(int64(0), "file", "files"), "0 files"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// A terminal obeys what depositors write, unless somebody looks at it first.
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
		if got := plain(in); got != want {
			t.Errorf("plain(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestColumnsLineUp(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := writeTable(&b, []string{"ID", "NAME", "NOTE"}, [][]string{{"1", "Füße", strings.Repeat("long ", 100)}, {"200", "x", ""}})
	want := "ID   NAME  NOTE\n1    Füße  " + strings.TrimSpace(strings.Repeat("long ", 100)) + "\n200  x\n"
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}
