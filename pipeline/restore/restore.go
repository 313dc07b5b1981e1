package restore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// giveBack is a restoration in progress. The content goes under a key in staging and is read
// back and judged there. Only then it appears under its final key, by a copy that the store
// makes, and that is read back before anybody is told of it.
type giveBack struct {
	stream

	key    string // final
	about  string // identifier of the file or object
	mime   string
	size   int64
	files  int64
	id     string                                                 // of the content: another one has other bytes
	judge  func(ctx context.Context, staged storage.Object) error // nil: its digest was judged on the way
	note   func(url string) (note, outcome string)                // of success
	bucket *storage.Bucket
}

// restorePoint is how far a restoration has come, as Redis keeps it.
type restorePoint struct {
	ID        string    `json:"id"` // of the content
	Upload    string    `json:"upload,omitempty"`
	Offset    int64     `json:"offset,omitempty"` // of the next part
	State     fileState `json:"state,omitzero"`   // at the offset
	Sum       []byte    `json:"sum,omitempty"`    // state of the SHA-256 of the content up to the offset
	Built     []byte    `json:"built,omitempty"`  // SHA-256 of the whole as it was built
	Staged    string    `json:"staged,omitempty"` // ETag of the whole in staging
	Published string    `json:"published,omitempty"`
	Read      readPoint `json:"read,omitzero"`    // of what was staged or published last
	Spoilt    int       `json:"spoilt,omitempty"` // how often it was written in vain
}

// usable tells whether an attempt can go on there. Earlier versions kept no digests.
func (p restorePoint) usable() bool {
	return (p.Offset == 0 || len(p.Sum) > 0) && (p.Staged == "" && p.Published == "" || len(p.Built) == sha256.Size)
}

// passed is how many times the whole was written or read back.
func (p restorePoint) passed() int64 {
	switch {
	case p.Published != "":
		return 2
	case p.Staged != "":
		return 1
	}
	return 0
}

const restorePointName = "restore"

func (g *giveBack) run(ctx context.Context) error {
	name, err := g.Registry.RestoreBucket(ctx, g.w.Item.InstitutionID)
	if err != nil {
		return err
	}
	if g.bucket, err = g.Receiving(name); err != nil {
		return fmt.Errorf("open the restoration bucket: %w", err)
	}
	err = g.give(ctx)
	if err != nil && g.last(ctx, err) {
		g.abandon(ctx)
	}
	return err
}

// last tells whether an error ends the restoration for good. Otherwise the next attempt
// continues with the parts that were sent.
func (g *giveBack) last(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() != nil, errors.Is(err, claim.ErrLost), fault.In(err) != nil, claim.Code(err) == "released":
		return false // another attempt follows, or has begun
	case claim.IsTransient(err):
		return g.w.Item.Attempt >= g.w.Item.MaxAttempts
	}
	return true
}

// abandon aborts the open uploads of the restoration. If that fails, the janitor aborts them.
func (g *giveBack) abandon(ctx context.Context) {
	err := g.w.Hold.Check(ctx)
	if err == nil {
		_, err = g.Staging.AbortUploads(ctx, lists.Key(g.w.Item.ID, stagedRestore), time.Now().Add(24*time.Hour))
	}
	if err == nil {
		err = g.abortNamed(ctx)
	}
	if err != nil {
		g.w.Log.WarnContext(ctx, "cannot abort the uploads of a failed restoration; the janitor will", "err", err)
	}
}

// abortNamed aborts what an attempt has left unfinished under the final key: of this key
// alone, since another may begin with it.
func (g *giveBack) abortNamed(ctx context.Context) error {
	for u, err := range g.bucket.OpenUploads(ctx) {
		if err == nil && u.Key == g.key {
			err = g.bucket.Abort(ctx, u)
		}
		if err != nil {
			return fmt.Errorf("abort forgotten uploads: %w", cause.Storage(err))
		}
	}
	return nil
}

func (g *giveBack) give(ctx context.Context) error {
	at, err := g.point(ctx)
	if err != nil {
		return err
	}
	const passes = 3 // it is written, and read back from either bucket
	g.w.StartCounting(ctx, progress.Counters{
		FilesTotal: g.files, BytesTotal: passes * g.size, BytesBefore: at.passed()*g.size + at.Offset + at.Read.Offset,
	})
	for delivered := false; !delivered; {
		err := g.deliver(ctx, &at)
		if delivered = err == nil; errors.Is(err, errSpoilt) {
			err = g.again(ctx, &at, err)
		}
		if err != nil {
			return err
		}
	}
	if err := g.Staging.Delete(ctx, lists.Key(g.w.Item.ID, stagedRestore)); err != nil {
		g.w.Log.WarnContext(ctx, "cannot delete what was staged for the restoration; the janitor will", "err", err)
	}
	g.w.ObjectID = g.w.Item.Request.ObjectID
	if err := g.tell(ctx); err != nil {
		return err
	}
	bad, err := badNote(ctx, g.Registry, g.about)
	g.w.Note, g.w.Outcome = g.note(g.bucket.URL(g.key))
	g.w.Note += bad
	return err
}

// stagedRestore is the name in staging of what is being restored.
const stagedRestore = "Restore.tar"

// point is where an earlier attempt at the same content stopped.
func (g *giveBack) point(ctx context.Context) (at restorePoint, err error) {
	if at, err = loadPoint[restorePoint](ctx, g.w, restorePointName); err != nil {
		return at, err
	}
	if at.ID != g.id || !at.usable() {
		at = restorePoint{ID: g.id}
	}
	return at, nil
}

// loadPoint is how far an earlier attempt has come, as it was saved under a name. What is not
// there, or cannot be read, is the beginning.
func loadPoint[P any](ctx context.Context, w *pipeline.Work, name string) (at P, err error) {
	if _, err := w.Progress.Begin(ctx, w.Claim(), w.Pass()); err != nil {
		return at, w.ProgressErr(err)
	}
	text, err := w.Progress.Get(ctx, w.Item.ID, w.Pass(), name)
	if err != nil {
		return at, w.ProgressErr(err)
	}
	var kept P
	if json.Unmarshal([]byte(text), &kept) == nil {
		at = kept
	}
	return at, nil
}

func savePoint(ctx context.Context, w *pipeline.Work, name string, at any) error {
	text, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("save the progress of the %s: %w", name, err)
	}
	return w.ProgressErr(w.Progress.Put(ctx, w.Claim(), w.Pass(), name, string(text)))
}

// deliver takes the content through what is left to do: to staging, and to its bucket. Each
// time it is read back.
func (g *giveBack) deliver(ctx context.Context, at *restorePoint) error {
	if at.Published == "" {
		if err := g.prepare(ctx, at); err != nil {
			return err
		}
		if err := g.publish(ctx, at); err != nil {
			return err
		}
	}
	return g.proven(ctx, g.bucket, g.key, at.Published, at)
}

// prepare has the content in staging, read back and judged.
func (g *giveBack) prepare(ctx context.Context, at *restorePoint) error {
	if err := g.stage(ctx, at); err != nil {
		return err
	}
	if err := g.proven(ctx, g.Staging, lists.Key(g.w.Item.ID, stagedRestore), at.Staged, at); err != nil {
		return err
	}
	if g.judge == nil {
		return nil
	}
	return g.judge(ctx, storage.Object{Size: g.size, ETag: at.Staged})
}

// stage puts the content under a key in staging, unless it is there.
func (g *giveBack) stage(ctx context.Context, at *restorePoint) error {
	if at.Staged != "" {
		return nil
	}
	key := lists.Key(g.w.Item.ID, stagedRestore)
	if at.Upload == "" {
		if _, err := g.Staging.AbortUploads(ctx, key, time.Now().Add(24*time.Hour)); err != nil {
			return fmt.Errorf("abort forgotten uploads: %w", cause.Storage(err))
		}
	} else {
		g.keep(at.Offset, at.State)
	}
	g.whole.goOn(*at, g.size)
	o, err := g.Staging.PutStream(ctx, key, storage.Upload{ContentType: g.mime}, storage.Stream{
		Size: g.size, PartSize: g.partSize, From: g.from, Resume: at.Upload, Offset: at.Offset,
		SaveID: func(ctx context.Context, id string) error {
			*at = restorePoint{ID: g.id, Upload: id, Spoilt: at.Spoilt}
			return savePoint(ctx, g.w, restorePointName, *at)
		},
		Sent: func(ctx context.Context, offset int64) error {
			at.Offset, at.State, at.Sum = offset, g.stateFor(offset), g.whole.states[offset]
			at.State.Before = g.whole.states[at.State.Begin]
			return savePoint(ctx, g.w, restorePointName, *at)
		},
	})
	if said := g.verdict(nil); said != nil {
		return said // without the parts and uploads on the way
	}
	if err != nil {
		return cause.Storage(err)
	}
	built := g.whole.digest()
	if built == nil {
		return fmt.Errorf("%w: the end of it was not seen here", errSpoilt)
	}
	*at = restorePoint{ID: g.id, Staged: o.ETag, Built: built, Spoilt: at.Spoilt}
	return savePoint(ctx, g.w, restorePointName, *at)
}

// stateFor is the state kept for the part at an offset; zero if it begins between
// two files, or where there are only small ones.
func (s *stream) stateFor(offset int64) fileState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[offset]
}

// publish gives it its final name: nothing can be seen under it before, and the
// whole can afterwards.
func (g *giveBack) publish(ctx context.Context, at *restorePoint) error {
	if err := g.w.Hold.Check(ctx); err != nil {
		return err
	}
	// What an attempt that died here has left unfinished.
	if err := g.abortNamed(ctx); err != nil {
		return err
	}
	up := storage.Upload{Size: g.size, SHA256: [sha256.Size]byte(at.Built), ContentType: g.mime, Later: true} // it is read before it is given out
	o, err := g.bucket.Copy(ctx, storage.Source{Bucket: g.Staging, Key: lists.Key(g.w.Item.ID, stagedRestore), IfMatch: at.Staged}, g.key, up, storage.Parts{})
	switch {
	case errors.Is(err, storage.ErrDigest):
		return fmt.Errorf("%w: %w", errSpoilt, err)
	case err != nil:
		return fmt.Errorf("rename it: %w", cause.Storage(err))
	}
	at.Published, at.Read = o.ETag, readPoint{}
	return savePoint(ctx, g.w, restorePointName, *at)
}

// illegalIdentifier says why an object cannot be restored under its own name, in the
// restoration bucket or on the disk where it is unpacked; "" if it can. Earlier versions
// accepted such names.
func illegalIdentifier(o record.Object) string {
	_, name, ok := strings.Cut(o.Identifier, "/")
	if !ok {
		return "it has no institution and bag"
	}
	return naming.Fault(name)
}

// beforeRestoring looks up the object of a restoration, and checks that its bytes can be
// relied on.
func beforeRestoring(ctx context.Context, r *registry.Registry, w *pipeline.Work) (record.Object, error) {
	o, err := r.ObjectByID(ctx, w.Item.Request.ObjectID)
	switch {
	case err != nil:
		return o, err
	case o.State != "A":
		return o, claim.Fatal("restore-deleted", "The object %s was deleted.", o.Identifier)
	case illegalIdentifier(o) != "":
		return o, claim.Fatal("restore-name", "The object %q cannot be restored under its name: %s. "+
			"Its files are intact; read them from the preservation buckets by the keys of their storage records.",
			o.Identifier, illegalIdentifier(o))
	case o.Deleting:
		return o, claim.Suspend("deletion-unfinished", fmt.Sprintf(
			"A deletion of the object %s has begun and is unfinished, so its files are not reliable.", o.Identifier))
	}
	return o, nil
}

// badNote says in the note of an item which copies of what it was about are known to
// be bad; "" if none is.
func badNote(ctx context.Context, r *registry.Registry, identifier string) (string, error) {
	const most = 5
	list, err := fixity.In(r).BadCopies(ctx, identifier, 0, 0, most+1)
	if err != nil || len(list) == 0 {
		return "", err
	}
	var named []string
	for _, b := range list[:min(len(list), most)] {
		named = append(named, fmt.Sprintf("%s in %s (%s)", b.File, b.Target, b.Problem))
	}
	if len(list) > most {
		named = append(named, "more")
	}
	return " Bad copies were skipped and recorded; they can be repaired from the good ones: " + strings.Join(named, ", ") + ".", nil
}
