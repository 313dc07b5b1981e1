package bag

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Checkpoint is how far Read came. It can be written as JSON. Reading on from
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
	// Their Expected is ignored, since the manifests are read again.
	Files []*File `json:"files"`
	// Problems and Warnings are all that were found in the tar so far.
	Problems []Finding `json:"problems,omitempty"`
	Warnings []Finding `json:"warnings,omitempty"`
	More     int       `json:"more,omitempty"`
	// PayloadDir says that something was or lay in data/.
	PayloadDir bool `json:"payload_dir,omitempty"`
}

// Append moves c forward to next, the checkpoint that followed it.
func (c *Checkpoint) Append(next Checkpoint) {
	files := append(c.Files, next.Files...)
	*c = next
	c.Files = files
}

// checkpoint tells the caller how far we are, if that is worth it. Should the
// caller die before it is stored, the one before it is as good.
func (rd *reader) checkpoint(ctx context.Context) error {
	if rd.opts.Checkpoint == nil || rd.next < 0 || rd.next-rd.savedOffset < rd.opts.CheckpointBytes {
		return nil
	}
	err := rd.opts.Checkpoint(ctx, Checkpoint{
		Offset:   rd.next,
		TopDir:   rd.bag.TopDir,
		After:    rd.after,
		Files:    rd.bag.Files[rd.saved:],
		Problems: rd.problems.list,
		Warnings: rd.warnings.list,
		More:     rd.problems.more,

		PayloadDir: rd.payloadDir,
	})
	if err != nil {
		return fmt.Errorf("checkpoint at offset %d: %w", rd.next, err)
	}
	rd.saved, rd.savedOffset = len(rd.bag.Files), rd.next
	return nil
}

// resume restores what an earlier Read knew at the checkpoint.
func (rd *reader) resume(ctx context.Context, c *Checkpoint) error {
	rd.bag.TopDir, rd.after, rd.payloadDir = c.TopDir, c.After, c.PayloadDir
	rd.problems = findings{list: slices.Clone(c.Problems), more: c.More}
	rd.warnings = findings{list: slices.Clone(c.Warnings)}
	for _, f := range c.Files {
		f.Expected = nil
		tee, done := rd.interpreter(f)
		if tee != nil {
			if err := rd.reread(ctx, f, tee); err != nil {
				return fmt.Errorf("read %s again: %w", f.Path, err)
			}
		}
		rd.add(f)
		done()
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
	buf := make([]byte, smallFile)
	for left := f.Size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf[:min(left, smallFile)])
		if err != nil {
			return err
		}
		sum.Write(buf[:n])
		tee(buf[:n])
		left -= int64(n)
	}
	if [32]byte(sum.Sum(nil)) != f.Digests.SHA256 {
		return errors.New("its content is not what it was before the checkpoint")
	}
	return nil
}
