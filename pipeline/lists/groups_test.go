package lists

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
)

// Whatever files a bag has: each lies in one group of work, in order, and what is read in one
// request is small and lies together.
func TestGroupsOfFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 5000), rapid.Int64Range(60_000, 70_000), rapid.Int64Range(WholeFile-2, WholeFile+2),
			rapid.Int64Range(0, 5<<20)), 0, 300).Draw(t, "sizes")
		workers := rapid.IntRange(1, 16).Draw(t, "workers")
		var files []*File
		offset := int64(512)
		for i, size := range sizes {
			files = append(files, &File{Index: i, Offset: offset, Content: copies.Content{Path: fmt.Sprint(i), Size: size}})
			offset += (size+511)/512*512 + 512 + rapid.SampledFrom([]int64{0, 0, 0, 512, 100_000, 8 << 20, 100 << 20}).Draw(t, "gap")
		}
		most := min(max(len(files)/(2*workers), 8), 64)
		for _, largest := range []int64{WholeFile, SentFile, SmallTar} {
			inOrder(t, InRequests(files, workers, largest), len(files), most, largest, 2<<20)
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
	})
}

// inOrder checks that groups hold all files in their order, and each group what
// one request may read.
func inOrder(t *rapid.T, groups [][]*File, files, most int, largest, bytes int64) {
	next := 0
	for _, group := range groups {
		for i, f := range group {
			if f.Index != next {
				t.Fatalf("file %d stands where %d should", f.Index, next)
			}
			next++
			if len(group) > 1 && f.Size > largest {
				t.Fatalf("a file of %d bytes is in a group of %d", f.Size, len(group))
			}
			if i > 0 && f.Offset-(group[i-1].Offset+group[i-1].Size) > 64<<10 {
				t.Fatalf("file %d is in a group with one that lies far before it", f.Index)
			}
		}
		span := group[len(group)-1].Offset + group[len(group)-1].Size - group[0].Offset
		if len(group) > most || len(group) > 1 && span > bytes {
			t.Fatalf("a group of %d files spans %d bytes", len(group), span)
		}
	}
	if next != files {
		t.Fatalf("%d of %d files are in groups", next, files)
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
	for name, other := range map[string]uuid.UUID{
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
