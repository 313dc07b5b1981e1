package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// glacierRestore makes the archived copies of a file or an object readable, and ends when all
// of them are. In the transaction of its end, the database inserts the item that restores
// them. Each poll asks the provider about every file, so nothing is remembered between polls.
type glacierRestore struct{ pipeline.Deps }

// readableFor is how long a copy must stay readable for its file to count: a copy that is
// ready early must still be readable when the others are.
const readableFor = 24 * time.Hour

func (s *glacierRestore) Run(ctx context.Context, w *pipeline.Work) error {
	if _, err := beforeRestoring(ctx, s.Registry, w); err != nil {
		return err // before it costs anything
	}
	r, err := requests.In(s.Registry).Retrieval(ctx, w.Item.ID)
	if err != nil {
		return err
	}
	if !r.Approved {
		return claim.Suspend("cost-approval", fmt.Sprintf("It costs about $%s, which is more than $%s: an admin must approve it.",
			r.Price, r.Cap))
	}
	look := retrieving{glacierRestore: s, w: w, r: r}
	const page = 1000
	for files, err := range many.Pages(page, s.Registry.StoredFiles(ctx, w.Item.Request.ObjectID, w.Item.Request.FileID)) {
		if err != nil {
			return err
		}
		if err := look.at(ctx, files); err != nil {
			return err
		}
	}
	if err := look.end(); err != nil {
		return err
	}
	if look.pending > 0 {
		return claim.Snooze(cmp.Or(s.ColdPoll, r.Poll), look.waiting())
	}
	w.ObjectID = w.Item.Request.ObjectID
	w.Note, w.Outcome = look.readyNote(), "Archived copies are readable"
	return requests.In(s.Registry).NoteReadable(ctx, w.Item.ID, look.until)
}

// waiting says what the item waits for, and until when.
func (l *retrieving) waiting() string {
	note := fmt.Sprintf("The archived copies of the %s in %s are being restored by the provider. %d of %d files cannot be read yet", l.r.About, l.r.Class, l.pending, l.files)
	if l.r.Expected != nil {
		note += fmt.Sprintf("; with tier %s all should be readable by %s", l.r.Tier, minuteOf(*l.r.Expected))
	}
	return note + "."
}

// readyNote says what was done: the copies are still archived, and the provider keeps readable
// copies of them for some days.
func (l *retrieving) readyNote() string {
	note := fmt.Sprintf("The %s is readable now", l.r.About)
	if l.until.IsZero() {
		return note + "."
	}
	return note + fmt.Sprintf(": the copies that %s restored from the archive stay readable until %s.", l.r.Class, minuteOf(l.until))
}

func minuteOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// retrieving is one poll for all files.
type retrieving struct {
	*glacierRestore

	w     *pipeline.Work
	r     requests.Retrieval
	files int64

	mu      sync.Mutex
	pending int64
	until   time.Time // the first of the archived copies lapses; zero if none was needed
	lost    []string  // what is wrong with each file that no provider will give back
	more    int
	misled  string // the bucket that said so, which may not be the right one
}

// at looks at files, several at once.
func (l *retrieving) at(ctx context.Context, files []registry.StoredFile) error {
	l.files += int64(len(files))
	l.w.Hold.CurrentFile(files[0].Identifier)
	return many.AtOnce(ctx, 2*max(l.Files, 1), files, l.one)
}

// end judges the whole: a file that cannot be restored is reported, whatever became of
// the others.
func (l *retrieving) end() error {
	if len(l.lost) == 0 {
		return nil
	}
	text := strings.Join(l.lost, "; ")
	if l.more > 0 {
		text += fmt.Sprintf("; and %d more", l.more)
	}
	end := claim.Fatal("copy-missing", "%d files cannot be restored from %s: %s", len(l.lost)+l.more, l.r.Class, text)
	return claim.Doubt(l.misled, end)
}

// one has one file's archived copy made readable, if it is not.
func (l *retrieving) one(ctx context.Context, f registry.StoredFile) error {
	c, ok := archivedIn(l.Targets, l.r.Class, f.Copies)
	if !ok {
		return nil // there is a copy that can be read at any time
	}
	b, err := l.Targets.Holding(c.Target, c.Bucket)
	if err != nil {
		return err
	}
	until, readable, err := l.readable(ctx, b, c.Key)
	if err == nil && readable {
		l.lapses(until)
		return nil
	}
	lost := errors.Is(err, storage.ErrNotFound) || cause.DeniedAlone(ctx, b, err)
	if errors.Is(err, storage.ErrNotFound) {
		if _, err := l.Targets.Prove(ctx, l.Registry, c, f.SHA256, err); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case lost:
		l.misled = b.Service()
		l.lose(f, c, err)
	case err != nil:
		return cause.Storage(err)
	default:
		l.pending++
	}
	return nil
}

// lapses notes until when a copy can be read; zero has no end.
func (l *retrieving) lapses(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !until.IsZero() && (l.until.IsZero() || until.Before(l.until)) {
		l.until = until
	}
}

// readable tells whether an archived copy can be read, and until when, and asks its
// provider for it if it cannot, and nobody has.
func (l *retrieving) readable(ctx context.Context, b *storage.Bucket, key string) (until time.Time, yes bool, err error) {
	o, err := copies.Head(ctx, b, key)
	if err != nil || o.Restoration.Ongoing || o.Readable(time.Now().Add(readableFor)) {
		return o.Restoration.Expires, err == nil && o.Readable(time.Now().Add(readableFor)), err
	}
	state, err := b.Restore(ctx, key, storage.Retrieval{Days: l.r.Days, Tier: l.r.Tier})
	if err != nil || state != storage.RetrievalDone {
		return time.Time{}, false, err
	}
	o, err = b.Head(ctx, key) // it is readable for longer than before
	return o.Restoration.Expires, err == nil, err
}

func (l *retrieving) lose(f registry.StoredFile, c record.StoredCopy, err error) {
	const most = 20
	if len(l.lost) == most {
		l.more++
		return
	}
	l.lost = append(l.lost, fmt.Sprintf("%s in %s: %v", f.Identifier, c.Target, err))
}

// archivedIn is the copy of a file that is restored: the first by priority of those
// in the class that was asked for.
func archivedIn(t copies.Targets, class string, copies []record.StoredCopy) (record.StoredCopy, bool) {
	for _, c := range t.ByPriority(copies) {
		if b := t[c.Target]; b != nil && b.Class() == class {
			return c, true
		}
	}
	return record.StoredCopy{}, false
}

// ArchiveClass is the storage class from which what is kept under an option has to
// be restored before it can be read; "" if its first copy by priority can be read at
// any time. With fromArchive it is that of the first archived copy all the same.
// classOf tells the class of a target.
func ArchiveClass(option string, classOf func(target string) string, fromArchive bool) string {
	specs := storage.Targets() // by priority
	for _, spec := range specs {
		if spec.Option != option {
			continue
		}
		class := classOf(spec.Name)
		if class == "GLACIER" || class == "DEEP_ARCHIVE" {
			return class
		}
		if !fromArchive {
			return ""
		}
	}
	return ""
}
