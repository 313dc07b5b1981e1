package bag_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/japanese"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// rewrite gives A the value "new", and B "1".
func rewrite(content, encoding string) (string, error) {
	out, err := tagfile.RewriteBagInfo([]byte(content), encoding, []bag.Tag{{Name: "A", Value: "new"}, {Name: "B", Value: "1"}})
	return string(out), err
}

func TestOnlyTagsThatChangeAreRewritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, content, want string }{
		{"changed", "A: old\nX: y\n", "A: new\nX: y\nOriginal-A: old\n"},
		{"both, in the order of the changes", "b: 2\nA: old\n", "b: 1\nA: new\nOriginal-A: old\nOriginal-b: 2\n"},
		{"none of them", "X:  y\n folded\n\n\nno colon", "X:  y\n folded\n\n\nno colon"},
		{"nothing", "", ""},
		{"as it should be", "A:   new\nB:\n\t1\n", "A:   new\nB:\n\t1\n"},
		{"one as it should be", "A:   new\nB: 2\n", "A:   new\nB: 1\nOriginal-B: 2\n"},
		{"in any case", "a:old\n", "a: new\nOriginal-a: old\n"},
		{"CR LF", "A: old\r\nX: y\r\n", "A: new\r\nX: y\r\nOriginal-A: old\r\n"},
		{"CR", "A: old\rX: y\r", "A: new\rX: y\rOriginal-A: old\r"},
		{"of each line its own", "X: y\r\nA: old\nB: 2\r", "X: y\r\nA: new\nB: 1\rOriginal-A: old\r\nOriginal-B: 2\r\n"},
		{"no final end", "X: y\nA: old", "X: y\nA: new\nOriginal-A: old\n"},
		{"no end at all", "A: old", "A: new\nOriginal-A: old\n"},
		{"no final end, of another line", "A: old\r\nX: y", "A: new\r\nX: y\r\nOriginal-A: old\r\n"},
		{"no final end, and nothing to add", "X: y\nA:", "X: y\nA: new"},
		{"folded", "A: one\n two\n\tthree\nX: y\n  z\n", "A: new\nX: y\n  z\nOriginal-A: one two three\n"},
		{"folded, to the end", "A:\n one\n two", "A: new\nOriginal-A: one two\n"},
		{"folded by mistake", "A: one\ntwo\nX: y\n", "A: new\nX: y\nOriginal-A: one two\n"},
		{"folded around blank lines", "A: one\n\n two\n \t\nX: y\n", "A: new\n\n \t\nX: y\nOriginal-A: one two\n"},
		{"a folded line like a tag", "X: y\n A: old\n", "X: y\n A: old\n"},
		{"before all tags", "no colon\n A: old\nA: old\n", "no colon\n A: old\nA: new\nOriginal-A: old\n"},
		{"no tag", " : old\n", " : old\n"},
		{"white space before the colon", "A : old\nX\t: y\n", "A: new\nX\t: y\nOriginal-A: old\n"},
		{"byte order mark", "\ufeffA: old\n", "\ufeffA: new\nOriginal-A: old\n"},
		{"twice", "A: one\nX: y\nA: two\n more\nZ: z\n", "A: new\nX: y\nZ: z\nOriginal-A: one\nOriginal-A: two more\n"},
		{"twice, the first as it should be", "A:new\nA: two\n", "A:new\nOriginal-A: two\n"},
		{"twice, the second as it should be", "A: one\nA: new\n", "A: new\nOriginal-A: one\n"},
		{"twice, both as they should be", "A:new\nA: new\n", "A:new\nA: new\n"},
		{"twice the same", "A: one\nA: one", "A: new\nOriginal-A: one\n"},
		{"restored before", "A: one\nOriginal-A: zero\n", "A: new\nOriginal-A: zero\nOriginal-A: one\n"},
		{"restored before, with the same", "A: one\noriginal-a:  one\n", "A: new\noriginal-a:  one\n"},
		{"no value", "A:\nX: y\n", "A: new\nX: y\n"},
		{"a colon in the value", "A: x: y\n", "A: new\nOriginal-A: x: y\n"},
	} {
		got, err := rewrite(tt.content, "")
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, want %q; %v", tt.name, got, tt.want, err)
		}
		if again, err := rewrite(got, ""); err != nil || again != got {
			t.Errorf("%s, again: %q, want %q; %v", tt.name, again, got, err)
		}
	}
}

// Each line of these stays as it is, though another encoder would write it otherwise.
func TestTagsAreRewrittenInTheirEncoding(t *testing.T) {
	t.Parallel()
	utf16 := func(text string) string { return utf16of(text, true) }
	utf16le := func(text string) string { return utf16of(text, false) }
	sjis := must.Get(japanese.ShiftJIS.NewEncoder().String("X: 表紙\nA: 表\n"))(t)
	for _, tt := range []struct{ encoding, content, want string }{
		{"ISO-8859-1", "X: \xfc\nA: \xdf\n", "X: \xfc\nA: new\nOriginal-A: \xdf\n"},
		{"Shift_JIS", sjis, "X: \x95\x5c\x8e\x86\nA: new\nOriginal-A: \x95\x5c\n"},
		{"UTF-16", utf16("X: y\r\nA: b"), utf16("X: y\r\nA: new\r\nOriginal-A: b\r\n")},
		{"UTF-16", "\xfe\xff" + utf16("A: b\n"), "\xfe\xff" + utf16("A: new\nOriginal-A: b\n")},
		{"UTF-16", "\xff\xfe" + utf16le("A: b\n"), "\xff\xfe" + utf16le("A: new\nOriginal-A: b\n")},
		{"UTF-16LE", utf16le("A: b\n"), utf16le("A: new\nOriginal-A: b\n")},
		{"csUTF16LE", "\xff\xfe" + utf16le("A: b\n"), "\xff\xfe" + utf16le("A: new\nOriginal-A: b\n")},
		{"UTF-16", "\xfe\xff\xfe\xff" + utf16("A: b\n"), "\xfe\xff\xfe\xff" + utf16("A: new\nOriginal-A: b\n")},
		{"ISO-2022-JP", "X: \x1b$B0!\x1b(B\x1b(B\nA: b\nZ: \x1b(B\x1b$B0!\x1b(B\n", "X: \x1b$B0!\x1b(B\x1b(B\nA: new\nZ: \x1b(B\x1b$B0!\x1b(B\nOriginal-A: b\n"},
		{"ISO-2022-JP", "X: y\nA: b\n\x1b$B\x1b(BZ: z\n", "X: y\nA: new\n\x1b$B\x1b(BZ: z\nOriginal-A: b\n"},
		{"Shift_JIS", "X: \xed\x40\nA: b\n", "X: \xed\x40\nA: new\nOriginal-A: b\n"}, // which has another code too
	} {
		got, err := rewrite(tt.content, tt.encoding)
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, want %q; %v", tt.encoding, got, tt.want, err)
		}
	}
}

func TestBagInfoThatCannotBeRewrittenIsAnError(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	for _, tt := range []struct{ name, encoding, content, says string }{
		{"not UTF-8", "", "X: \xff\n", "UTF-8"},
		{"not Shift_JIS", "Shift_JIS", "X: \x81\xff\n", "SHIFT_JIS"},
		{"half a character", "UTF-16", "\x00A\x00", "UTF-16"},
		{"a lone byte", "UTF-16", "A", "UTF-16"},
		{"no encoding", "UTF-7", "A: b", "UTF-7"},
		{"too large", "", "X: " + strings.Repeat("x", most-2), "1048576"},
		{"too large afterwards", "", "A: y\nX: " + strings.Repeat("x", most-8), "1048576"},
		{"too many tags", "", strings.Repeat("X: y\n", 10_001), "10000"},
		{"too many tags afterwards", "", "A: y\n" + strings.Repeat("X: y\n", 9_999), "10000"},
		{"an alphabet that is left open", "ISO-2022-JP", "A: b\rX: \x1b$B0!", "ISO-2022-JP"},
	} {
		got, err := rewrite(tt.content, tt.encoding)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %.100q, error %v", tt.name, got, err)
		}
	}
	if got, err := rewrite("A: y\nX: "+strings.Repeat("x", most-25), ""); err != nil || len(got) != most {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
	for _, c := range []bag.Tag{{Name: "A", Value: "x\nB: y"}, {Name: "A: B", Value: "x"}, {Name: "", Value: "x"}, {Name: " A", Value: "x"}, {Name: "A", Value: " x"}, {Name: "A", Value: "\x00"}} {
		if got, err := tagfile.RewriteBagInfo([]byte("A: b\n"), "", []bag.Tag{c}); err == nil {
			t.Errorf("%q: %q, and no error", c, got)
		}
	}
	if got, err := tagfile.RewriteBagInfo([]byte("A: b\n"), "ISO-8859-1", []bag.Tag{{Name: "A", Value: "表"}}); err == nil {
		t.Errorf("%q, and no error", got)
	}
}

// A megabyte of one tag takes no longer than one of many.
func TestRewritingIsLinear(t *testing.T) {
	t.Parallel()
	got, err := rewrite("A: 1\n"+strings.Repeat(" x\n", 150_000), "ISO-2022-JP")
	if err != nil || len(got) != len("A: new\nOriginal-A: 1\n")+2*150_000 {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

// The same parser that reads a bag finds the new values, the old ones, and all
// other tags as they were.
func TestRewrittenTagsAreReadBack(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"A: ", "a:", "B: ", "X: ", "Original-A: ", " ", "\t", "\n", "\n", "\r\n", "\r", "new", "1", "old", "é", ": ", "\ufeff", "see http://x",
	})
	rapid.Check(t, func(rt *rapid.T) {
		content := strings.Join(rapid.SliceOfN(piece, 0, 20).Draw(rt, "pieces"), "")
		got := must.Get(rewrite(content, ""))(rt)
		tags := func(content string) []bag.Tag {
			return read(t, rawBag(t, bagtest.File{Path: "bag-info.txt", Content: content})).Tags
		}
		if diff := cmp.Diff(edited(tags(content)), tags(got)); diff != "" {
			rt.Errorf("%q became %q: %s", content, got, diff)
		}
	})
}

// edited does to tags what rewrite does to a text.
func edited(tags []bag.Tag) (out []bag.Tag) {
	values := map[string]string{"a": "new", "b": "1"}
	wrong, seen := map[string]bool{}, map[string]bool{}
	for _, t := range tags {
		name := strings.ToLower(t.Name)
		wrong[name] = wrong[name] || values[name] != "" && t.Value != values[name]
	}
	for _, t := range tags {
		name := strings.ToLower(t.Name)
		switch {
		case !wrong[name]:
			out = append(out, t)
		case !seen[name]:
			seen[name] = true
			out = append(out, bag.Tag{File: t.File, Name: t.Name, Value: values[name]})
		}
	}
	for _, changed := range []string{"a", "b"} {
		for _, t := range tags {
			old := bag.Tag{File: t.File, Name: "Original-" + t.Name, Value: t.Value}
			known := false
			for _, other := range out {
				known = known || strings.EqualFold(other.Name, old.Name) && other.Value == old.Value
			}
			if strings.EqualFold(t.Name, changed) && t.Value != "" && t.Value != values[changed] && !known {
				out = append(out, old)
			}
		}
	}
	return out
}

func TestRewritingLeavesItsInputAlone(t *testing.T) {
	t.Parallel()
	content := []byte("\ufeffA: old\nX: y\nA: z")
	before := bytes.Clone(content)
	if _, err := tagfile.RewriteBagInfo(content, "", []bag.Tag{{Name: "A", Value: "new"}}); err != nil || !bytes.Equal(content, before) {
		t.Errorf("%q, %v", content, err)
	}
}
