package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/proof"
)

// receive streams the tar, once if its bucket confirms what was read, and writes its
// inventory: where each file lies, its four digests, and what manifests and tags say. About
// every 64 MiB or 10,000 files it keeps a checkpoint, so that a restart resumes between two
// files or, in a large one, at a part.
type receive struct {
	Registry  *registry.Registry
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Targets   copies.Targets
	Profiles  bag.Profiles
	MaxFiles  int // of a bag

	checkpointEvery int64 // bytes of the tar; 0 is what package bag has
	rangeBytes      int64 // that are asked for at once; 0 is rangeBytes
}

// rangeBytes is how much of a tar one request asks for: stores have long given at most 5 TB in one
// answer, and a proxy ends a connection that lasts for a day. An upload of less is one request.
const rangeBytes = 64 << 30

func (s *receive) Run(ctx context.Context, w *work) error {
	// Nothing is read of what could not be given back: the key may not even be the one
	// in the bucket, where a server cannot say what is in it.
	if err := legalName(w.Item.Name); err != nil {
		return err
	}
	// If the same upload is on record already, and nothing of it was deleted since, and
	// no copy of it is known to be bad, there is nothing to ingest.
	earlier, err := s.Registry.Repeats(ctx, w.Item.ID)
	if err != nil {
		return err
	}
	if earlier != 0 {
		w.atTheEnd(earlier)
		return nil
	}
	tar, err := s.Receiving(w.Item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	if _, err := w.Finished(ctx); err != nil {
		return err
	}
	b, err := s.proven(ctx, w, tar)
	if err != nil {
		return err
	}
	if code := b.Cut(); code != "" { // there is no whole bag for Validate to judge
		return refusal(code, b.Validate(s.Profiles.Of(b)))
	}
	if w.read != nil {
		w.lists.Recent.KeepTar(w.Item.ID, w.read.Bytes())
	}
	w.MemoryNeed = pipeline.MemoryNeed(len(b.Files))
	w.Count.Read("", len(b.Files), w.Item.Size)
	for i, f := range b.Files {
		f.UUID = lists.FileUUID(w.Item, i, f.Path)
		f.Format = format.ByExtension(f.Path)
	}
	return w.lists.Put(ctx, lists.InventoryName, func(out io.Writer) error { return bag.WriteInventory(out, b) })
}

// legalName refuses what no bag may be called.
func legalName(key string) error {
	if f, ok := bag.JudgeName(key); !ok {
		return refusal(f.Code, bag.Verdict{Errors: []bag.Finding{f}})
	}
	return nil
}

// read reads the tar, from where an earlier attempt came to; inFile is whether that
// may be within a file. It returns what the bucket says of the tar's bytes, too.
func (s *receive) read(ctx context.Context, w *work, tar *storage.Bucket, inFile bool) (*bag.Bag, proof.Proof, error) {
	var resume *bag.Checkpoint
	if !w.First() {
		var err error
		if resume, err = s.resume(ctx, w, inFile); err != nil {
			return nil, proof.Proof{}, err
		}
	}
	var start int64
	files := 0
	if resume != nil {
		start = resume.Start()
		files = len(resume.Files)
		w.Log.InfoContext(ctx, "resuming from a checkpoint", "offset", start, "files", files)
	}
	w.StartCounting(ctx, progress.Counters{
		FilesBefore: int64(files), FilesTotal: -1, BytesBefore: start, BytesTotal: w.Item.Size,
	})
	stream, proof, err := s.open(ctx, w, tar, start)
	if err != nil {
		return nil, proof, err
	}
	defer stream.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	var content io.Reader = stream
	if w.read = nil; start == 0 && w.Item.Size <= lists.SmallTar {
		w.read = bytes.NewBuffer(make([]byte, 0, w.Item.Size))
		content = io.TeeReader(stream, w.read)
	}
	b, err := bag.Read(ctx, content, bag.ReadOptions{
		PartSize:        storage.PartSize,
		CheckpointBytes: s.checkpointEvery,
		PartMD5:         wantPartMD5(s.Targets),
		Whole:           proof.New(),
		Resume:          resume,
		Reopen: func(f *bag.File) (io.ReadCloser, error) {
			return s.stream(ctx, w, tar, f.Offset, f.Offset+f.Size), nil
		},
		Checkpoint: func(ctx context.Context, c bag.Checkpoint) error {
			return s.keep(ctx, w, c, func(line string) error {
				return w.Progress.Append(ctx, w.Claim(), w.Pass(), lists.Checkpoints, line)
			})
		},
		Within: func(ctx context.Context, p bag.Partial) error {
			return s.keep(ctx, w, p, func(line string) error {
				return w.Progress.Put(ctx, w.Claim(), w.Pass(), lists.Within, line)
			})
		},
		MaxFiles: s.MaxFiles,
		Many:     func(ctx context.Context) error { return w.EnterMany(ctx) },
		Grown:    w.Fits,
		Progress: func(path string, files int, bytes int64) {
			w.Hold.CurrentFile(path)
			w.Count.Read(path, files, bytes)
		},
	})
	return b, proof, err
}

// open opens the tar at an offset, and says what its bucket says of all its bytes, which at the
// beginning comes with them.
func (s *receive) open(ctx context.Context, w *work, tar *storage.Bucket, start int64) (stream *patient, proof proof.Proof, err error) {
	stream = s.stream(ctx, w, tar, start, w.Item.Size)
	if start == 0 && stream.size <= stream.most {
		stream.until = stream.size
		stream.body, proof, err = tar.GetProven(ctx, w.Item.Name, w.Item.ETag)
		return stream, proof, err
	}
	proof, err = tar.Proof(ctx, w.Item.Name, w.Item.ETag)
	if errors.Is(err, storage.ErrNotFound) { // which a bucket that is gone says too: reading it tells
		err = nil
	}
	return stream, proof, err
}

// stream is the tar from one offset to another, in ranges of the upload that was announced: each is of its ETag.
func (s *receive) stream(ctx context.Context, w *work, tar *storage.Bucket, from, to int64) *patient {
	return &patient{ctx: ctx, offset: from, size: to, most: cmp.Or(s.rangeBytes, rangeBytes), open: func(offset, length int64) (io.ReadCloser, error) {
		if offset+length == w.Item.Size {
			length = -1
		}
		return tar.Get(ctx, w.Item.Name, storage.Range{Offset: offset, Length: length, IfMatch: w.Item.ETag})
	}}
}

// keep keeps how far the stage came. A failure costs time after a crash and is no
// reason to stop, unless it says that the claim is lost.
func (s *receive) keep(ctx context.Context, w *work, checkpoint any, write func(line string) error) error {
	if err := w.Hold.Check(ctx); err != nil {
		return err
	}
	var line strings.Builder
	if err := bag.Compress(&line, func(w io.Writer) error { return json.MarshalWrite(w, checkpoint, jsontext.AllowInvalidUTF8(true)) }); err != nil {
		return fmt.Errorf("encode a checkpoint: %w", err)
	}
	err := write(line.String())
	if err != nil && !errors.Is(err, progress.ErrLost) {
		w.Log.WarnContext(ctx, "cannot save a checkpoint; a restart will read more of the bag again", "err", err)
		return nil
	}
	return w.ProgressErr(err)
}

// resume joins the checkpoints of an earlier attempt; nil if there are none. If one is
// unreadable, or one between others is missing, the tar is read from its start.
func (s *receive) resume(ctx context.Context, w *work, inFile bool) (*bag.Checkpoint, error) {
	entries, err := w.Progress.Entries(ctx, w.Item.ID, w.Pass(), lists.Checkpoints)
	if err != nil {
		return nil, w.ProgressErr(err)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	defer z.Close()
	var all *bag.Checkpoint
	for _, entry := range entries {
		var c bag.Checkpoint
		if err := lists.DecodeCheckpoint(z, entry, &c); err != nil {
			w.Log.WarnContext(ctx, "checkpoints are unreadable; reading the bag from its start", "err", err)
			return nil, nil
		}
		if all == nil {
			all = &c
			continue
		}
		if c.Offset > all.Offset { // one whose reply was lost may be there twice
			all.Append(c)
		}
	}
	if !inFile {
		return all, nil
	}
	return s.resumeInFile(ctx, w, z, all)
}

// resumeInFile adds the checkpoint within a file to the one before that file, if
// both are there.
func (s *receive) resumeInFile(ctx context.Context, w *work, z *zstd.Decoder, all *bag.Checkpoint) (*bag.Checkpoint, error) {
	entry, err := w.Progress.Get(ctx, w.Item.ID, w.Pass(), lists.Within)
	if err != nil {
		return nil, w.ProgressErr(err)
	}
	if entry == "" {
		return all, nil
	}
	var p bag.Partial
	if err := lists.DecodeCheckpoint(z, entry, &p); err != nil {
		w.Log.WarnContext(ctx, "checkpoint is unreadable; reading the current file from its start", "err", err)
		return all, nil
	}
	switch {
	case all == nil && p.After == 0:
		return &bag.Checkpoint{Partial: &p}, nil
	case all != nil && p.After == all.Offset:
		all.Partial = &p
	}
	return all, nil
}

// patient is the tar as one stream that outlives broken connections: it opens the tar again
// where the last connection broke off, as long as each brings some bytes, and where a range ends.
type patient struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no space for it
	open   func(offset, length int64) (io.ReadCloser, error)
	body   io.ReadCloser
	offset int64
	size   int64
	most   int64 // bytes of a range
	until  int64 // end of the range that is open
	broken int   // times in a row without a byte between
}

func (p *patient) Read(b []byte) (int, error) {
	for {
		if p.body == nil {
			if p.offset >= p.size {
				return 0, io.EOF
			}
			length := min(p.size-p.offset, p.most)
			body, err := p.open(p.offset, length)
			if err != nil {
				return 0, err
			}
			p.body, p.until = body, p.offset+length
		}
		n, err := p.body.Read(b)
		p.offset += int64(n)
		if n > 0 {
			p.broken = 0
			return n, nil // an error comes again with the next read
		}
		if err == nil {
			continue
		}
		closeErr := p.Close()
		if errors.Is(err, io.EOF) && p.offset >= p.until {
			continue // the next range, or the end
		}
		p.broken++
		if p.broken > tries || final(err) || p.ctx.Err() != nil {
			return 0, errors.Join(err, closeErr)
		}
		if !retry.Pause(p.ctx, time.Duration(p.broken)*500*time.Millisecond) {
			return 0, context.Cause(p.ctx)
		}
	}
}

// Close closes what is open. Reading on opens the tar again.
func (p *patient) Close() error {
	if p.body == nil {
		return nil
	}
	body := p.body
	p.body = nil
	return body.Close()
}

// atTheEnd has an item whose upload is on record already go to the last stage, which
// removes the tar as after any ingest.
func (w *work) atTheEnd(earlier int64) {
	w.Next = registry.Cleanup
	w.Note = repeatedNote(earlier)
}

func repeatedNote(earlier int64) string {
	return fmt.Sprintf("This bag is already on record from item %d, and nothing has changed since.", earlier)
}

// lastRead is the name in Redis of the digest that the last read of the whole tar
// had, if the bucket did not confirm it.
const lastRead = "last-read"

// proven reads the tar until it is known that the bytes are those in the bucket: either the
// bucket reports the same digest, or two reads had the same. So bytes that were altered on
// their way here are never taken for the bag's.
func (s *receive) proven(ctx context.Context, w *work, tar *storage.Bucket) (*bag.Bag, error) {
	before := ""
	if !w.First() {
		var err error
		if before, err = w.Progress.Get(ctx, w.Item.ID, w.Pass(), lastRead); err != nil {
			return nil, w.ProgressErr(err)
		}
	}
	for {
		b, proof, err := s.readOn(ctx, w, tar)
		if err != nil {
			return nil, w.receivingErr(err)
		}
		if proof.Agrees(b.Whole) {
			return b, nil
		}
		now := ""
		if b.Whole != nil {
			now = proof.Name() + " " + hex.EncodeToString(b.Whole)
		}
		if now != "" && now == before {
			w.Log.InfoContext(ctx, "two reads of the tar have the same digest; its ETag is not a digest and is ignored", "digest", now)
			return b, nil
		}
		if err := s.forget(ctx, w, now); err != nil {
			return nil, err
		}
		if now != "" && before != "" {
			return nil, cause.WrongAnswer(tar, "two reads of the bag differ", "two reads of %s differ: its %s, and before %s", w.Item.Name, now, before)
		}
		before = now
		w.Log.WarnContext(ctx, "digest of the tar does not match what the bucket reports; reading it again", "digest", now, "bucket_reports", proof.Known())
	}
}

// forget discards the checkpoints of a read that was not confirmed, so that the next read
// begins at the tar's start. If the digest of that read cannot be kept, the next attempt reads
// once more.
func (s *receive) forget(ctx context.Context, w *work, digest string) error {
	if err := w.Progress.ClearStage(ctx, w.Claim(), w.Pass()); err != nil {
		return w.ProgressErr(err)
	}
	return w.ProgressErr(w.Progress.Put(ctx, w.Claim(), w.Pass(), lastRead, digest))
}

// readOn reads the tar from where an earlier attempt stopped. Unusable checkpoints are
// discarded.
func (s *receive) readOn(ctx context.Context, w *work, tar *storage.Bucket) (*bag.Bag, proof.Proof, error) {
	b, proof, err := s.read(ctx, w, tar, true)
	if errors.Is(err, bag.ErrCheckpoint) {
		w.Log.WarnContext(ctx, "checkpoint does not match the tar; reading the current file from its start", "err", err)
		b, proof, err = s.read(ctx, w, tar, false)
	}
	if !errors.Is(err, bag.ErrChanged) {
		return b, proof, err
	}
	w.Log.WarnContext(ctx, "checkpoints belong to another tar; reading the bag from its start", "err", err)
	if err := s.forget(ctx, w, ""); err != nil {
		return nil, proof, err
	}
	return s.read(ctx, w, tar, true)
}
