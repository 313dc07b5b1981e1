package bag_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func TestNamesThatNoBagCanHave(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		".tar", "..tar", "...tar", "~.tar", "a\x00.tar", "a\n.tar", "\r.tar", "a\x1b[31m.tar", "a\x7f.tar", "a\u0085.tar", "\u009b.tar",
		"a/b.tar", "/a.tar", `a\b.tar`, `..\a.tar`, `C:\a.tar`, "a\xff.tar", "a\xed\xa0\x80.tar", "a\ufffd.tar", "a\ufffe.tar",
		strings.Repeat("a", 252) + ".tar", strings.Repeat("é", 126) + ".tar", strings.Repeat("a", 240) + ".b0001.of0002.tar",
		".b01.of02.tar", "..b01.of02.tar", "...b1.of2.tar",
	} {
		f, ok := bag.JudgeName(key)
		if ok || f.Code != "illegal-name" || f.Message == "" || !utf8.ValidString(f.Message) || strings.ContainsFunc(f.Message, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q: %v, %+v", key, ok, f)
		}
	}
	for _, key := range []string{
		"a.tar", " a .tar", "...a.tar", "....tar", "~a.tar", "a~.tar", "a:b.tar", "a b.b01.of02.tar", "日本語.tar", "e\u0301.tar", "a.tar.tar", "-rf.tar",
		strings.Repeat("a", 251) + ".tar", "\u200f.tar", "%2e%2e.tar",
	} {
		if f, ok := bag.JudgeName(key); !ok {
			t.Errorf("%q is refused: %s", key, f.Message)
		}
	}
}

// What is legal comes back: as the name of a file and of a directory, and through
// the tar of a restored bag.
func FuzzLegalNameComesBack(f *testing.F) {
	for _, name := range []string{"a", "..", "~", "a\n", "~x", `\`, "C:", "...", ".b1.of2", "x.b01.of02", "\ufffd"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if _, ok := bag.JudgeName(key); !ok {
			return
		}
		name := naming.Of(key)
		header, err := bag.EntryHeader(name+"/data/x", 0, time.Unix(1, 0))
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		b := read(t, append(header, bag.EndOfArchive()...))
		if len(b.Problems) > 0 || b.TopDir != name {
			t.Fatalf("%q came back as %q: %+v", name, b.TopDir, b.Problems)
		}
		dir := t.TempDir()
		for _, in := range []string{name, name + ".tar"} {
			if filepath.Dir(filepath.Join(dir, in)) != dir {
				t.Fatalf("%q lies outside its directory", in)
			}
			must.Do(t, os.WriteFile(filepath.Join(dir, in), nil, 0o600))
		}
	})
}
