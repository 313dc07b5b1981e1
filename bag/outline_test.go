package bag_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func outlined(t testing.TB, data []byte) []byte {
	t.Helper()
	return must.Get(bagtest.Outline(data))(t)
}

func readOutline(t testing.TB, outline []byte, size int) *bag.Bag {
	t.Helper()
	b, err := bag.ReadOutline(context.Background(), bytes.NewReader(outline), int64(size), bag.ReadOptions{})
	if err != nil {
		t.Fatalf("ReadOutline: %v", err)
	}
	return b
}

// withoutDigests is a verdict as it is where contents were not compared.
func withoutDigests(v bag.Verdict) bag.Verdict {
	unread := func(f bag.Finding) bool { return f.Code == "digest-mismatch" && strings.HasPrefix(f.Path, "data/") }
	v.Errors = slices.DeleteFunc(slices.Clone(v.Errors), unread)
	v.Valid, v.Unread = len(v.Errors) == 0, 0
	return v
}

// brokenBags are bags with one fault each, and good ones.
func brokenBags() map[string]bagtest.Spec {
	extra := []bagtest.File{{Path: "data/extra", Content: "x"}}
	return map[string]bagtest.Spec{
		"good":             {},
		"btr":              {Profile: bagtest.BTR},
		"manifests first":  {ManifestsFirst: true},
		"long names":       {Files: []bagtest.File{{Path: "data/" + strings.Repeat("very-long-directory-name/", 20) + "f"}, {Path: "data/grüße", Size: 3000}, {Path: "data/empty"}}},
		"large":            {Files: []bagtest.File{{Path: "data/large", Size: 3 << 20}, {Path: "custom/tags.txt", Content: "a: b\n"}}},
		"all manifests":    {Manifests: []string{"md5", "sha1", "sha256", "sha512"}, TagManifests: []string{"md5", "sha512"}},
		"payload corrupt":  {Corrupt: []string{"data/photo.txt"}},
		"tag file corrupt": {Corrupt: []string{"bag-info.txt"}},
		"bagit corrupt":    {Corrupt: []string{"bagit.txt"}},
		"manifest corrupt": {Corrupt: []string{"manifest-md5.txt"}},
		"unlisted":         {Unlisted: extra},
		"missing":          {Files: append([]bagtest.File{{Path: "data/a"}}, extra...), Leave: []string{"data/extra"}},
		"no title":         {Tags: []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: bagtest.Omit}}},
		"wrong oxum":       {Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "Payload-Oxum", Value: "1.1"}}},
		"latin 1":          {Tags: []bagtest.Tag{{File: "bagit.txt", Name: "Tag-File-Character-Encoding", Value: "ISO-8859-1"}}},
		"no manifest":      {Manifests: []string{}},
		"clash":            {Files: []bagtest.File{{Path: "data/a"}, {Path: "data/A"}}},
		"link":             {Entries: []bagtest.Entry{{Name: "sample-bag/data/l", Type: '2', Linkname: "/etc/passwd"}}},
		"strange entry":    {Entries: []bagtest.Entry{{Name: "sample-bag/data/v", Type: 'Z', Content: strings.Repeat("v", 700)}}},
		"escape":           {Entries: []bagtest.Entry{{Name: "../x", Type: '0', Content: "x"}}},
		"second top":       {Entries: []bagtest.Entry{{Name: "other/x", Type: '0', Content: "x"}}},
		"twice":            {Entries: []bagtest.Entry{{Name: "sample-bag/bagit.txt", Type: '0', Content: "x"}}},
		"control":          {Files: []bagtest.File{{Path: "data/a\x07b"}}},
	}
}

// What is said before the upload is what the pipeline will say, but for the digests of
// contents that were not sent.
func TestAnOutlineIsJudgedAsItsTar(t *testing.T) {
	t.Parallel()
	for name, spec := range brokenBags() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := sample(t, spec)
			outline := outlined(t, data)
			want := read(t, data).Validate(nil)
			got := readOutline(t, outline, len(data)).Validate(nil)
			if got.Unread == 0 {
				t.Error("the verdict does not say that contents were not read")
			}
			if diff := cmp.Diff(withoutDigests(want), withoutDigests(got)); diff != "" {
				t.Errorf("(-tar +outline)\n%s", diff)
			}
			if len(data) > 1<<20 && len(outline) > 64<<10 {
				t.Errorf("the outline of %d bytes has %d", len(data), len(outline))
			}
		})
	}
}

// Tars that end early, or that are none, are judged as they are.
func TestAnOutlineOfADamagedTarIsJudgedAsTheTar(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/a", Size: 5000}, {Path: "data/b", Size: 700}}})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		broken := slices.Clone(data[:len(data)-random.IntN(len(data))])
		if i%3 == 0 {
			broken = append(slices.Clone(data), data[:512*random.IntN(9)]...)
		}
		v := read(t, broken).Validate(nil)
		got := readOutline(t, outlined(t, broken), len(broken)).Validate(nil)
		if diff := cmp.Diff(codes(withoutDigests(v).Errors), codes(withoutDigests(got).Errors)); diff != "" {
			t.Fatalf("%d bytes (-tar +outline)\n%s", len(broken), diff)
		}
	}
}

// Nothing is said of a bag from an outline that leaves out what decides: each piece of it is
// missed, and each that is out of its place.
func TestAnIncompleteOutlineIsNotJudged(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/a", Size: 5000}, {Path: "data/b", Size: 700}}})
	var pieces [][]byte
	for rest := outlined(t, data); len(rest) > 0; {
		n := 12 + binary.BigEndian.Uint32(rest[8:12])
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	refused := func(what string, outline []byte, size int64) {
		t.Helper()
		b, err := bag.ReadOutline(t.Context(), bytes.NewReader(outline), size, bag.ReadOptions{})
		if !errors.Is(err, bag.ErrOutline) {
			t.Errorf("%s: %v, %+v", what, err, b)
		}
	}
	size := int64(len(data))
	for i := range pieces {
		refused(fmt.Sprintf("without piece %d", i), slices.Concat(slices.Concat(pieces[:i]...), slices.Concat(pieces[i+1:]...)), size)
	}
	whole := slices.Concat(pieces...)
	refused("cut in a piece", whole[:len(whole)-1], size)
	refused("cut in the head of a piece", slices.Concat(slices.Concat(pieces[:3]...), pieces[3][:7]), size)
	refused("pieces in another order", slices.Concat(pieces[1], pieces[0]), size)
	refused("a piece twice", slices.Concat(pieces[0], pieces[1], pieces[0], slices.Concat(pieces[1:]...)), size)
	refused("beyond the tar", whole, size-512)
	refused("nothing", nil, size)
	refused("a terabyte of nothing", slices.Concat(pieces...), 1<<40+size)
	refused("a negative size", whole, -1)
}

// What the manifests say of a file that was not read takes no more memory than where it was,
// and a bag that the pipeline takes is not too large here.
func TestAnOutlineTakesNoMoreMemoryThanItsTar(t *testing.T) {
	t.Parallel()
	var files []bagtest.File
	for i := range 1000 {
		files = append(files, bagtest.File{Path: fmt.Sprintf("data/%0100d", i), Size: 1})
	}
	data := sample(t, bagtest.Spec{Files: files, Manifests: []string{"md5", "sha1", "sha256", "sha512"}})
	b, err := bag.ReadOutline(t.Context(), bytes.NewReader(outlined(t, data)), int64(len(data)), bag.ReadOptions{MaxFiles: 1020})
	if err != nil || b.Cut() != "" {
		t.Fatalf("%v, %+v", err, b.Problems)
	}
}
