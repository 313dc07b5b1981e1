package interim

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Kept is the interim metadata of an item as it was kept before it was deleted.
type Kept struct {
	At    time.Time
	Stage registry.Stage // that the item was at

	body  io.ReadCloser
	lines *bufio.Scanner
}

// errKept says that what is kept of an item cannot be read.
var errKept = errors.New("the item's interim metadata is damaged or truncated")

// Open opens what is kept of an item. It is [storage.ErrNotFound] if there is nothing.
func Open(ctx context.Context, b *storage.Bucket, item int64) (*Kept, error) {
	body, err := b.Get(ctx, key(item), storage.Range{Length: -1})
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(body)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errKept, err), body.Close())
	}
	const longest = 64 << 20 // of a line, as what it comes from may be anything
	k := &Kept{body: body, lines: bufio.NewScanner(z)}
	k.lines.Buffer(make([]byte, 64<<10), longest)
	var h keptHeader
	line, err := k.next()
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil && h.Version != keptVersion {
		err = fmt.Errorf("version %d", h.Version)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errKept, err), body.Close())
	}
	k.At, k.Stage = h.KeptAt, h.Item.Stage
	return k, nil
}

// Close ends the reading.
func (k *Kept) Close() error { return k.body.Close() }

// next reads a line. Behind the last it is [io.EOF].
func (k *Kept) next() ([]byte, error) {
	if k.lines.Scan() {
		return k.lines.Bytes(), nil
	}
	return nil, cmp.Or(k.lines.Err(), io.EOF)
}

// Files yields the files one after the other, in the order of the bag. What is cut ends
// in an error.
func (k *Kept) Files() iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		for files := 0; ; files++ {
			line, err := k.next()
			if err != nil {
				yield(nil, fmt.Errorf("%w: after %d files: %w", errKept, files, err))
				return
			}
			if bytes.HasPrefix(line, []byte(`{"end":true`)) {
				var end keptEnd
				if err := json.Unmarshal(line, &end); err != nil || end.Files != files {
					yield(nil, fmt.Errorf("%w: it has %d files; its end record says %d", errKept, files, end.Files))
				}
				return
			}
			f := &File{}
			if err := json.Unmarshal(line, f); err != nil {
				yield(nil, fmt.Errorf("%w: file %d: %w", errKept, files, err))
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}
