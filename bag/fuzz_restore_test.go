package bag

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
)

// Where contents are passed over, the rest is read as it always is.
func FuzzReadIndex(f *testing.F) {
	for _, s := range []bagtest.Spec{
		{},
		{Profile: bagtest.BTR, ManifestsFirst: true, Files: []bagtest.File{{Path: "data/é", Size: 17_000}, {Path: "data/b", Size: 600}}},
		{Unlisted: []bagtest.File{{Path: "manifest-sha224.txt", Content: "x"}}},
		{Entries: []bagtest.Entry{{Name: "sample-bag/l", Type: '2', Linkname: "x"}, {Name: "sample-bag/data/hello.txt", Type: '0', Content: "x"}}},
	} {
		data, err := s.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)*2/3])
	}
	f.Add(sampleOfEverything(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, err := Read(t.Context(), bytes.NewReader(data), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		known := func(path string, size int64) (Digests, bool, error) {
			for _, file := range whole.Files {
				if file.Path == path && file.Size == size {
					return file.Digests, true, nil
				}
			}
			return Digests{}, true, nil // the tar ends within it
		}
		index, err := ReadIndex(t.Context(), bytes.NewReader(data), known, ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkBag(t, index)
		for _, b := range []*Bag{whole, index} {
			for i, p := range b.Problems {
				if p.Code == codeTruncated {
					b.Problems[i].Message = "" // how much of a file is there is not known
				}
			}
			if cutShort(b.Problems) { // and what comes after the end is of no interest
				b.Warnings = slices.DeleteFunc(b.Warnings, func(w Finding) bool { return w.Code == codeTrailingData })
			}
		}
		if diff := cmp.Diff(whole, index); diff != "" {
			t.Error(diff)
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
		enc, err := encodingFor(name)
		if err != nil {
			t.Fatal(err)
		}
		tags := func(content []byte) (list []Tag, others []Tag) {
			var unused findings
			list = parseTags("bag-info.txt", content, enc, &unused, &unused)
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
