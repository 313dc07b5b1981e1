package tagfile

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func FuzzManifest(f *testing.F) {
	const md5 = "d41d8cd98f00b204e9800998ecf8427e"
	for _, seed := range []string{
		"", md5 + "  data/a\n", md5 + " *data/a\r\n" + md5 + "\tdata/b\r", "\ufeff" + md5 + " ./data/%25%0A%0d",
		md5 + "  ../x\n", "zz  data/a\n", md5 + "\n", md5 + "  data/\xff\n", md5 + "  data/a\n" + strings.ToUpper(md5) + "  data/a\n",
		"\xfe\xff\x00d",
	} {
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		parse := func(cut int) (out []string, problems, warnings finding.List) {
			m := NewManifest("manifest-md5.txt", Encoding{}, &problems, &warnings, func(_ int, path []byte, raw string, e Expected) {
				if naming.PathFault(string(path)) != "" || len(e.Digest) != 32 || strings.ToLower(e.Digest) != e.Digest {
					t.Errorf("entry %q %q", path, e.Digest)
				}
				out = append(out, e.Digest+string(path)+raw)
			})
			given := bytes.Clone(data)
			m.Write(given[:cut])
			m.Write(given[cut:])
			m.End()
			if !bytes.Equal(given, data) {
				t.Error("the parser changed what the hashes are going to read")
			}
			return out, problems, warnings
		}
		// where blocks end must not matter
		out1, problems1, warnings1 := parse(0)
		out2, problems2, warnings2 := parse(max(0, min(cut, len(data))))
		if diff := cmp.Diff(out1, out2); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(problems1.Found, problems2.Found); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(warnings1.Found, warnings2.Found); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzTags(f *testing.F) {
	for _, seed := range []string{
		"", "A: 1\n", "A: 1\n  two\r\n\tthree\rB:\n", "\ufeffA: x", "no label", " folded", "A: \x00", "A: \xff", "::\n", "A :b\n", "\xfe\xff\x00A\x00:",
	} {
		for enc := range 8 {
			f.Add([]byte(seed), enc)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, which int) {
		var encodings []Encoding
		for _, name := range []string{"UTF-8", "ISO-8859-1", "UTF-16", "UTF-16LE", "Shift_JIS", "windows-1252", "ISO-2022-JP", "UTF-32"} {
			enc, ok := EncodingNamed(name)
			if !ok {
				t.Fatal(name)
			}
			encodings = append(encodings, enc)
		}
		var problems, warnings finding.List
		for _, tag := range ParseTags("bag-info.txt", data, encodings[uint(which)%8], &problems, &warnings) {
			if !utf8.ValidString(tag.Name+tag.Value) || tag.Name == "" || strings.TrimSpace(tag.Value) != tag.Value {
				t.Errorf("tag %q", tag)
			}
			if i := strings.IndexFunc(tag.Name+tag.Value, func(r rune) bool { return naming.IsControl(r) && r != '\t' }); i >= 0 {
				t.Errorf("control character in %q", tag)
			}
		}
	})
}

// Whatever stands in bag-info.txt, the tags that change do, once, and others do not.
func FuzzRewriteBagInfo(f *testing.F) {
	for _, seed := range []string{
		"", "A: 1\n", "A: 1\n  two\r\n\tthree\rB:\n", "\ufeffA: x\nX: y", "no label", " folded", "A: \x00\nOriginal-A: \x00\n", "A: \xff", "B: \x1b$B0!\n",
		"A: 1\na: 2\n\nA: new", "\xfe\xff\x00A\x00:", "B: ~{0!~}\nX: ~\n", "\xff\xfeA\x00:\x00\n\x00",
	} {
		for enc := range 10 {
			f.Add([]byte(seed), enc)
		}
	}
	names := []string{"", "ISO-8859-1", "UTF-16", "UTF-16LE", "Shift_JIS", "GB18030", "ISO-2022-JP", "UTF-32", "HZ-GB-2312", "Big5"}
	f.Fuzz(func(t *testing.T, data []byte, which int) {
		name := names[uint(which)%uint(len(names))]
		enc := must.Get(encodingFor(name))(t)
		tags := func(content []byte) (list []Tag, others []Tag) {
			var unused finding.List
			list = ParseTags("bag-info.txt", content, enc, &unused, &unused)
			for _, t := range list {
				label := strings.TrimPrefix(strings.ToLower(t.Name), "original-")
				if label != "a" && label != "b" {
					others = append(others, t)
				}
			}
			return list, others
		}
		changes := []Tag{{Name: "A", Value: "new"}, {Name: "B", Value: "1"}}
		before := bytes.Clone(data)
		out, err := RewriteBagInfo(data, name, changes)
		if !bytes.Equal(data, before) {
			t.Error("the input was changed")
		}
		if err != nil {
			return
		}
		old, otherOld := tags(data)
		list, others := tags(out)
		if diff := cmp.Diff(otherOld, others); diff != "" {
			t.Errorf("%q became %q: %s", data, out, diff)
		}
		for _, c := range changes {
			is := func(t Tag) bool { return strings.EqualFold(t.Name, c.Name) }
			if slices.ContainsFunc(old, is) != slices.ContainsFunc(list, is) {
				t.Errorf("%q became %q", data, out)
			}
		}
		for _, tag := range list {
			if strings.EqualFold(tag.Name, "A") && tag.Value != "new" || strings.EqualFold(tag.Name, "B") && tag.Value != "1" {
				t.Errorf("%q became %q", data, out)
			}
		}
		if again, err := RewriteBagInfo(out, name, changes); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%q became %q, and then %q; %v", data, out, again, err)
		}
	})
}
