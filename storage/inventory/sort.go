package inventory

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/farol-preservation/farol/storage"
)

const (
	runBytes   = 32 << 20 // of objects that are sorted at once in memory
	mergeBytes = 16 << 20 // of the buffers of all runs together, while a buffer has 4 KiB
)

// A sorter puts any number of objects in the order of their keys, with bounded memory: it sorts
// runs of them in memory, writes these one after another to a temporary file, and merges them. The
// file has no name, so that nothing is left however the process ends.
type sorter struct {
	limit   int    // bytes of a run
	records []byte // of the run in memory: the length of a key, the key, the size
	starts  []int  // of its records
	file    *os.File
	runs    []*io.SectionReader
	written int64
}

func (s *sorter) add(key string, size int64) error {
	if s.records == nil {
		s.records = make([]byte, 0, s.limit) // it would be copied as it grows
	}
	s.starts = append(s.starts, len(s.records))
	s.records = binary.AppendUvarint(s.records, uint64(len(key)))
	s.records = append(s.records, key...)
	s.records = binary.AppendVarint(s.records, size)
	if len(s.records)+8*len(s.starts) < s.limit {
		return nil
	}
	return s.flush()
}

// record is the one that begins somewhere, and its key.
func (s *sorter) record(start int) (record, key []byte) {
	from := s.records[start:]
	length, n := binary.Uvarint(from)
	end := n + int(length) //nolint:gosec // of a key
	_, size := binary.Varint(from[end:])
	return from[:end+size], from[n:end]
}

// flush writes the run in memory to disk.
func (s *sorter) flush() (err error) {
	if s.file == nil {
		if s.file, err = nameless(); err != nil {
			return fmt.Errorf("sort in %s (TMPDIR): %w", os.TempDir(), err)
		}
	}
	slices.SortFunc(s.starts, func(a, b int) int {
		_, one := s.record(a)
		_, other := s.record(b)
		return bytes.Compare(one, other)
	})
	out := bufio.NewWriterSize(s.file, 1<<20)
	for _, start := range s.starts {
		record, _ := s.record(start)
		_, _ = out.Write(record) // Flush has the error
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("sort in %s (TMPDIR), which needs some 50 bytes for each object: %w", os.TempDir(), err)
	}
	length := int64(len(s.records))
	s.runs = append(s.runs, io.NewSectionReader(s.file, s.written, length))
	s.written += length
	s.records, s.starts = s.records[:0], s.starts[:0]
	return nil
}

// nameless is a temporary file that is on disk only as long as it is open.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "farol-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sorted yields all objects. Of a key that was added twice it yields one.
func (s *sorter) sorted() iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if err := s.flush(); err != nil {
			yield(storage.Object{}, err)
			return
		}
		s.records, s.starts = nil, nil
		var merged runs
		for _, from := range s.runs {
			r := &run{from: bufio.NewReaderSize(from, max(mergeBytes/len(s.runs), 4<<10))}
			if !r.next() {
				continue
			}
			merged = append(merged, r)
		}
		heap.Init(&merged)
		var last storage.Object
		for len(merged) > 0 {
			first := merged[0]
			if first.err != nil {
				yield(storage.Object{}, fmt.Errorf("merge in %s (TMPDIR): %w", os.TempDir(), first.err))
				return
			}
			if string(first.key) != last.Key {
				if last = (storage.Object{Key: string(first.key), Size: first.size}); !yield(last, nil) {
					return
				}
			}
			if first.next() {
				heap.Fix(&merged, 0)
			} else {
				heap.Pop(&merged)
			}
		}
	}
}

func (s *sorter) close() {
	if s.file != nil {
		_ = s.file.Close() // it is gone with that, and nobody needs it
	}
}

// A run is read back, one object at a time.
type run struct {
	from *bufio.Reader
	key  []byte
	size int64
	err  error // that came in place of the object
}

// next reads the next object, or why there is none; it is false at the end.
func (r *run) next() bool {
	length, err := binary.ReadUvarint(r.from)
	if errors.Is(err, io.EOF) {
		return false
	}
	if err == nil {
		r.key = slices.Grow(r.key[:0], int(length))[:length] //nolint:gosec // of a key that we wrote
		_, err = io.ReadFull(r.from, r.key)
	}
	if err == nil {
		r.size, err = binary.ReadVarint(r.from)
	}
	if r.err = err; err != nil {
		r.key = r.key[:0] // it goes before all others
	}
	return true
}

// runs are a heap: the run with the least key comes first.
type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return bytes.Compare(r[i].key, r[j].key) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) } //nolint:errcheck,forcetypeassert // the heap hands out runs only

// Pop takes the last one away.
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
