package bag_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func manifestOf(t testing.TB, encoding string, paths ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := must.Get(tagfile.NewManifestWriter(&out, bag.MD5, encoding))(t)
	for _, path := range paths {
		must.Do(t, w.Add(path, bag.Digests{}))
	}
	return out.String()
}

func TestManifestsAreWrittenAsBagItSays(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 32)
	for _, tt := range []struct{ encoding, path, want string }{
		{"", "data/a b", zeros + "  data/a b\n"},
		{"", "data/100%\r\n", zeros + "  data/100%25%0D%0A\n"},
		{"", "data/100%25", zeros + "  data/100%2525\n"},
		{"", "data/grüße", zeros + "  data/grüße\n"},
		{"ISO-8859-1", "data/grüße", zeros + "  data/gr\xfc\xdfe\n"},
		{"Shift_JIS", "data/表", zeros + "  data/\x95\x5c\n"},
		{"", "*note", zeros + " **note\n"}, // md5sum's mark, so that the star is no mark
		{"", " note", zeros + " * note\n"},
		{"UTF-16BE", "a", utf16of(zeros+"  a\n", true)},
		{"UTF-16LE", "a", utf16of(zeros+"  a\n", false)},
		{"UTF-16", "a", "\xfe\xff" + utf16of(zeros+"  a\n", true)},
	} {
		if got := manifestOf(t, tt.encoding, tt.path); got != tt.want {
			t.Errorf("%s, %q: %q, want %q", tt.encoding, tt.path, got, tt.want)
		}
	}
	if got := manifestOf(t, "UTF-16", "a", "b"); strings.Count(got, "\xfe\xff") != 1 {
		t.Errorf("a byte order mark in the middle: %q", got)
	}
	if got := manifestOf(t, "UTF-16"); got != "" {
		t.Errorf("a manifest of nothing is %q", got)
	}
}

func utf16of(ascii string, big bool) string {
	var out []byte
	for i := range len(ascii) {
		if big {
			out = append(out, 0, ascii[i])
		} else {
			out = append(out, ascii[i], 0)
		}
	}
	return string(out)
}

func TestManifestsRefuseWhatNobodyCouldRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ encoding, path, says string }{
		{"ISO-8859-1", "data/表紙", "表紙"},
		{"Shift_JIS", "data/é", "é"},
		{"Shift_JIS", "data/¥", "¥"}, // has a code, which means a backslash
		{"UTF-16", "data/\ufffd", "UTF-16"},
		{"", "data/\xff", "UTF-8"},
		{"", "../x", ".."},
		{"", "", "empty"},
		{"ISO-2022-JP", "data/\x1b$B", "data/"}, // would switch the alphabet
	} {
		var out bytes.Buffer
		w := must.Get(tagfile.NewManifestWriter(&out, bag.SHA256, tt.encoding))(t)
		err := w.Add(tt.path, bag.Digests{})
		if err == nil || !strings.Contains(err.Error(), tt.says) || out.Len() > 0 || w.Size() > 0 {
			t.Errorf("%s, %q: error %v, and %q was written", tt.encoding, tt.path, err, out.String())
		}
	}
	if _, err := tagfile.NewManifestWriter(io.Discard, "crc32", ""); err == nil {
		t.Error("no error for an algorithm that there is not")
	}
	if _, err := tagfile.NewManifestWriter(io.Discard, bag.MD5, "UTF-7"); err == nil {
		t.Error("no error for an encoding that cannot be read")
	}
	broken := errors.New("disk full")
	w := must.Get(tagfile.NewManifestWriter(brokenWriter{broken}, bag.MD5, ""))(t)
	if err := w.Add("data/a", bag.Digests{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the writer", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// Whatever a file is called, and in whatever encoding: what we write we read, or
// we say that we cannot write it.
func TestManifestsReadBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	encodings := strings.Fields(`UTF-8 UTF-16 UTF-16LE UTF-16BE UTF-32 UTF-32LE csUTF16 csUTF16LE US-ASCII us iso-ir-6 ISO-8859-1 ISO8859-1
		ISO-8859-8 windows-1252 windows-1258 KOI8-R IBM037 IBM437 Shift_JIS EUC-JP ISO-2022-JP EUC-KR GBK GB18030 HZ-GB-2312 Big5`)
	letters := []rune("ab%/\n\r\t *.~\\\x1b\x7f\u0085\u00a0\u00a5\u203eéüßñ\u0301ıñЖאبعไ表紙〜～―あアｱ가漢\ufeff\ufffd\u3000\u30fb€💡\U0010ffff\u2028{}2A$B(J")
	rapid.Check(t, func(rt *rapid.T) {
		encoding := rapid.SampledFrom(encodings).Draw(rt, "encoding")
		drawn := rapid.SliceOfNDistinct(rapid.StringOfN(rapid.SampledFrom(letters), 1, 8, -1), 1, 6, rapid.ID).Draw(rt, "names")
		var manifest bytes.Buffer
		w := must.Get(tagfile.NewManifestWriter(&manifest, bag.MD5, encoding))(rt)
		var digests bag.Digests
		var paths []string
		var tar sparse
		bagit := must.Get(tagfile.BagitTxt(encoding))(rt)
		tar.entry(t, "b/bagit.txt", member{content: string(bagit)})
		for i, path := range drawn {
			header, err := bag.EntryHeader("b/"+path, 0, restoredAt)
			legal := err == nil && !strings.HasSuffix(path, "/")
			before := manifest.Len()
			digests.MD5[0] = byte(i)
			err = w.Add(path, digests)
			switch {
			case err != nil && manifest.Len() > before:
				rt.Errorf("%q: %v, but it was written", path, err)
			case err != nil && legal && strings.HasPrefix(strings.ToUpper(encoding), "UTF") && !strings.ContainsRune(path, utf8.RuneError):
				rt.Errorf("%q in %s: %v", path, encoding, err)
			case err == nil && !legal:
				rt.Errorf("%q was taken", path)
			case err == nil:
				paths = append(paths, path)
				tar.bytes(header)
			}
		}
		tar.entry(t, "b/manifest-md5.txt", member{content: manifest.String()})
		tar.bytes(bag.EndOfArchive())

		b := read(t, tar.all())
		if len(b.Problems) > 0 || len(b.Files) != len(paths)+2 {
			rt.Fatalf("problems %v, %d files of %q", b.Problems, len(b.Files), paths)
		}
		for _, path := range paths {
			digests.MD5[0] = byte(slices.Index(drawn, path))
			f := file(t, b, path)
			if f.Missing || len(f.Expected()) != 1 || f.Expected()[0].Digest != digests.Hex(bag.MD5) {
				rt.Errorf("%q: %+v", path, f.Expected())
			}
		}
		for _, warning := range b.Warnings {
			if warning.Code != "manifest-scope" {
				rt.Errorf("warning %v", warning)
			}
		}
	})
}
