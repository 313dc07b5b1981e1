package lists

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/copies"
)

// Whatever files a bag has: each lies in one piece of the tar and in one group of work, in
// order, and what is read in one request is small and lies together in one piece.
func TestPiecesAndGroupsOfFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(0, 5000), rapid.Int64Range(60_000, 70_000), rapid.Int64Range(WholeFile-2, WholeFile+2),
			rapid.Int64Range(0, 5<<20)), 0, 300).Draw(t, "sizes")
		workers := rapid.IntRange(1, 16).Draw(t, "workers")
		var files []*File
		offset, wanted := int64(512), int64(0)
		for i, size := range sizes {
			files = append(files, &File{Index: i, Offset: offset, Content: copies.Content{Path: fmt.Sprint(i), Size: size}})
			offset += (size+511)/512*512 + 512 + rapid.SampledFrom([]int64{0, 0, 0, 512, 100_000, 8 << 20, 100 << 20}).Draw(t, "gap")
			wanted += size
		}
		tar := offset + 1024
		StageIn(files, tar)

		var pieces []*Piece
		for _, f := range files {
			p := f.Piece
			if n := len(pieces); n == 0 || p != pieces[n-1] {
				pieces = append(pieces, p)
			}
			if f.Offset < p.Offset || f.Offset+f.Size > p.Offset+p.Length || p.Offset+p.Length > tar {
				t.Fatalf("file %d at %d of %d bytes is in the piece %s of a tar of %d", f.Index, f.Offset, f.Size, p.Key(), tar)
			}
		}
		var staged int64
		keys := map[string]bool{}
		for i, p := range pieces {
			staged += p.Length
			if keys[p.Key()] || i > 0 && p.Offset-pieces[i-1].Offset-pieces[i-1].Length <= 8<<20 {
				t.Fatalf("the piece %s begins close behind another, or there are two of it", p.Key())
			}
			keys[p.Key()] = true
		}
		switch whole := len(pieces) == 1 && staged == tar; {
		case len(files) > 0 && tar <= 256<<20 && !whole:
			t.Fatalf("a small tar is staged in %d pieces", len(pieces))
		case !whole && staged > tar/2:
			t.Fatalf("%d of %d bytes are staged in %d pieces", staged, tar, len(pieces))
		case whole && tar > 256<<20 && wanted+int64(len(files))*(8<<20+1024) < tar/2:
			t.Fatalf("a tar of %d bytes is staged whole for %d", tar, wanted)
		}

		most := min(max(len(files)/(2*workers), 8), 64)
		inOrder(t, InPieces(files), len(files), len(files), math.MaxInt64, math.MaxInt64)
		for _, largest := range []int64{WholeFile, SentFile, SmallTar} {
			groups := InRequests(files, workers, largest)
			inOrder(t, groups, len(files), most, largest, 2<<20)
			for _, group := range groups {
				if group[0].Piece != group[len(group)-1].Piece {
					t.Fatal("a group has files of two pieces")
				}
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
			if i > 0 && bytes < math.MaxInt64 && f.Offset-(group[i-1].Offset+group[i-1].Size) > 64<<10 {
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

// Of a later version of a large bag with one changed file, that file is staged and not the whole
// tar; a small bag is staged whole, which is one request.
func TestOnlyWhatIsWantedOfALargeTarIsStaged(t *testing.T) {
	t.Parallel()
	one := &File{Offset: 300 << 20, Content: copies.Content{Size: 5000}}
	near := &File{Offset: 301 << 20, Content: copies.Content{Size: 7}}
	far := &File{Offset: 900 << 20, Content: copies.Content{Size: 9}}
	for _, tc := range []struct {
		files []*File
		tar   int64
		want  []string
	}{
		{[]*File{one, near, far}, 1000 << 20, []string{"tar-314572800-1048583", "tar-314572800-1048583", "tar-943718400-9"}},
		{[]*File{{Offset: 512, Content: copies.Content{Size: 600 << 20}}, far}, 1000 << 20, []string{"tar-0-1048576000", "tar-0-1048576000"}},
		{[]*File{{Offset: 1 << 20}}, 256 << 20, []string{"tar-0-268435456"}},
	} {
		StageIn(tc.files, tc.tar)
		for i, f := range tc.files {
			if got := f.Piece.Key(); got != tc.want[i] {
				t.Errorf("the file at %d of a tar of %d bytes is in %s, want %s", f.Offset, tc.tar, got, tc.want[i])
			}
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
