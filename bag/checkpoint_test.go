package bag_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// ranges opens the content of files as object storage does, by their offsets.
func ranges(data []byte) func(*bag.File) (io.ReadCloser, error) {
	return func(f *bag.File) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data[f.Offset : f.Offset+f.Size])), nil
	}
}

// checkpoints reads the tar to its end, and returns the bag and how far it was
// at each checkpoint, as one who has stored each as JSON would know it.
func checkpoints(t testing.TB, data []byte, every int64) (*bag.Bag, []bag.Checkpoint) {
	t.Helper()
	var all bag.Checkpoint
	var stored [][]byte
	store := func(c bag.Checkpoint) error {
		j, err := json.Marshal(c)
		stored = append(stored, j)
		return err
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(data), bag.ReadOptions{
		PartSize:        inParts,
		PartMD5:         true,
		Whole:           sha256.New(),
		CheckpointBytes: every,
		Checkpoint: func(_ context.Context, c bag.Checkpoint) error {
			all.Append(c)
			return store(all)
		},
		Within: func(_ context.Context, p bag.Partial) error {
			with := all
			with.Partial = &p
			return store(with)
		},
	})
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	if sum := sha256.Sum256(data); !bytes.Equal(b.Whole, sum[:]) {
		t.Errorf("digest of the tar is %x, want %x", b.Whole, sum)
	}
	out := make([]bag.Checkpoint, len(stored))
	for i, j := range stored {
		must.Do(t, json.Unmarshal(j, &out[i]))
	}
	return b, out
}

// inParts cuts files of some hundred thousand bytes into parts.
func inParts(size int64) int64 {
	if size < 200_000 {
		return 0
	}
	return 300_000
}

// on reads on from a checkpoint.
func on(t testing.TB, data []byte, c bag.Checkpoint) (*bag.Bag, error) {
	t.Helper()
	rest := data[min(c.Start(), int64(len(data))):]
	return bag.Read(context.Background(), bytes.NewReader(rest), bag.ReadOptions{
		PartSize: inParts, PartMD5: true, Whole: sha256.New(), Resume: &c, Reopen: ranges(data),
	})
}

// anyBag draws a bag of a few files, good or broken.
func anyBag(t *rapid.T) bagtest.Spec {
	path := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"data/", "data/sub/", "", "data/%25"}).Draw(t, "dir") +
			rapid.SampledFrom([]string{"a", "b", "B", "c%0Ad", "é", strings.Repeat("long", 40), "manifest-sha1.txt", "fetch.txt"}).Draw(t, "name")
	})
	files := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) bagtest.File {
		return bagtest.File{
			Path: path.Draw(t, "path"),
			Size: rapid.SampledFrom([]int64{0, 1, 511, 512, 513, 5000, 70_000, 150_000}).Draw(t, "size"),
		}
	}), 0, 6, func(f bagtest.File) string { return f.Path }).Draw(t, "files")
	algorithms := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"md5", "sha256", "sha512"}), 0, 3, rapid.ID)
	entry := rapid.SampledFrom([]bagtest.Entry{
		{Name: "sample-bag/dir/", Type: tar.TypeDir},
		{Name: "sample-bag/link", Type: tar.TypeSymlink, Linkname: "x"},
		{Name: "sample-bag/data/a", Type: tar.TypeReg, Content: "again"},
		{Name: "other/data/a", Type: tar.TypeReg, Content: "elsewhere"},
		{Name: "loose", Type: tar.TypeReg, Content: "loose"},
		{Name: "sample-bag/data/last", Type: tar.TypeReg, Content: "fine"},
	})
	paths := func(label string) (out []string) {
		for _, f := range files {
			if rapid.IntRange(0, 9).Draw(t, label) == 0 {
				out = append(out, f.Path)
			}
		}
		return out
	}
	return bagtest.Spec{
		Profile:        rapid.SampledFrom([]bagtest.Profile{bagtest.APTrust, bagtest.BTR}).Draw(t, "profile"),
		Files:          files,
		Manifests:      append([]string{}, algorithms.Draw(t, "manifests")...),
		TagManifests:   append([]string{}, algorithms.Draw(t, "tag manifests")...),
		ManifestsFirst: rapid.Bool().Draw(t, "manifests first"),
		Leave:          paths("leave"),
		Corrupt:        paths("corrupt"),
		Entries:        rapid.SliceOfN(entry, 0, 4).Draw(t, "entries"),
	}
}

// A worker may be killed anywhere. The one that comes after it must find what
// the first would have found, findings and their order included.
func TestReadingOnFromAnyCheckpointGivesTheSameBag(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		data := sample(t, anyBag(rt))
		if rapid.Bool().Draw(rt, "cut") {
			data = data[:rapid.IntRange(0, len(data)).Draw(rt, "at")]
		}
		want, points := checkpoints(t, data, rapid.Int64Range(1, 5000).Draw(rt, "every"))
		whole, err := bag.Read(context.Background(), bytes.NewReader(data), bag.ReadOptions{PartSize: inParts, PartMD5: true, Whole: sha256.New()})
		if err != nil || !cmp.Equal(want, whole) {
			rt.Fatalf("checkpoints change the bag: %v %s", err, cmp.Diff(whole, want))
		}
		if len(points) == 0 {
			return
		}
		c := rapid.SampledFrom(points).Draw(rt, "checkpoint")
		got, err := on(t, data, c)
		if err != nil {
			rt.Fatalf("Read: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("reading on from %d: %s", c.Offset, diff)
		}
	})
}

// A kill at 99 % of a large file costs its last part, not the file.
func TestReadingOnWithinALargeFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		spec := bagtest.Spec{
			Files: []bagtest.File{
				{Path: "data/first", Size: rapid.SampledFrom([]int64{10, 2_000_001}).Draw(rt, "first")},
				{Path: "data/large", Size: rapid.Int64Range(1_200_000, 3_000_000).Draw(rt, "large")},
				{Path: "data/last", Content: "last"},
			},
			ManifestsFirst: rapid.Bool().Draw(rt, "manifests first"),
		}
		data := sample(t, spec)
		if rapid.IntRange(0, 3).Draw(rt, "cut") == 0 {
			data = data[:len(data)-rapid.IntRange(1, 120_000).Draw(rt, "by")]
		}
		want, points := checkpoints(t, data, 200_000)
		within := 0
		for _, c := range points {
			if c.Partial != nil {
				within++
			}
		}
		if within < 2 {
			rt.Fatalf("%d checkpoints within files", within)
		}
		c := rapid.SampledFrom(points).Draw(rt, "checkpoint")
		got := must.Get(on(t, data, c))(rt)
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("reading on from %d: %s", c.Start(), diff)
		}
	})
}

// A reader that resumes within a file, and is killed too, leaves checkpoints that belong to
// the same one before the file.
func TestReadingOnAgainWithinALargeFile(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/first", Size: 700_000}, {Path: "data/large", Size: 4_000_000}}})
	want, points := checkpoints(t, data, 200_000)
	c := points[slices.IndexFunc(points, func(c bag.Checkpoint) bool { return c.Partial != nil && c.Partial.File.Path == "data/large" })]
	again := 0
	for range 3 {
		base, start := c, c.Start()
		base.Partial = nil
		stop := errors.New("killed")
		_, err := bag.Read(t.Context(), bytes.NewReader(data[c.Start():]), bag.ReadOptions{
			PartSize: inParts, PartMD5: true, Whole: sha256.New(), Resume: &c, Reopen: ranges(data), CheckpointBytes: 200_000,
			Within: func(_ context.Context, p bag.Partial) error {
				text, err := json.Marshal(p)
				if err != nil {
					return err
				}
				base.Partial = new(bag.Partial)
				return errors.Join(stop, json.Unmarshal(text, base.Partial))
			},
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if base.Partial.After != base.Offset || base.Start() <= start {
			t.Fatalf("a checkpoint at %d goes with the one at %d, want %d; the one before was at %d",
				base.Start(), base.Partial.After, base.Offset, start)
		}
		c = base
		again++
	}
	got, err := on(t, data, c)
	if err != nil || again != 3 {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What cannot be used must say so, so that it is thrown away and the file read
// from its beginning; digests made up from it would be wrong.
func TestACheckpointWithinAFileThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 3_000_000}}})
	_, points := checkpoints(t, data, 200_000)
	good := points[slices.IndexFunc(points, func(c bag.Checkpoint) bool { return c.Partial != nil })]
	for name, change := range map[string]func(p *bag.Partial){
		"no file":           func(p *bag.Partial) { p.File = nil },
		"another place":     func(p *bag.Partial) { p.After++ },
		"nothing read":      func(p *bag.Partial) { p.State.Done = 0 },
		"all read":          func(p *bag.Partial) { p.State.Done = p.File.Size },
		"a manifest":        func(p *bag.Partial) { p.File.Path = "manifest-md5.txt" },
		"other parts":       func(p *bag.Partial) { p.State.Part++ },
		"half a part's sum": func(p *bag.Partial) { p.State.Parts = append(p.State.Parts, 1) },
		"no MD5 of parts":   func(p *bag.Partial) { p.State.PartsMD5 = nil },
		"no state of one":   func(p *bag.Partial) { p.State.PartMD5 = nil },
		"a negative part":   func(p *bag.Partial) { p.State.Left = -1 },
		"no states":         func(p *bag.Partial) { p.State.Hashes = [5][]byte{} },
		"a strange state":   func(p *bag.Partial) { p.State.Hashes[2] = []byte("another version") },
	} {
		c, p := good, *good.Partial
		c.Partial = &p
		change(&p)
		if _, err := on(t, data, c); !errors.Is(err, bag.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("disk full")
	_, err := bag.Read(t.Context(), bytes.NewReader(data), bag.ReadOptions{
		CheckpointBytes: 200_000,
		Within:          func(context.Context, bag.Partial) error { return full },
	})
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "data/large") {
		t.Errorf("error %v, want %v", err, full)
	}
}

// A digest of the tar whose state is not known, or is of another kind, is left out:
// it would not be the tar's.
func TestDigestOfTheTarIsKnownOrLeftOut(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 3_000_000}, {Path: "data/last", Size: 300_000}}})
	_, points := checkpoints(t, data, 200_000)
	for name, state := range map[string][]byte{"no state": nil, "another digest's": []byte("md5 or so")} {
		for _, c := range []bag.Checkpoint{points[0], points[len(points)-1]} {
			c.Whole = state
			if c.Partial != nil {
				p := *c.Partial
				c.Partial, p.Whole = &p, state
			}
			b, err := on(t, data, c)
			if err != nil || b.Whole != nil || len(b.Problems) > 0 {
				t.Errorf("%s, from %d: digest %x, %v", name, c.Start(), b.Whole, err)
			}
		}
	}
	b, err := bag.Read(t.Context(), bytes.NewReader(data), bag.ReadOptions{})
	if err != nil || b.Whole != nil {
		t.Errorf("digest %x that nobody asked for, %v", b.Whole, err)
	}
}

func TestCheckpointsAreRareAndHaveOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	spec := bagtest.Spec{}
	for i := range 100 {
		spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%d", i), Size: 10_000})
	}
	data := sample(t, spec)
	var last, files int
	b, err := bag.Read(t.Context(), bytes.NewReader(data), bag.ReadOptions{
		CheckpointBytes: 100_000,
		Checkpoint: func(_ context.Context, c bag.Checkpoint) error {
			if int(c.Offset)-last < 100_000 || c.Offset%512 != 0 {
				t.Errorf("checkpoint at %d, the one before at %d", c.Offset, last)
			}
			last = int(c.Offset)
			files += len(c.Files)
			return nil
		},
	})
	if err != nil || last == 0 || files > len(b.Files) {
		t.Errorf("error %v, last at %d, %d files of %d", err, last, files, len(b.Files))
	}
	// by default a small bag pays nothing
	if _, points := checkpoints(t, data, 0); len(points) > 0 {
		t.Errorf("%d checkpoints in a bag of %d bytes", len(points), len(data))
	}
}

func TestReadStopsIfItsCheckpointCannotBeStored(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	_, err := bag.Read(t.Context(), bytes.NewReader(sample(t, bagtest.Spec{})), bag.ReadOptions{
		CheckpointBytes: 1,
		Checkpoint:      func(context.Context, bag.Checkpoint) error { return full },
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}

// Two halves of two bags make no bag: the second read must notice that the
// first half is gone.
func TestReadingOnInAReplacedBagIsRefused(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{})
	_, points := checkpoints(t, data, 1)
	c := points[len(points)-1]
	replaced := bytes.Clone(data)
	f := c.Files[0]
	replaced[f.Offset] ^= 1
	_, err := bag.Read(t.Context(), bytes.NewReader(data[c.Offset:]), bag.ReadOptions{Resume: &c, Reopen: ranges(replaced)})
	if err == nil || !strings.Contains(err.Error(), f.Path) {
		t.Errorf("error %v, want one that names %s", err, f.Path)
	}
	c = points[len(points)-1]
	if _, err := bag.Read(t.Context(), bytes.NewReader(nil), bag.ReadOptions{Resume: &c}); err == nil {
		t.Error("no error though nothing can be opened again")
	}
}

// The last entry before a checkpoint need not be a file of the bag; messages
// about what comes after it name it all the same.
func TestReadingOnNamesTheEntryBeforeTheEnd(t *testing.T) {
	t.Parallel()
	data := sample(t, bagtest.Spec{Entries: []bagtest.Entry{
		{Name: "other/data/\xff\"a", Type: tar.TypeReg, Content: "elsewhere"},
		{Name: "sample-bag/dir/", Type: tar.TypeDir},
	}})
	data = data[:len(data)-2*512] // without its end marker
	_, points := checkpoints(t, data, 1)
	c := points[len(points)-1]
	got := must.Get(bag.Read(t.Context(), bytes.NewReader(data[c.Offset:]), bag.ReadOptions{Resume: &c, Reopen: ranges(data)}))(t)
	const want = `It may have been cut off after other/data/\xff"a.`
	if len(got.Warnings) != 1 || !strings.HasSuffix(got.Warnings[0].Message, want) {
		t.Errorf("warnings: %v, want one that ends in %s", got.Warnings, want)
	}
}
