package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// badCopies is where in Redis Storage Validation names the copies that Store has to
// make again although their bucket describes them as they should be. Without it, Store
// makes those again that are described otherwise, or not there.
const badCopies = "bad-copies"

// badCopy is a copy that is not what it should be.
type badCopy struct {
	file   *file
	target string
	err    error
}

func (b *badCopy) Error() string {
	return fmt.Sprintf("copy of %s in %s under the key %s: %v", b.file.path, b.target, b.file.key, b.err)
}

func (b *badCopy) Unwrap() error { return b.err }

// noteOf is the name of a copy under badCopies.
func noteOf(target string, f *file) string { return target + " " + f.key }

// badCopiesIn finds the bad copies in a tree of errors, and whether that is all that
// is in it.
func badCopiesIn(err error) (list []*badCopy, all bool) {
	switch e := err.(type) { //nolint:errorlint // each node of the tree is looked at
	case *badCopy:
		return []*badCopy{e}, true
	case interface{ Unwrap() []error }:
		all = true
		for _, err := range e.Unwrap() {
			some, only := badCopiesIn(err)
			list, all = append(list, some...), all && only
		}
		return list, all
	case interface{ Unwrap() error }:
		return badCopiesIn(e.Unwrap())
	}
	return nil, false
}

// sendBack has bad copies made again. Anything else that is wrong comes first: what is
// found then may be more.
func (s *verify) sendBack(ctx context.Context, w *work, err error) error {
	list, all := badCopiesIn(err)
	if !all {
		return err
	}
	each := make([]error, len(list))
	for i, b := range list {
		each[i] = about(b.file.path, b)
		kept := s.Progress.Put(ctx, w.claim(), badCopies, noteOf(b.target, b.file), b.err.Error())
		switch {
		case errors.Is(kept, progress.ErrLost):
			return w.progressErr(kept)
		case kept != nil:
			w.log.WarnContext(ctx, "bad copy not noted; Store replaces it only if its size, checksum or metadata differ", "err", kept)
		}
	}
	return claim.SendBackAs("bad-copy", "Store", errors.Join(each...))
}

// isBad tells whether a copy was found bad, whatever its bucket says of it.
func (c copyPlan) isBad(target int, f *file) bool {
	return c.bad[noteOf(c.names[target], f)] != ""
}

// replaced forgets that a copy was bad. If it cannot, the copy is made once more after
// a crash.
func (s *store) replaced(ctx context.Context, w *work, c copyPlan, target int, f *file) error {
	if !c.isBad(target, f) {
		return nil
	}
	w.log.InfoContext(ctx, "bad copy replaced", "path", f.path, "target", c.names[target], "key", f.key)
	err := s.Progress.Put(ctx, w.claim(), badCopies, noteOf(c.names[target], f), "")
	if errors.Is(err, progress.ErrLost) {
		return w.progressErr(err)
	}
	return nil
}

// readBack compares the bytes of a new copy with its digest, and tells whether it could:
// what was archived at once cannot be read.
func readBack(ctx context.Context, f *file, target *storage.Bucket) (read bool, err error) {
	want := hex.EncodeToString(f.sha256[:])
	l, err := look(ctx, target, f.key, want, time.Second)
	switch {
	case errors.Is(err, storage.ErrArchived):
		return false, nil
	case errors.Is(err, errWavers):
		return false, wrongAnswer(target, "two reads differ", "read %s back: %w", f.path, err)
	case err != nil:
		return false, storageErr(err)
	case l.found != want:
		return false, wrong("its content has the SHA-256 %s and should have %s", orNothing(l.found), want)
	}
	return true, nil
}
