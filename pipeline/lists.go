package pipeline

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage"
)

// What the stages leave for each other under <item>/ in the staging bucket.
// Each is written once, whole, when its stage is done. A list names the
// inventory that it goes with, so that what an earlier pass of the item left
// behind is never taken for this one's.
const (
	inventoryName = "inventory.jsonl.zst" // by Receive
	verdictName   = "verdict.jsonl.zst"   // by Validate
	planName      = "plan.jsonl.zst"      // by Reingest Check
	formatsName   = "formats.jsonl.zst"   // by Format Identification
	copiesName    = "copies.jsonl.zst"    // by Storage Validation
)

// madeBy is the stage that makes a list anew when it is not there.
func madeBy(name string) string {
	switch name {
	case verdictName:
		return "Validate"
	case planName:
		return "Reingest Check"
	case formatsName:
		return "Format Identification"
	case copiesName:
		return "Storage Validation"
	default:
		return "Receive"
	}
}

// plan is what the registry already holds of the bag, as Reingest Check found it.
type plan struct {
	StorageOption string `json:"storage_option"` // where the object is or will be stored
	ObjectID      int64  `json:"object_id,omitempty"`
	Deletions     int64  `json:"deletions,omitempty"` // of the object or its files, so far
	known         map[int]known
}

// judged is how Validate came to take the bag for valid.
type judged struct {
	By       string    `json:"by"`       // profile and version of BagIt
	Software string    `json:"software"` // that judged
	Warnings int       `json:"warnings"`
	Found    string    `json:"found,omitempty"` // the warnings, in words
	At       time.Time `json:"at"`
}

// known is a file that the registry has seen before.
type known struct {
	Index     int    `json:"i"`
	UUID      string `json:"uuid"`
	Unchanged bool   `json:"unchanged,omitempty"` // active, and its content is the same
	Deleted   bool   `json:"deleted,omitempty"`
	Key       string `json:"key,omitempty"` // under which content that is on record is stored again, because a copy of it is bad; "": as its content says
}

// copies are a file's verified copies in the order of the storage option's targets.
type copies struct {
	Index  int          `json:"i"`
	Copies []storedCopy `json:"copies"`
}

type listHeader struct {
	Inventory string          `json:"inventory"` // digest of the inventory it goes with
	Count     int             `json:"count"`
	About     json.RawMessage `json:"about,omitempty"`
}

// toStore reads the inventory and the plan and returns the files that go into
// preservation storage.
func (w *work) toStore(ctx context.Context, d Deps) (p *plan, files []*file, inventoryID string, err error) {
	_, id, err := w.inventory(ctx, d, func(i int, f *bag.File) {
		if i == 0 {
			files = nil
		}
		if stored(f, known{}) {
			files = append(files, newFile(i, f))
		}
	})
	if err != nil {
		return nil, nil, "", err
	}
	p = &plan{}
	if p.known, err = readList(ctx, w, d, planName, id, p, func(k known) int { return k.Index }); err != nil {
		return nil, nil, "", err
	}
	files = slices.DeleteFunc(files, func(f *file) bool { return p.known[f.index].Unchanged })
	for _, f := range files {
		f.reingest(p.known[f.index])
	}
	packFiles(files)
	return p, files, id, nil
}

// copyPlan is which files go where, and as what.
type copyPlan struct {
	files       []*file
	mimes       map[int]mimeRow
	names       []string // of the targets, the primary first
	targets     []*storage.Bucket
	inventoryID string
	bad         map[string]string // see badCopies
}

// mimeRow is what copies need of [identified].
type mimeRow struct {
	Index int    `json:"i"`
	MIME  string `json:"mime"`
}

// toCopy reads what Store has to make and Storage Validation has to find.
func (w *work) toCopy(ctx context.Context, d Deps) (c copyPlan, err error) {
	p, files, id, err := w.toStore(ctx, d)
	if err != nil {
		return copyPlan{}, err
	}
	c.files, c.inventoryID = files, id
	c.mimes, err = readList(ctx, w, d, formatsName, id, nil, func(f mimeRow) int { return f.Index })
	if err != nil {
		return copyPlan{}, err
	}
	c.names, c.targets, err = d.targets(p.StorageOption)
	return c, err
}

// newFile gives a file that is new to the registry its key in preservation
// storage, which is its uuid.
func newFile(i int, f *bag.File) *file {
	return &file{
		index: i, path: f.Path, offset: f.Offset, size: f.Size,
		md5: f.Digests.MD5, sha256: f.Digests.SHA256, parts: f.Parts, md5s: f.PartsMD5,
		uuid: f.UUID, key: f.UUID, format: f.Format,
	}
}

// reingest gives a file that is on record its uuid, and a key of that and the
// beginning of its SHA-256, so that the old bytes stay until the record has
// switched to the new.
func (f *file) reingest(k known) {
	if k.UUID != "" {
		f.uuid = k.UUID
		f.key = k.UUID + "." + hex.EncodeToString(f.sha256[:8])
		if k.Key != "" {
			f.key = k.Key
		}
		f.alone = !k.Deleted
	}
}

// gone is missing, of what the staging area does not have. A process that looks into
// the wrong bucket says the same.
func (d Deps) gone(name string) error { return claim.Doubt(d.Staging.Service(), missing(name)) }

// missing sends an item back to the stage that makes what is not in the staging area,
// or of no use.
func missing(name string) error {
	if name == inventoryName {
		return claim.SendBack("Receive", "The inventory of the bag is no longer in the staging area. The bag is read again.")
	}
	return claim.SendBack(madeBy(name), "The list "+name+" is not in the staging area, or of no use. It is made anew.")
}

// readList reads a list and returns its rows by their index. about gets what
// the list says of itself. A list that is not there, or that goes with another
// inventory, sends the item back to the stage that makes it, if it is so when it is
// read again.
func readList[T any](ctx context.Context, w *work, d Deps, name, inventoryID string, about any, index func(T) int) (map[int]T, error) {
	var said json.RawMessage // what was wrong of it must leave nothing in about
	rows, err := readListOnce(ctx, w, d, name, inventoryID, &said, index)
	if spoiled(ctx, err) {
		w.log.WarnContext(ctx, "list is not readable; reading it again", "list", name, "err", err)
		rows, err = readListOnce(ctx, w, d, name, inventoryID, &said, index)
	}
	if err == nil && about != nil {
		if err = json.Unmarshal(said, about); err != nil {
			err = &uselessList{name, err}
		}
	}
	return rows, w.remade(ctx, err)
}

func readListOnce[T any](ctx context.Context, w *work, d Deps, name, inventoryID string, about *json.RawMessage, index func(T) int) (map[int]T, error) {
	body, err := d.Staging.Get(ctx, w.staged(name), storage.Range{Length: -1})
	if errors.Is(err, storage.ErrNotFound) {
		return nil, d.gone(name)
	}
	if err != nil {
		return nil, storageErr(err)
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	source := &watched{r: body}
	rows, err := decodeList(source, name, inventoryID, about, index)
	if err != nil && source.err != nil && !errors.Is(err, errOtherInventory) { // not the bytes are wrong, but their way here
		return nil, fmt.Errorf("read %s: %w", name, source.err)
	}
	return rows, err
}

// spoiled tells whether an error is that of a list or inventory whose bytes are wrong,
// or did not all come. Before it has consequences they are read once more, by another
// request.
func spoiled(ctx context.Context, err error) bool {
	var list *uselessList
	return errors.As(err, &list) || errors.Is(err, errDamaged) || err != nil && ctx.Err() == nil && (fault.In(err) != nil || !classified(err))
}

// uselessList is the error of a list whose bytes are wrong.
type uselessList struct {
	name string
	err  error
}

func (e *uselessList) Error() string { return "read " + e.name + ": " + e.err.Error() }

func (e *uselessList) Unwrap() error { return e.err }

// remade sends an item back whose list is of no use; any other error stays.
func (w *work) remade(ctx context.Context, err error) error {
	var list *uselessList
	if !errors.As(err, &list) {
		return err
	}
	w.log.WarnContext(ctx, "list is of no use", "list", list.name, "err", list.err)
	return missing(list.name)
}

// errOtherInventory says that a list goes with another inventory.
var errOtherInventory = errors.New("the list goes with another inventory")

// errMore says that there is more of a list than it announced.
var errMore = errors.New("there is one more")

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
	z           *zstd.Decoder
	lines       *json.Decoder
	read, count int
	ended       bool
}

func openList[T any](r io.Reader, name, inventoryID string, about any) (*listReader[T], error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	l := &listReader[T]{name: name, z: z, lines: json.NewDecoder(bufio.NewReader(z))}
	var header listHeader
	err = l.lines.Decode(&header)
	switch {
	case err != nil:
	case header.Inventory != inventoryID:
		err = errOtherInventory
	case about != nil:
		err = json.Unmarshal(header.About, about)
	}
	if err != nil {
		l.close()
		return nil, &uselessList{name, err}
	}
	l.count = header.Count
	return l, nil
}

// close may also be called on nil.
func (l *listReader[T]) close() {
	if l != nil {
		l.z.Close()
	}
}

// next returns false after the last row. Only then are the bytes of all rows known
// to be right, as their checksum comes at the end.
func (l *listReader[T]) next() (row T, ok bool, err error) {
	if l.read == l.count {
		if !l.ended {
			if err := l.lines.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
				return row, false, &uselessList{l.name, fmt.Errorf("after row %d, its last: %w", l.count, cmp.Or(err, errMore))}
			}
			l.ended = true
		}
		return row, false, nil
	}
	if err := l.lines.Decode(&row); err != nil {
		return row, false, &uselessList{l.name, fmt.Errorf("row %d of %d: %w", l.read, l.count, err)}
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

// at returns the row of a file, if there is one. It is asked for one file after the
// other. A list that was not opened has none.
func (b *beside[T]) at(i int) (row T, ok bool, err error) {
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

// byIndex yields rows in the order of the inventory.
func byIndex[T any](rows map[int]T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, i := range slices.Sorted(maps.Keys(rows)) {
			if !yield(rows[i]) {
				return
			}
		}
	}
}

// writeList puts a list, whose rows are in the order of the inventory, beside the
// inventory that it goes with.
func writeList[T any](ctx context.Context, w *work, d Deps, name, inventoryID string, about any, count int, rows iter.Seq[T]) error {
	aboutJSON, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return w.putStaged(ctx, d, name, func(out io.Writer) error {
		z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
		if err != nil {
			return err
		}
		lines := json.NewEncoder(z)
		if err := lines.Encode(listHeader{Inventory: inventoryID, Count: count, About: aboutJSON}); err != nil {
			return err
		}
		for row := range rows {
			if err := lines.Encode(row); err != nil {
				return err
			}
		}
		return z.Close()
	})
}
