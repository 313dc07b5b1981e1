package interim

import (
	"context"
	"fmt"
	"iter"

	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
)

// read yields the files that Receive has read so far, by the checkpoints in Redis. Their
// digests are confirmed only when the whole bag was read.
func (m *Metadata) read(ctx context.Context) iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		if m.reader.Progress == nil || m.Item.Stage != registry.Receive {
			return
		}
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		if err != nil {
			yield(nil, fmt.Errorf("open checkpoints: %w", err))
			return
		}
		defer z.Close()
		const atOnce = 16 // each may be of thousands of files
		var came int64
		for entries, err := range m.reader.Progress.Log(ctx, m.Item.ID, m.pass, lists.Checkpoints, atOnce) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, entry := range entries {
				var c bag.Checkpoint
				if err := lists.DecodeCheckpoint(z, entry, &c); err != nil {
					return // Receive reads the bag from its start then: nothing is known of it
				}
				if c.Offset <= came { // one whose reply was lost may be there twice
					continue
				}
				came = c.Offset
				if !m.yieldRead(c.Files, yield) {
					return
				}
			}
		}
	}
}

func (m *Metadata) yieldRead(files []*bag.File, yield func(*File, error) bool) bool {
	for _, f := range files {
		of := newItemFile(f)
		of.State = fileRead
		if fault, ok := m.failed[f.Path]; ok {
			of.State, of.Code, of.Message = fileFailed, fault.Code, fault.Message
		}
		if !yield(of, nil) {
			return false
		}
	}
	return true
}
