package bag

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
)

// A Checkpoint is how far Read came. It can be written as JSON, by version 2 of the standard
// library's package. Reading on from
// it gives the same Bag as reading the tar in one go.
type Checkpoint struct {
	// Offset is where in the tar the next header begins. There is one: what
	// comes before it is whole, and a range from there on is never empty.
	Offset int64  `json:"offset"`
	TopDir string `json:"top_dir"`
	// After is the last entry before Offset in the words of messages: it need
	// not be one of Files.
	After string `json:"after,omitempty"`
	// Files are those in the tar before Offset. When handed to
	// ReadOptions.Checkpoint, only those after the last checkpoint; in
	// ReadOptions.Resume, all. [Checkpoint.Append] makes the one of the other.
	// What manifests say of them is ignored, since the manifests are read again.
	Files []*File `json:"files"`
	// Problems and Warnings are all that were found in the tar so far.
	Problems []Finding `json:"problems,omitempty"`
	Warnings []Finding `json:"warnings,omitempty"`
	More     int       `json:"more,omitzero"`
	// PayloadDir says that something was or lay in data/.
	PayloadDir bool `json:"payload_dir,omitzero"`
	// Partial is how far the file at Offset has been read; nil for not at all.
	Partial *Partial `json:"partial,omitzero"`
	// Whole is the state of ReadOptions.Whole at Offset, if it is known.
	Whole []byte `json:"whole,omitempty"`
}

// A Partial is how far Read came within a large file. It goes with the
// checkpoint of the offset After, or with the beginning of the tar if that is
// zero. It can be written as JSON too; another version of Go may refuse it.
type Partial struct {
	After  int64        `json:"after"`
	TopDir string       `json:"top_dir"`
	File   *File        `json:"file"` // without digests
	State  digest.State `json:"state"`
	Whole  []byte       `json:"whole,omitempty"` // state of ReadOptions.Whole there
}

// ErrCheckpoint says that a Partial does not fit its file, or was made by another
// version of Go. Without it reading goes on from the checkpoint before.
var ErrCheckpoint = digest.ErrState

// ErrChanged says that a manifest or tag file is not what it was before the
// checkpoint: one of the two reads of it was wrong, and nobody can tell which. The
// tar has to be read from its start.
var ErrChanged = errors.New("its content has changed since the checkpoint")

// errWithin marks errors of ReadOptions.Within.
var errWithin = errors.New("checkpoint within a file")

// Start is the offset in the tar at which Read goes on.
func (c *Checkpoint) Start() int64 {
	if c.Partial != nil && c.Partial.File != nil {
		return c.Partial.File.Offset + c.Partial.State.Done
	}
	return c.Offset
}

// Append moves c forward to next, the checkpoint that followed it.
func (c *Checkpoint) Append(next Checkpoint) {
	files := append(c.Files, next.Files...)
	*c = next
	c.Files = files
}

// checkpoint tells the caller how far we are, if that is worth it: before a large
// file it is, or no checkpoint within that could follow. Should the caller die
// before it is stored, the one before it is as good.
func (rd *reader) checkpoint(ctx context.Context, large bool) error {
	worth := rd.next-rd.savedOffset >= rd.opts.CheckpointBytes || large && rd.next > rd.savedOffset ||
		len(rd.bag.Files)-rd.saved >= checkpointFiles
	if rd.opts.Checkpoint == nil || rd.next < 0 || !worth {
		return nil
	}
	err := rd.opts.Checkpoint(ctx, Checkpoint{
		Offset:   rd.next,
		TopDir:   rd.bag.TopDir,
		After:    rd.after,
		Files:    rd.bag.Files[rd.saved:],
		Problems: rd.problems.Found,
		Warnings: rd.warnings.Found,
		More:     rd.problems.More,

		PayloadDir: rd.payloadDir,
		Whole:      rd.whole.State(rd.next),
	})
	if err != nil {
		return fmt.Errorf("checkpoint at offset %d: %w", rd.next, err)
	}
	rd.saved, rd.savedOffset = len(rd.bag.Files), rd.next
	return nil
}

// within tells the caller how far we are in a file.
func (rd *reader) within(ctx context.Context, f *File, s digest.State) error {
	p := Partial{After: rd.savedOffset, TopDir: rd.bag.TopDir, File: f, State: s}
	if rd.tar.offset == f.Offset+s.Done {
		p.Whole = rd.whole.State(rd.tar.offset)
	}
	if err := rd.opts.Within(ctx, p); err != nil {
		return fmt.Errorf("%w %s: %w", errWithin, finding.Show(f.Path), err)
	}
	return nil
}

// resumeFile reads what is left of a file, and its padding.
func (rd *reader) resumeFile(ctx context.Context, p *Partial) (more bool, err error) {
	f := p.File
	if f == nil || p.After != rd.opts.Resume.Offset || f.Kind() != PayloadFile || p.State.Done <= 0 || p.State.Done >= f.Size {
		return false, fmt.Errorf("%w: it does not follow the checkpoint at offset %d", ErrCheckpoint, rd.opts.Resume.Offset)
	}
	rd.bag.TopDir, rd.after, rd.next = p.TopDir, finding.Show(f.Path), f.Offset+padded(f.Size)
	more, err = rd.readFile(ctx, rd.tar, f, &p.State)
	if err != nil || !more {
		return more, err
	}
	// What is wrong with the padding shows when the next header is read.
	_, _ = io.CopyN(io.Discard, rd.tar, padded(f.Size)-f.Size)
	return true, nil
}

// resume restores what an earlier Read knew at the checkpoint.
func (rd *reader) resume(ctx context.Context, c *Checkpoint) error {
	rd.bag.TopDir, rd.after, rd.payloadDir = c.TopDir, c.After, c.PayloadDir
	rd.problems = finding.List{Found: slices.Clone(c.Problems), More: c.More}
	rd.warnings = finding.List{Found: slices.Clone(c.Warnings)}
	rd.stray = strayIn(c.Problems)
	for _, f := range c.Files {
		f.Agreed, f.Others = 0, nil
		tee, done := rd.interpreter(f)
		if tee != nil {
			if err := rd.reread(ctx, f, tee); err != nil {
				return fmt.Errorf("read %s again: %w", f.Path, err)
			}
		}
		rd.add(f)
		done()
		if rd.manyErr != nil {
			return rd.manyErr
		}
	}
	rd.saved = len(rd.bag.Files)
	return nil
}

// reread refuses a content that is not the one we had: the bag was replaced.
func (rd *reader) reread(ctx context.Context, f *File, tee func([]byte)) error {
	if rd.opts.Reopen == nil {
		return errors.New("ReadOptions.Reopen is nil")
	}
	r, err := rd.opts.Reopen(f)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read from
	sum := sha256.New()
	buf := make([]byte, digest.Small)
	for left := f.Size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf[:min(left, digest.Small)])
		if err != nil {
			return err
		}
		sum.Write(buf[:n])
		tee(buf[:n])
		left -= int64(n)
	}
	if [32]byte(sum.Sum(nil)) != f.Digests.SHA256 {
		return ErrChanged
	}
	return nil
}
