// Package lists has what the stages of an ingest leave for each other, in the registry or the
// staging bucket: an inventory of the bag, and a list beside it from each stage that finds
// something out about its files. A list is written once, whole, and read a second time
// before its bytes are taken for wrong.
package lists

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/storage"
)

type listHeader struct {
	Inventory string         `json:"inventory"` // digest of the inventory it goes with
	Count     int            `json:"count"`
	About     jsontext.Value `json:"about"`
}

// Read reads a list and returns its rows by their index. about gets what the list says of
// itself. If two reads find the list missing, damaged or of another inventory, the item goes
// back to the stage that makes it.
func Read[T any](ctx context.Context, a *Area, name, inventoryID string, about any, index func(T) int) (map[int]T, error) {
	var said jsontext.Value // a damaged list must leave nothing in about
	rows, err := readListOnce(ctx, a, name, inventoryID, &said, index)
	if Unreadable(ctx, err) {
		a.Log.WarnContext(ctx, "list is unreadable; reading it again", "list", name, "err", err)
		rows, err = readListOnce(ctx, a, name, inventoryID, &said, index)
	}
	if err == nil && about != nil {
		if err = json.Unmarshal(said, about); err != nil {
			err = &UselessError{name, err}
		}
	}
	return rows, a.Remade(ctx, err)
}

func readListOnce[T any](ctx context.Context, a *Area, name, inventoryID string, about *jsontext.Value, index func(T) int) (map[int]T, error) {
	body, err := a.open(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, a.Gone(name)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	source := &watched{r: body}
	rows, err := decodeList(source, name, inventoryID, about, index)
	if err != nil {
		a.Recent.Forget(a.Item)
	}
	if err != nil && source.err != nil && !errors.Is(err, errOtherInventory) { // the connection failed, the bytes are not to blame
		return nil, fmt.Errorf("read %s: %w", name, source.err)
	}
	return rows, err
}

// Unreadable tells whether a list or inventory has wrong bytes, or did not arrive whole.
// Before that has consequences it is read once more, by another request.
func Unreadable(ctx context.Context, err error) bool {
	_, useless := errors.AsType[*UselessError](err)
	return useless || errors.Is(err, ErrDamaged) || err != nil && ctx.Err() == nil && (fault.In(err) != nil || !cause.Known(err))
}

// UselessError is the error of a list whose bytes are wrong.
type UselessError struct {
	name string
	err  error
}

// Error names the list and what is wrong with it.
func (e *UselessError) Error() string { return "read " + e.name + ": " + e.err.Error() }

// Unwrap returns what is wrong.
func (e *UselessError) Unwrap() error { return e.err }

// Remade sends an item back whose list is of no use; any other error stays.
func (a *Area) Remade(ctx context.Context, err error) error {
	list, useless := errors.AsType[*UselessError](err)
	if !useless {
		return err
	}
	a.Log.WarnContext(ctx, "list is unusable; sending the item back to the stage that makes it", "list", list.name, "err", list.err)
	return a.missing(list.name)
}

// errOtherInventory says that a list goes with another inventory.
var errOtherInventory = errors.New("the list belongs to another inventory")

// errMore says that a list has more rows than its header says.
var errMore = errors.New("it has more rows than the inventory has files")

// watched remembers an error of its reader that is not its end.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

func decodeList[T any](r io.Reader, name, inventoryID string, about any, index func(T) int) (map[int]T, error) {
	l, err := openList[T](r, name, inventoryID, about)
	if err != nil {
		return nil, err
	}
	defer l.close()
	rows := map[int]T{}
	for {
		row, ok, err := l.next()
		if err != nil || !ok {
			return rows, err
		}
		rows[index(row)] = row
	}
}

// listReader reads a list row by row.
type listReader[T any] struct {
	name        string
	z           io.ReadCloser
	lines       *jsontext.Decoder
	read, count int
	ended       bool
}

func openList[T any](r io.Reader, name, inventoryID string, about any) (*listReader[T], error) {
	z, err := bag.Decompress(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	l := &listReader[T]{name: name, z: z, lines: jsontext.NewDecoder(z)}
	var header listHeader
	err = json.UnmarshalDecode(l.lines, &header)
	switch {
	case err != nil:
	case header.Inventory != inventoryID:
		err = errOtherInventory
	case about != nil:
		err = json.Unmarshal(header.About, about)
	}
	if err != nil {
		l.close()
		return nil, &UselessError{name, err}
	}
	l.count = header.Count
	return l, nil
}

// close may also be called on nil.
func (l *listReader[T]) close() {
	if l != nil {
		_ = l.z.Close() // which has no error
	}
}

// next returns false after the last row. Only then are the bytes of all rows known
// to be right, as their checksum comes at the end.
func (l *listReader[T]) next() (row T, ok bool, err error) {
	if l.read == l.count {
		if !l.ended {
			if _, err := l.lines.ReadValue(); !errors.Is(err, io.EOF) {
				return row, false, &UselessError{l.name, fmt.Errorf("after row %d, its last: %w", l.count, cmp.Or(err, errMore))}
			}
			l.ended = true
		}
		return row, false, nil
	}
	if err := json.UnmarshalDecode(l.lines, &row); err != nil {
		return row, false, &UselessError{l.name, fmt.Errorf("row %d of %d: %w", l.read, l.count, err)}
	}
	l.read++
	return row, true, nil
}

// beside reads a list beside the inventory, whose order it has.
type beside[T any] struct {
	*listReader[T]
	index func(T) int
	ahead *T
}

// At returns the row of a file, if there is one. It is asked for one file after the
// other. A list that was not opened has none.
func (b *beside[T]) At(i int) (row T, ok bool, err error) {
	for b.listReader != nil {
		if b.ahead == nil {
			next, more, err := b.next()
			if err != nil || !more {
				return row, false, err
			}
			b.ahead = &next
		}
		switch at := b.index(*b.ahead); {
		case at > i:
			return row, false, nil
		case at == i:
			return *b.ahead, true, nil
		}
		b.ahead = nil
	}
	return row, false, nil
}

// ByIndex yields rows in the order of the inventory.
func ByIndex[T any](rows map[int]T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, i := range slices.Sorted(maps.Keys(rows)) {
			if !yield(rows[i]) {
				return
			}
		}
	}
}

// Write puts a list, whose rows are in the order of the inventory, beside the
// inventory that it goes with.
func Write[T any](ctx context.Context, a *Area, name, inventoryID string, about any, count int, rows iter.Seq[T]) error {
	aboutJSON, err := json.Marshal(about, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return a.Put(ctx, name, func(out io.Writer) error {
		return bag.Compress(out, func(out io.Writer) error {
			lines := jsontext.NewEncoder(out, jsontext.AllowInvalidUTF8(true))
			if err := json.MarshalEncode(lines, listHeader{Inventory: inventoryID, Count: count, About: aboutJSON}); err != nil {
				return err
			}
			for row := range rows {
				if err := json.MarshalEncode(lines, row); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
