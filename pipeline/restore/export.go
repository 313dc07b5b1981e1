package restore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
	"github.com/farol-preservation/farol/storage"
)

// export writes a large export of records into the restoration bucket. Pieces of it are
// written to staging, each of one moment, so that no snapshot is held for long. When the last
// is there, and so the size is known, they are put together and given their name as a
// restored bag is.
type export struct{ pipeline.Deps }

// exportPoint is how far an export has come, as Redis keeps it.
type exportPoint struct {
	Cursor exports.Cursor `json:"cursor"`
	Pieces []exportPiece  `json:"pieces"`
	Sum    []byte         `json:"sum"`   // state of the SHA-256 of all pieces
	Taken  time.Time      `json:"taken"` // moment of the first piece
}

// exportPiece is a piece in staging. Its key has the claim of its writer: a worker that has
// lost the item overwrites no piece of the next one.
type exportPiece struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	SHA256 []byte `json:"sha256"`
}

func (p exportPoint) size() (n int64) {
	for _, piece := range p.Pieces {
		n += piece.Size
	}
	return n
}

const (
	exportPointName = "export"
	pieceSize       = 16 << 20
)

func (s *export) Run(ctx context.Context, w *pipeline.Work) error {
	records := exports.In(s.Registry, registry.Everything())
	e, of, err := records.OfItem(ctx, w.Item.ID)
	if errors.Is(err, registry.ErrNotFound) {
		return claim.Fatal("export-unknown", "No export on record belongs to this item.")
	}
	if err != nil {
		return err
	}
	if e.CompletedAt != nil { // by an attempt that died before it could say so
		bucket, err := s.Receiving(*e.Bucket)
		if err != nil {
			return fmt.Errorf("open the restoration bucket: %w", err)
		}
		s.done(ctx, w, e, bucket.URL(*e.Key), *e.SHA256)
		return nil
	}
	at, err := s.point(ctx, w)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if len(at.Sum) > 0 && !copies.GoOn(sum, at.Sum) {
		at, sum = exportPoint{}, sha256.New()
	}
	for !at.Cursor.Done {
		if err := s.piece(ctx, w, records, of, &at, sum); err != nil {
			return err
		}
	}
	g := giveBack{
		key: *e.Key, about: *e.Key, mime: of.MediaType(), size: at.size(), files: int64(len(at.Pieces)), id: fmt.Sprintf("export %d %x", e.ID, sum.Sum(nil)),
		note: func(string) (string, string) { return "", "" }, // done sets it
	}
	g.stream = stream{giving: newGiving(s.Deps, w), partSize: partSizeOf(g.size), write: func(ctx context.Context, out *outlet) error {
		return s.join(ctx, w, at.Pieces, out)
	}}
	err = g.run(ctx)
	if errors.Is(err, errPiece) { // the records have changed by now: all pieces are written again
		err = cmp.Or(savePoint(ctx, w, exportPointName, exportPoint{}), err)
	}
	if err != nil {
		return err
	}
	err = records.CompleteItem(ctx, w.Item.ID, w.Item.Token, exports.Written{Records: at.Cursor.Records, Bytes: g.size, SHA256: sum.Sum(nil), Taken: at.Taken})
	if errors.Is(err, registry.ErrLost) {
		return fmt.Errorf("%w: %w", claim.ErrLost, err)
	}
	if err != nil {
		return err
	}
	s.done(ctx, w, e, g.bucket.URL(g.key), fmt.Sprintf("%x", sum.Sum(nil)))
	return nil
}

// point is where an earlier attempt stopped. What cannot be read, or has pieces that are
// gone, is the beginning.
func (s *export) point(ctx context.Context, w *pipeline.Work) (at exportPoint, err error) {
	if at, err = loadPoint[exportPoint](ctx, w, exportPointName); err != nil {
		return at, err
	}
	for _, piece := range at.Pieces {
		o, err := s.Staging.Head(ctx, piece.Key)
		if errors.Is(err, storage.ErrNotFound) || err == nil && (o.Size != piece.Size || piece.SHA256 == nil) {
			return exportPoint{}, nil
		}
		if err != nil {
			return at, fmt.Errorf("look for a piece of the export: %w", cause.Storage(err))
		}
	}
	return at, nil
}

// piece writes the next piece, and notes how far the export is.
func (s *export) piece(ctx context.Context, w *pipeline.Work, records exports.Records, of exports.Of, at *exportPoint, sum hash.Hash) error {
	if err := w.Hold.Check(ctx); err != nil {
		return err
	}
	w.Hold.CurrentFile(at.Cursor.After)
	var b bytes.Buffer
	c, taken, err := records.Piece(ctx, of, at.Cursor, &b, pieceSize)
	if err != nil {
		return err
	}
	if b.Len() > 0 {
		digest := sha256.Sum256(b.Bytes())
		p := exportPiece{lists.Key(w.Item.ID, fmt.Sprintf("Export/%d/%06d", w.Item.Token, len(at.Pieces))), int64(b.Len()), digest[:]}
		_, _ = sum.Write(b.Bytes()) // never an error
		if _, err := s.Staging.Put(ctx, p.Key, bytes.NewReader(b.Bytes()), storage.Upload{Size: p.Size, ContentType: of.MediaType()}); err != nil {
			return fmt.Errorf("stage a piece of the export: %w", cause.Storage(err))
		}
		at.Pieces = append(at.Pieces, p)
	}
	at.Cursor = c
	if at.Taken.IsZero() {
		at.Taken = taken
	}
	if at.Sum, err = copies.StateOf(sum); err != nil {
		return err
	}
	return savePoint(ctx, w, exportPointName, *at)
}

// errPiece is that a piece in staging is not what was written there.
var errPiece = errors.New("a piece of the export was damaged in staging")

// join passes the pieces on, but for those that the upload has already.
func (s *export) join(ctx context.Context, w *pipeline.Work, pieces []exportPiece, out *outlet) error {
	for _, p := range pieces {
		if out.past(p.Size) {
			continue
		}
		w.Hold.CurrentFile(p.Key)
		content := make([]byte, p.Size)
		body, err := s.Staging.Get(ctx, p.Key, storage.Range{Length: p.Size})
		if err == nil {
			_, err = io.ReadFull(body, content)
			err = errors.Join(err, body.Close())
		}
		if err != nil {
			return fmt.Errorf("read a piece of the export: %w", cause.Storage(err))
		}
		// The upload asks again for what fails: one read on its way is not enough to blame staging.
		if sum := sha256.Sum256(content); !bytes.Equal(sum[:], p.SHA256) {
			return claim.Transient("restore-damaged", fmt.Errorf("%w: %s", errPiece, p.Key))
		}
		if err := out.put(content); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes all pieces, also those of attempts that lost the item. What is left is the
// janitor's.
func (s *export) clear(ctx context.Context, w *pipeline.Work) {
	var keys []string
	var err error
	for o, listErr := range s.Staging.List(ctx, lists.Key(w.Item.ID, "Export/"), "") {
		if err = listErr; err != nil {
			break
		}
		keys = append(keys, o.Key)
	}
	if err == nil {
		err = s.Staging.Delete(ctx, keys...)
	}
	if err != nil {
		w.Log.WarnContext(ctx, "cannot delete the pieces of the export; the janitor will", "err", err)
	}
}

// done says what was written, and where.
func (s *export) done(ctx context.Context, w *pipeline.Work, e record.Export, url, sum string) {
	w.Note, w.Outcome = fmt.Sprintf("Export %d (%s) written to %s. SHA-256: %s.", e.ID, e.Kind, url, sum), "Export complete"
	s.clear(ctx, w)
}
