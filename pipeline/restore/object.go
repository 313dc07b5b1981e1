package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/storage"
)

// restoreObject restores an object as a bag in a tar. The files are read from preservation,
// compared with their digests and written to staging part by part, with nothing on disk. The
// tar in staging is judged like an incoming bag, and then gets its name.
type restoreObject struct{ pipeline.Deps }

func (s *restoreObject) Run(ctx context.Context, w *pipeline.Work) error {
	object, err := beforeRestoring(ctx, s.Registry, w)
	if err != nil {
		return err
	}
	given := newGiving(s.Deps, w)
	l, err := newLayout(ctx, given, object, w.Item.Request.CreatedAt)
	if err != nil {
		return err
	}
	if l.files == 0 {
		return claim.Fatal("restore-deleted", "All files of the object %s were deleted.", object.Identifier)
	}
	g := giveBack{
		key: object.Identifier + ".tar", about: object.Identifier, mime: "application/x-tar", size: l.size, files: l.files, id: l.id(),
		note: func(url string) (string, string) {
			return fmt.Sprintf("Object %s restored to %s.", object.Identifier, url), "Bag restoration complete"
		},
		judge: func(ctx context.Context, staged storage.Object) error { return l.judge(ctx, given, staged) },
	}
	g.stream = stream{giving: given, partSize: partSizeOf(l.size), write: l.writeTar}
	return g.run(ctx)
}

// judge is judgeOnce, but an invalid tar must be found so twice.
func (l *layout) judge(ctx context.Context, g *giving, staged storage.Object) error {
	first := l.judgeOnce(ctx, g, staged)
	if claim.Code(first) != "restore-invalid" {
		return first
	}
	g.w.Log.WarnContext(ctx, "restored bag is invalid; reading it again", "err", first)
	second := l.judgeOnce(ctx, g, staged)
	if second != nil && claim.Code(second) == "restore-invalid" && second.Error() != first.Error() {
		return cause.WrongAnswer(g.Staging, "two reads differ", "two reads of the restored bag differ: %v, and then %v", first, second)
	}
	return second
}

// judgeOnce reads the index of the tar in staging, and its manifests and tag files, and
// judges the bag by the rules for those that come in. The digests of the other files
// are those that they were found to have on their way.
func (l *layout) judgeOnce(ctx context.Context, g *giving, staged storage.Object) error {
	key := lists.Key(g.w.Item.ID, stagedRestore)
	if staged.Size != l.size {
		return claim.Transient("restore-damaged", fmt.Errorf("the tar in staging has %d bytes and should have %d", staged.Size, l.size))
	}
	if err := g.w.Enter(ctx, int(l.files)); err != nil {
		return err
	}
	next, stop := iter.Pull2(g.Registry.StoredFiles(ctx, l.object.ID, 0))
	defer stop()
	known := func(path string, size int64) (bag.Digests, bool, error) {
		for {
			f, err, ok := next()
			if !ok || err != nil {
				return bag.Digests{}, false, err
			}
			if l.path(f) == path {
				d, err := l.digests(f)
				return d, f.Size == size && err == nil, err
			}
			if l.path(f) > path {
				return bag.Digests{}, false, nil
			}
		}
	}
	tar := &jumps{at: g.Staging.ReaderAt(ctx, key, staged.Size, staged.ETag), size: staged.Size}
	b, err := bag.ReadIndex(ctx, tar, known, bag.ReadOptions{MaxFiles: max(g.MaxFiles, int(l.files)+100)})
	if err != nil {
		return cause.Storage(err)
	}
	return l.verdict(b, g.Profiles.Of(b))
}

// verdict refuses a tar that is not a valid bag. A bag that lost files by deletions may lack
// files that its profile requires, and is restored anyway.
func (l *layout) verdict(b *bag.Bag, p *bag.Profile) error {
	v := b.Validate(profile.Plain())
	if v.Valid && l.object.Deletions == 0 {
		v = b.Validate(p)
	}
	files := int64(0)
	for _, f := range b.Files {
		if f.Preservable() && !f.Missing {
			files++
		}
	}
	switch {
	case !v.Valid && len(v.Errors) > 0:
		return claim.Fatal("restore-invalid", "The restored bag is not valid and was not delivered: %s", v.Errors[0].Message)
	case !v.Valid || files != l.files:
		return claim.Fatal("restore-invalid", "The restored bag has %d files, expected %d. It was not delivered.", files, l.files)
	}
	return nil
}

// jumps reads a tar in staging of which most is passed over. What is read in a row
// comes in pieces that grow, so that neither many small files nor few large ones
// cost many requests, or bytes that nobody wants.
type jumps struct {
	at    io.ReaderAt
	size  int64
	pos   int64
	begin int64  // of bytes in the tar
	bytes []byte // the current piece
	piece int    // size of the last one
}

const (
	leastPiece = 32 << 10
	mostPiece  = 2 << 20
)

// Read reads from the current piece, or gets the next one.
func (j *jumps) Read(p []byte) (int, error) {
	if j.pos >= j.size {
		return 0, io.EOF
	}
	if j.pos < j.begin || j.pos >= j.begin+int64(len(j.bytes)) {
		if err := j.get(); err != nil {
			return 0, err
		}
	}
	n := copy(p, j.bytes[j.pos-j.begin:])
	j.pos += int64(n)
	return n, nil
}

func (j *jumps) get() error {
	end := j.begin + int64(len(j.bytes))
	near := j.pos >= end && j.pos-end < int64(max(j.piece, leastPiece))
	j.piece = leastPiece
	if near && len(j.bytes) > 0 {
		j.piece = min(2*len(j.bytes), mostPiece)
	}
	n := min(int64(j.piece), j.size-j.pos)
	if int64(cap(j.bytes)) < n {
		j.bytes = make([]byte, n)
	}
	j.bytes, j.begin = j.bytes[:n], j.pos
	read, err := j.at.ReadAt(j.bytes, j.pos)
	if int64(read) == n {
		return nil
	}
	j.bytes = j.bytes[:0]
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Seek only notes the place.
func (j *jumps) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += j.pos
	case io.SeekEnd:
		offset += j.size
	}
	if offset < 0 {
		return 0, errors.New("before the beginning of the tar")
	}
	j.pos = offset
	return offset, nil
}
