package bag

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Where contents are passed over, the rest is read as it always is.
func FuzzReadIndex(f *testing.F) {
	for _, s := range []bagtest.Spec{
		{},
		{Profile: bagtest.BTR, ManifestsFirst: true, Files: []bagtest.File{{Path: "data/é", Size: 17_000}, {Path: "data/b", Size: 600}}},
		{Unlisted: []bagtest.File{{Path: "manifest-sha224.txt", Content: "x"}}},
		{Entries: []bagtest.Entry{{Name: "sample-bag/l", Type: '2', Linkname: "x"}, {Name: "sample-bag/data/hello.txt", Type: '0', Content: "x"}}},
	} {
		data := must.Get(s.Bytes())(f)
		f.Add(data)
		f.Add(data[:len(data)*2/3])
	}
	f.Add(sampleOfEverything(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole := must.Get(Read(t.Context(), bytes.NewReader(data), ReadOptions{}))(t)
		known := func(path string, size int64) (Digests, bool, error) {
			for _, file := range whole.Files {
				if file.Path == path && file.Size == size {
					return file.Digests, true, nil
				}
			}
			return Digests{}, true, nil // the tar ends within it
		}
		index := must.Get(ReadIndex(t.Context(), bytes.NewReader(data), known, ReadOptions{}))(t)
		checkBag(t, index)
		for _, b := range []*Bag{whole, index} {
			for i, p := range b.Problems {
				if p.Code == finding.Truncated {
					b.Problems[i].Message = "" // how much of a file is there is not known
				}
			}
			if cutShort(b.Problems) { // and what comes after the end is of no interest
				b.Warnings = slices.DeleteFunc(b.Warnings, func(w Finding) bool { return w.Code == finding.TrailingData })
			}
		}
		if diff := cmp.Diff(whole, index); diff != "" {
			t.Error(diff)
		}
	})
}
