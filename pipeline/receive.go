package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// receive streams the tar, once if its bucket confirms what was read, and leaves an
// inventory of it: where each file lies, its four digests, and what manifests and
// tags say. Every 64 MiB or so it
// keeps a checkpoint, so that a restart reads on between two files or, in a large
// one, at a part.
type receive struct{ Deps }

// The names that Receive keeps its checkpoints under in Redis: those between
// files, each of which adds to the ones before, and the last one within a file.
const checkpoints, within = "checkpoints", "within"

func (s *receive) Run(ctx context.Context, w *work) error {
	// Nothing is read of what could not be given back: the key may not even be the one
	// in the bucket, where a server cannot say what is in it.
	if err := legalName(w.item.Name); err != nil {
		return err
	}
	earlier, err := w.repeats(ctx, s.Deps)
	if err != nil {
		return err
	}
	if earlier != 0 {
		w.atTheEnd(earlier)
		return nil
	}
	tar, err := s.Receiving(w.item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	if _, err := s.Progress.Begin(ctx, w.claim(), w.passOf()); err != nil {
		return w.progressErr(err)
	}
	b, err := s.proven(ctx, w, tar)
	if err != nil {
		return err
	}
	if code := b.Cut(); code != "" { // there is no whole bag for Validate to judge
		return refusal(code, b.Validate(s.Profiles.Of(b)))
	}
	w.memoryNeed = MemoryNeed(len(b.Files))
	w.count.read("", len(b.Files), w.item.Size)
	for i, f := range b.Files {
		f.UUID = fileUUID(w.item, i, f.Path)
		f.Format = format.ByExtension(f.Path)
	}
	return w.putStaged(ctx, s.Deps, inventoryName, func(out io.Writer) error { return bag.WriteInventory(out, b) })
}

// legalName refuses what no bag may be called.
func legalName(key string) error {
	if f, ok := bag.JudgeName(key); !ok {
		return refusal(f.Code, bag.Verdict{Errors: []bag.Finding{f}})
	}
	return nil
}

// read reads the tar, from where an earlier attempt came to; inFile is whether that
// may be within a file.
func (s *receive) read(ctx context.Context, w *work, tar *storage.Bucket, proof storage.Proof, inFile bool) (*bag.Bag, error) {
	resume, err := s.resume(ctx, w, inFile)
	if err != nil {
		return nil, err
	}
	var start int64
	files := 0
	if resume != nil {
		start = resume.Start()
		files = len(resume.Files)
		w.log.InfoContext(ctx, "reading on from a checkpoint", "offset", start, "files", files)
	}
	w.count.begin(ctx, s.Deps, w, progress.Counters{
		FilesBefore: int64(files), FilesTotal: -1, BytesBefore: start, BytesTotal: w.item.Size,
	})
	stream := &patient{ctx: ctx, offset: start, size: w.item.Size, open: func(offset int64) (io.ReadCloser, error) {
		return tar.Get(ctx, w.item.Name, storage.Range{Offset: offset, Length: -1, IfMatch: w.item.ETag})
	}}
	defer stream.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	return bag.Read(ctx, stream, bag.ReadOptions{
		PartSize:        storage.PartSize,
		CheckpointBytes: s.checkpointBytes,
		PartMD5:         s.wantPartMD5(),
		Whole:           proof.New(),
		Resume:          resume,
		Reopen: func(f *bag.File) (io.ReadCloser, error) {
			return tar.Get(ctx, w.item.Name, storage.Range{Offset: f.Offset, Length: f.Size, IfMatch: w.item.ETag})
		},
		Checkpoint: func(ctx context.Context, c bag.Checkpoint) error {
			return s.keep(ctx, w, c, func(line string) error {
				return s.Progress.Append(ctx, w.claim(), w.passOf(), checkpoints, line)
			})
		},
		Within: func(ctx context.Context, p bag.Partial) error {
			return s.keep(ctx, w, p, func(line string) error {
				return s.Progress.Put(ctx, w.claim(), w.passOf(), within, line)
			})
		},
		MaxFiles: s.MaxFiles,
		Many:     func(ctx context.Context) error { return w.enter(ctx, s.room, int(s.room.all)) },
		Grown:    s.room.fits,
		Progress: func(path string, files int, bytes int64) {
			w.hold.CurrentFile(path)
			w.count.read(path, files, bytes)
		},
	})
}

// fileUUID gives a file a uuid that depends on nothing but the upload, so that
// this stage run again names the same keys, and another upload never does.
func fileUUID(item claim.Item, index int, path string) string {
	name := fmt.Sprintf("%d\x00%s\x00%s\x00%d\x00%s", item.ID, item.ObjectIdentifier, item.ETag, index, path)
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
}

// keep keeps how far the stage came. A failure costs time after a crash and is no
// reason to stop, unless it says that the claim is lost.
func (s *receive) keep(ctx context.Context, w *work, checkpoint any, write func(line string) error) error {
	if err := w.hold.Check(ctx); err != nil {
		return err
	}
	line, err := json.Marshal(checkpoint)
	if err != nil {
		return fmt.Errorf("encode a checkpoint: %w", err)
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("compress a checkpoint: %w", err)
	}
	err = write(string(z.EncodeAll(line, nil)))
	if err != nil && !errors.Is(err, progress.ErrLost) {
		w.log.WarnContext(ctx, "checkpoint not kept", "err", err)
		return nil
	}
	return w.progressErr(err)
}

// resume puts the checkpoints of an earlier attempt together; nil if there are
// none. One that cannot be read, or a missing one between others, means that
// the tar is read from its start.
func (s *receive) resume(ctx context.Context, w *work, inFile bool) (*bag.Checkpoint, error) {
	entries, err := s.Progress.Entries(ctx, w.item.ID, w.passOf(), checkpoints)
	if err != nil {
		return nil, w.progressErr(err)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	defer z.Close()
	var all *bag.Checkpoint
	for _, entry := range entries {
		var c bag.Checkpoint
		if err := kept(z, entry, &c); err != nil {
			w.log.WarnContext(ctx, "checkpoints are not readable, the bag is read from its start", "err", err)
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
	entry, err := s.Progress.Get(ctx, w.item.ID, w.passOf(), within)
	if err != nil {
		return nil, w.progressErr(err)
	}
	if entry == "" {
		return all, nil
	}
	var p bag.Partial
	if err := kept(z, entry, &p); err != nil {
		w.log.WarnContext(ctx, "a checkpoint is not readable, the file that was in hand is read from its start", "err", err)
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

func kept(z *zstd.Decoder, entry string, to any) error {
	line, err := z.DecodeAll([]byte(entry), nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, to)
}

// findingsEnd stands between two findings in a note.
const findingsEnd = " | "

// findings puts what is wrong with a bag into a note: the first thirty, and how
// many more there are.
func findings(list []bag.Finding, more int) string {
	const most = 30
	var b strings.Builder
	for i, f := range list {
		if i == most {
			break
		}
		if i > 0 {
			b.WriteString(findingsEnd)
		}
		b.WriteString(f.Message)
	}
	if rest := len(list) - most + more; len(list) > most && rest > 0 {
		fmt.Fprintf(&b, " | Too many errors: %d more.", rest)
	}
	return b.String()
}

// patient is the tar as one stream that outlives broken connections: it opens
// the tar again where the last one broke off, as long as it gets on.
type patient struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no room for it
	open   func(offset int64) (io.ReadCloser, error)
	body   io.ReadCloser
	offset int64
	size   int64
	broken int // times in a row without a byte between
}

func (p *patient) Read(b []byte) (int, error) {
	for {
		if p.body == nil {
			if p.offset >= p.size {
				return 0, io.EOF
			}
			body, err := p.open(p.offset)
			if err != nil {
				return 0, err
			}
			p.body = body
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
		if errors.Is(err, io.EOF) && p.offset >= p.size {
			return 0, io.EOF
		}
		p.broken++
		if p.broken > tries || final(err) || p.ctx.Err() != nil {
			return 0, errors.Join(err, closeErr)
		}
		if !pause(p.ctx, time.Duration(p.broken)*500*time.Millisecond) {
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
