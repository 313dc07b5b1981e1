package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// copyTries is how often a copy is tried in a row.
const copyTries = 3

// giving reads files from preservation to restore them, from the best copy that is readable,
// and compares all bytes with the digests. A copy whose bytes are not those on record is
// skipped for the rest of the attempt.
type giving struct {
	pipeline.Deps

	w          *pipeline.Work
	algorithms []bag.Algorithm // that are computed of each file; SHA-256 always

	mu         sync.Mutex
	bad        map[string]error              // copies that are of no use, by URL
	unrecorded []func(context.Context) error // what was seen of these and could not be put on record yet
	doubted    map[string]string             // what was wrong with the bytes of copies that are read again, by URL
}

func newGiving(d pipeline.Deps, w *pipeline.Work) *giving {
	return &giving{Deps: d, w: w, bad: map[string]error{}, doubted: map[string]string{}}
}

// smallContent is the size up to which a file is read into memory and compared before the
// first of its bytes is passed on.
const smallContent = 1 << 20

// doubt notes what is wrong with the bytes of a copy, and tells whether that was so
// when it was read before.
func (g *giving) doubt(c record.StoredCopy, err error) (same bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	same = g.doubted[c.URL] == err.Error()
	g.doubted[c.URL] = err.Error()
	return same
}

// spoil notes why a copy is of no use, and has it on record if the copy is to blame.
func (g *giving) spoil(ctx context.Context, f registry.StoredFile, c record.StoredCopy, err error) {
	g.mu.Lock()
	known := g.bad[c.URL] != nil
	g.bad[c.URL] = err
	g.mu.Unlock()
	if known {
		return
	}
	g.w.Log.WarnContext(ctx, "copy is unusable; trying the next one", "file", f.Identifier, "target", c.Target, "url", c.URL, "err", err)
	prove := func(ctx context.Context) error {
		_, err := g.Targets.Prove(ctx, g.Registry, c, f.SHA256, err)
		return err
	}
	if failed := prove(ctx); failed != nil {
		g.w.Log.WarnContext(ctx, "cannot record a bad copy; retrying at the end of the restoration", "url", c.URL, "err", failed)
		g.mu.Lock()
		g.unrecorded = append(g.unrecorded, prove)
		g.mu.Unlock()
	}
}

// tell puts on record what could not be when it was seen.
func (g *giving) tell(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.unrecorded) > 0 {
		if err := g.unrecorded[0](ctx); err != nil {
			return err
		}
		g.unrecorded = g.unrecorded[1:]
	}
	return nil
}

// useless tells whether another try at the same copy is of no use, now or later.
func useless(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrArchived) || errors.Is(err, storage.ErrDenied) || errors.Is(err, copies.ErrBadCopy)
}

// mayBeTheWay tells whether another read of the same copy may find it good: the connection may
// be at fault.
func mayBeTheWay(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, copies.ErrBadCopy)
}

// ends tells whether an error comes from the reader and not from a copy: it was closed, or
// it reads on from another place.
func ends(err error) bool {
	_, again := errors.AsType[*storage.RewindError](err)
	return again || errors.Is(err, errClosed)
}

// errClosed is the error of a write after the reader was closed.
var errClosed = errors.New("the reader is closed")

// fromAny calls read for the copies of a file, the best first, until one is good. A transient
// error is retried, and blames no copy.
func (g *giving) fromAny(ctx context.Context, f registry.StoredFile, read func(b *storage.Bucket, c record.StoredCopy) error) error {
	for _, c := range g.Targets.ByPriority(f.Copies) {
		b, err := g.Targets.Holding(c.Target, c.Bucket)
		if err != nil {
			return err
		}
		err = g.from(ctx, f, c, func() error { return read(b, c) })
		switch {
		case g.why(c) != nil:
		case errors.Is(err, copies.ErrBadCopy) && !ends(err):
			return cause.WrongAnswer(b, "repeated reads differ", "%s in %s: repeated reads differ: %w", f.Identifier, c.Target, err)
		default:
			return err
		}
	}
	if err := g.thaw(ctx, f); err != nil {
		return err
	}
	return g.unreadable(ctx, f)
}

// from tries a copy until it is good or useless. An error that the connection may have caused
// counts against the copy only if it occurs twice.
func (g *giving) from(ctx context.Context, f registry.StoredFile, c record.StoredCopy, read func() error) error {
	var before error
	for try := 1; try <= copyTries && g.why(c) == nil; try++ {
		err := read()
		denied := cause.DeniedAlone(ctx, g.Targets[c.Target], err) // else it is the bucket that fails, and no copy
		if err == nil || ctx.Err() != nil || !denied && cause.Known(err) || ends(err) {
			return err
		}
		if useless(err) && (!mayBeTheWay(err) || before != nil && before.Error() == err.Error()) {
			g.spoil(ctx, f, c, err)
		}
		before = err
	}
	return cause.Storage(fmt.Errorf("%s: %w", f.Identifier, before))
}

// mostThawed is how many files of one item are retrieved from an archive class although nobody
// was told the costs.
const mostThawed = 20

// thaw starts the retrieval of an archived copy if no other copy of a file is good, and
// postpones the item. It returns nil if there is no archived copy.
func (g *giving) thaw(ctx context.Context, f registry.StoredFile) error {
	for _, c := range g.Targets.ByPriority(f.Copies) {
		b := g.Targets[c.Target]
		if !errors.Is(g.why(c), storage.ErrArchived) {
			continue
		}
		more, err := g.mayThaw(ctx, f)
		if err != nil {
			return err
		}
		if !more {
			return claim.Suspend("copies-archived", fmt.Sprintf("Of more than %d files only archived copies are good; the last of them is %s. "+
				"Cancel this item, and ask for the restoration from the archive, which says first what it costs.", mostThawed, f.Identifier))
		}
		if _, err = b.Restore(ctx, c.Key, storage.Retrieval{Days: thawedDays, Tier: thawedTier}); err != nil {
			return cause.Storage(fmt.Errorf("restore the archived copy of %s: %w", f.Identifier, err))
		}
		poll, takes, err := requests.In(g.Registry).RetrievalTimes(ctx, b.Class(), thawedTier)
		if err != nil {
			return err
		}
		note := fmt.Sprintf("No copy of %s is readable now. The copy in %s, in class %s, is being restored by the provider first", f.Identifier, c.Target, b.Class())
		if takes > 0 {
			note += fmt.Sprintf(", which takes up to %.1f hours", takes.Hours())
		}
		return claim.Snooze(cmp.Or(g.ColdPoll, poll), note+".")
	}
	return nil
}

// mayThaw counts the files that this item had made readable, each once.
func (g *giving) mayThaw(ctx context.Context, f registry.StoredFile) (bool, error) {
	const prefix = "thawed:"
	kept, err := g.w.Progress.Blobs(ctx, g.w.Item.ID, g.w.Pass())
	if err != nil {
		return false, g.w.ProgressErr(err)
	}
	n, name := 0, prefix+strconv.FormatInt(f.ID, 10)
	for key := range kept {
		if strings.HasPrefix(key, prefix) && key != name {
			n++
		}
	}
	if n >= mostThawed {
		return false, nil
	}
	return true, g.w.ProgressErr(g.w.Progress.Put(ctx, g.w.Claim(), g.w.Pass(), name, f.Identifier))
}

const (
	thawedDays = 5
	thawedTier = "Standard"
)

// why tells why a copy is of no use; nil if it may be of some.
func (g *giving) why(c record.StoredCopy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bad[c.URL]
}

// unreadable is the end of a restoration: no copy of a file is good. It names other such files
// too, so that a person sees all of them at once.
func (g *giving) unreadable(ctx context.Context, first registry.StoredFile) error {
	const most = 20
	list := []string{g.complaint(first)}
	for f, err := range g.Registry.StoredFilesAfter(ctx, g.w.Item.Request.ObjectID, g.w.Item.Request.FileID, first.Identifier) {
		if err != nil || len(list) == most || ctx.Err() != nil {
			break // what is known is enough to tell
		}
		if g.missing(ctx, f) {
			list = append(list, g.complaint(f))
		}
	}
	if err := g.tell(ctx); err != nil {
		return err
	}
	end := claim.Fatal("copies-unreadable", "There is no good copy of: %s. Nothing was delivered.", strings.Join(list, "; "))
	for _, c := range first.Copies {
		if b, err := g.Targets[c.Target], g.why(c); b != nil && (errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDenied)) {
			return claim.Doubt(b.Service(), end) // this process may look into the wrong bucket
		}
	}
	return end
}

// missing tells whether none of a file's copies is there, and notes why.
func (g *giving) missing(ctx context.Context, f registry.StoredFile) bool {
	for _, c := range f.Copies {
		b, err := g.Targets.Holding(c.Target, c.Bucket)
		if err != nil {
			return false
		}
		_, err = b.Head(ctx, c.Key)
		if !errors.Is(err, storage.ErrNotFound) {
			return false
		}
		g.spoil(ctx, f, c, err)
	}
	return true
}

func (g *giving) complaint(f registry.StoredFile) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var said []string
	for _, c := range f.Copies {
		if err := g.bad[c.URL]; err != nil {
			said = append(said, fmt.Sprintf("%s: %v", c.Target, err))
		}
	}
	if len(said) == 0 {
		said = []string{"no copy is on record"}
	}
	return f.Identifier + " (" + strings.Join(said, ", ") + ")"
}

// small returns the content of a small file, which is right.
func (g *giving) small(ctx context.Context, f registry.StoredFile) (content []byte, err error) {
	err = g.fromAny(ctx, f, func(b *storage.Bucket, c record.StoredCopy) error {
		body, err := b.Get(ctx, c.Key, storage.Range{Length: -1})
		if err != nil {
			return err
		}
		defer body.Close() //nolint:errcheck // what was read of it is checked
		content = make([]byte, f.Size)
		if got := copies.Fill(body, content); int64(len(got.Buf)) < f.Size {
			if errors.Is(got.Err, io.EOF) {
				return fmt.Errorf("%w: it ends before its %d bytes", copies.ErrBadCopy, f.Size)
			}
			return got.Err
		}
		if n, _ := body.Read(make([]byte, 1)); n > 0 {
			return fmt.Errorf("%w: it has more than %d bytes", copies.ErrBadCopy, f.Size)
		}
		s := copies.NewSums(g.algorithms)
		_, _ = s.Write(content) // never an error
		return s.Differ(f)
	})
	return content, err
}
