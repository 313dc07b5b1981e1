package lists

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
)

// Whatever files a bag has: each is in one pack and in one group of work, in
// order, and what is read in one request is small and lies together.
func TestPacksAndGroupsOfFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 5000), rapid.Int64Range(60_000, 70_000), rapid.Int64Range(WholeFile-2, WholeFile+2),
			rapid.Int64Range(0, 5<<20)), 0, 300).Draw(t, "sizes")
		workers := rapid.IntRange(1, 16).Draw(t, "workers")
		var files []*File
		offset := int64(512)
		for i, size := range sizes {
			files = append(files, &File{
				Index: i, Offset: offset, Key: fmt.Sprint("key", i),
				Content: copies.Content{Path: fmt.Sprint(i), Size: size, SHA256: [32]byte{byte(i), byte(i >> 8)}},
			})
			offset += (size+511)/512*512 + 512 + rapid.SampledFrom([]int64{0, 0, 0, 512, 100_000}).Draw(t, "gap")
		}
		PackFiles(files)

		var packs [][]*File
		keys := map[string]bool{}
		for next := 0; next < len(files); next += len(packs[len(packs)-1]) {
			p := files[next].Pack
			packs = append(packs, p.Files)
			if keys[p.Key()] || len(p.Files) == 1 && p.Key() != files[next].Key {
				t.Fatalf("a pack of %d files is named %s, as others are: %v", len(p.Files), p.Key(), keys[p.Key()])
			}
			keys[p.Key()] = true
			var size int64
			for _, f := range p.Files {
				if f.Pack != p || f.At != size {
					t.Fatalf("file %d begins at %d in its pack, want %d", f.Index, f.At, size)
				}
				size += f.Size
			}
			if size != p.Size() {
				t.Fatalf("a pack of %d bytes says %d", size, p.Size())
			}
		}

		inOrder(t, packs, len(files), 64)
		inOrder(t, InPacks(files), len(files), 64)

		most := min(max(len(files)/(2*workers), 8), 64)
		inOrder(t, InStaging(files, workers), len(files), most)
		inOrder(t, InTheTar(files, workers), len(files), most)
		for _, group := range InStaging(files, workers) {
			if group[0].Pack != group[len(group)-1].Pack {
				t.Fatal("a group has files of two packs")
			}
		}
		next := 0
		for _, group := range InShares(files, workers) {
			for _, f := range group {
				if f.Index != next || len(group) > max(len(files)/(2*workers), 1) {
					t.Fatalf("file %d stands where %d should, in a group of %d", f.Index, next, len(group))
				}
				next++
			}
		}
		if next != len(files) {
			t.Fatalf("%d of %d files are in shares", next, len(files))
		}
		for _, group := range InPacks(files) {
			if !slices.Equal(group, group[0].Pack.Files) {
				t.Fatalf("a group has %d files, its pack %d", len(group), len(group[0].Pack.Files))
			}
		}
	})
}

// inOrder checks that groups hold all files in their order, and each group what
// one request may read.
func inOrder(t *rapid.T, groups [][]*File, files, most int) {
	next := 0
	for _, group := range groups {
		for i, f := range group {
			if f.Index != next {
				t.Fatalf("file %d stands where %d should", f.Index, next)
			}
			next++
			if len(group) > 1 && f.Size > 256<<10 {
				t.Fatalf("a file of %d bytes is in a group of %d", f.Size, len(group))
			}
			if i > 0 && f.Offset-(group[i-1].Offset+group[i-1].Size) > 64<<10 {
				t.Fatalf("file %d is in a group with one that lies far before it", f.Index)
			}
		}
		span := group[len(group)-1].Offset + group[len(group)-1].Size - group[0].Offset
		if len(group) > most || len(group) > 1 && span > 2<<20 {
			t.Fatalf("a group of %d files spans %d bytes", len(group), span)
		}
	}
	if next != files {
		t.Fatalf("%d of %d files are in groups", next, files)
	}
}

// The same files make the same pack, and other content another.
func TestPackIsNamedByItsContent(t *testing.T) {
	t.Parallel()
	name := func(sums ...byte) string {
		var files []*File
		for i, sum := range sums {
			files = append(files, &File{Offset: int64(1024 * i), Content: copies.Content{Size: 10, SHA256: [32]byte{sum}}})
		}
		PackFiles(files)
		return files[0].Pack.Key()
	}
	if a, b := name(1, 2), name(1, 2); a != b {
		t.Errorf("the same files are named %s and %s", a, b)
	}
	for _, other := range []string{name(2, 1), name(1, 3), name(1, 2, 3)} {
		if other == name(1, 2) {
			t.Errorf("other files are named %s too", other)
		}
	}
}

// A file's uuid is the same for the same upload, and no other's.
func TestFileUUID(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 1, ObjectIdentifier: "test.edu/bag", ETag: "a"}
	mine := FileUUID(item, 3, "data/x")
	if again := FileUUID(item, 3, "data/x"); again != mine {
		t.Errorf("%s, and %s again", mine, again)
	}
	anotherItem, anotherObject, anotherUpload := item, item, item
	anotherItem.ID, anotherObject.ObjectIdentifier, anotherUpload.ETag = 2, "test.edu/bags", "b"
	for name, other := range map[string]string{
		"another item":   FileUUID(anotherItem, 3, "data/x"),
		"another object": FileUUID(anotherObject, 3, "data/x"),
		"another upload": FileUUID(anotherUpload, 3, "data/x"),
		"another place":  FileUUID(item, 4, "data/x"),
		"another path":   FileUUID(item, 3, "data/y"),
	} {
		if other == mine {
			t.Errorf("%s has the same uuid", name)
		}
	}
}
