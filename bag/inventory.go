package bag

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/profile"
)

// ErrInventory marks an inventory that was damaged, cut off, or written by a
// later Farol. Reading it again will not help; it has to be made again.
var ErrInventory = errors.New("inventory is not readable")

const (
	inventoryVersion = 1
	// maxInventoryLine bounds a line before it is decoded, in bytes. The longest
	// is the first, with three tag files of 1 MiB and some thousand findings.
	maxInventoryLine = 64 << 20
)

// inventoryHeader is the first line. Members may be added to it and to the
// lines of files: readers ignore those that they do not know.
type inventoryHeader struct {
	Version       int    `json:"version"`
	Profile       string `json:"profile"`
	Identifier    string `json:"profile_identifier"`
	StorageOption string `json:"storage_option"`
	Files         int    `json:"files"`
	*Bag
}

// inventoryEnd is the last line. An inventory without it was cut off.
type inventoryEnd struct {
	End   bool `json:"end"`
	Files int  `json:"files"`
}

// fileJSON is the line of a file. Its kind is for people: readers go by the path. Lines are read
// again by each stage, and of a large bag there are many, so they go through version 2 of the
// standard library's package, which is several times as fast.
type fileJSON struct {
	*fileMembers

	Kind     Kind       `json:"kind"`
	Digests  *Digests   `json:"digests,omitzero"`
	Parts    []byte     `json:"parts,omitempty"`     // 32 bytes each
	PartsMD5 []byte     `json:"parts_md5,omitempty"` // 16 bytes each
	Expected []Expected `json:"expected,omitempty"`
}

// fileMembers are those of a File that are written as they are.
type fileMembers File

// MarshalJSONTo writes the file as in an inventory.
func (f *File) MarshalJSONTo(e *jsontext.Encoder) error {
	line := fileJSON{fileMembers: (*fileMembers)(f), Kind: f.Kind(), Expected: f.Expected()}
	if !f.Missing {
		line.Digests = &f.Digests
	}
	if f.Parts != nil {
		for _, p := range f.Parts.SHA256 {
			line.Parts = append(line.Parts, p[:]...)
		}
		for _, p := range f.Parts.MD5 {
			line.PartsMD5 = append(line.PartsMD5, p[:]...)
		}
	}
	return json.MarshalEncode(e, &line)
}

// UnmarshalJSONFrom reads what MarshalJSONTo writes.
func (f *File) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*f = File{}
	line := fileJSON{fileMembers: (*fileMembers)(f)}
	if err := json.UnmarshalDecode(d, &line); err != nil {
		return err
	}
	switch {
	case naming.PathFault(f.Path) != "":
		return fmt.Errorf("path %q: %s", f.Path, naming.PathFault(f.Path))
	case f.Offset < 0 || f.Size < 0:
		return fmt.Errorf("%s: negative offset or size", f.Path)
	case line.Digests == nil && !f.Missing:
		return fmt.Errorf("%s: no digests", f.Path)
	case len(line.Parts)%32 != 0, len(line.PartsMD5) != 0 && len(line.PartsMD5) != len(line.Parts)/2:
		return fmt.Errorf("%s: parts of %d and %d bytes", f.Path, len(line.Parts), len(line.PartsMD5))
	}
	f.Parts = digest.NewParts(slices.Collect(slices.Chunk(line.Parts, 32)), slices.Collect(slices.Chunk(line.PartsMD5, 16)))
	f.Format = unique.Make(f.Format).Value() // few different ones, in a bag of many files
	if line.Digests != nil {
		f.Digests = *line.Digests
	}
	for _, e := range line.Expected {
		f.expect(e)
	}
	return nil
}

// WriteInventory writes the bag as JSON lines, compressed by zstd: a header, a
// line for each file in order, and an end with their number. It does not close
// w, and the error is that of w.
func WriteInventory(w io.Writer, b *Bag) error {
	if err := Compress(w, func(w io.Writer) error { return writeLines(w, b) }); err != nil {
		return fmt.Errorf("write inventory: %w", err)
	}
	return nil
}

func writeLines(w io.Writer, b *Bag) error {
	out := bufio.NewWriter(w)
	name, _ := profile.For(b.ProfileIdentifier())
	err := writeLine(out, inventoryHeader{
		Version: inventoryVersion, Profile: name, Identifier: b.ProfileIdentifier(), StorageOption: b.StorageOption(), Files: len(b.Files), Bag: b,
	})
	if err != nil {
		return err
	}
	for _, f := range b.Files {
		if err := writeLine(out, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if err := writeLine(out, inventoryEnd{End: true, Files: len(b.Files)}); err != nil {
		return err
	}
	return out.Flush()
}

func writeLine(w *bufio.Writer, v any) error {
	line, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true)) // of texts; paths are valid
	if err != nil {
		return err
	}
	if len(line) >= maxInventoryLine {
		return fmt.Errorf("a line of %d bytes is longer than readers accept", len(line))
	}
	if _, err := w.Write(line); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

// An Inventory is one being read, for those who do not want to hold all files
// of a large bag at once. It is not safe for concurrent use.
type Inventory struct {
	// Bag has everything but the files.
	Bag Bag
	// Count is the number of files to come.
	Count int

	src   *source
	zstd  io.ReadCloser
	lines *bufio.Scanner
}

// OpenInventory reads the header of what [WriteInventory] wrote. The caller
// must call Close. An error that wraps [ErrInventory] means damage; any other
// is that of r.
func OpenInventory(r io.Reader) (*Inventory, error) {
	src := &source{r: r}
	z, err := Decompress(src)
	if err != nil {
		return nil, fmt.Errorf("open inventory: %w", err)
	}
	inv := &Inventory{src: src, zstd: z, lines: bufio.NewScanner(z)}
	inv.lines.Buffer(nil, maxInventoryLine)
	if err := inv.header(); err != nil {
		inv.Close()
		return nil, fmt.Errorf("open inventory: %w", err)
	}
	return inv, nil
}

// Close frees what the decoder holds. It does not close the underlying reader.
func (inv *Inventory) Close() { _ = inv.zstd.Close() } // which has no error

func (inv *Inventory) header() error {
	h := inventoryHeader{Bag: &inv.Bag}
	if err := inv.line(&h); err != nil {
		return err
	}
	if h.Version != inventoryVersion || h.Files < 0 {
		return fmt.Errorf("%w: version %d, %d files", ErrInventory, h.Version, h.Files)
	}
	inv.Count = h.Files
	return nil
}

// Files yields the files in order, once. After an error, which is the last
// thing it yields, the files before it must not be taken for all.
func (inv *Inventory) Files() iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		for range inv.Count {
			f := new(File)
			if err := inv.line(f); err != nil {
				yield(nil, fmt.Errorf("read inventory: %w", err))
				return
			}
			if !yield(f, nil) {
				return
			}
		}
		if err := inv.end(); err != nil {
			yield(nil, fmt.Errorf("read inventory: %w", err))
		}
	}
}

// end demands the last line, and nothing after it; reading to the end also
// makes zstd compare its checksum.
func (inv *Inventory) end() error {
	var e inventoryEnd
	if err := inv.line(&e); err != nil {
		return err
	}
	if !e.End || e.Files != inv.Count {
		return fmt.Errorf("%w: its end record says %d files, its header %d", ErrInventory, e.Files, inv.Count)
	}
	if inv.lines.Scan() {
		return inv.fault(errors.New("data after its end record"))
	}
	if err := inv.lines.Err(); err != nil {
		return inv.fault(err)
	}
	return inv.src.err
}

// line decodes the next line into v.
func (inv *Inventory) line(v any) error {
	if !inv.lines.Scan() {
		return inv.fault(cmp.Or(inv.lines.Err(), io.EOF))
	}
	if err := json.Unmarshal(inv.lines.Bytes(), v); err != nil {
		return inv.fault(err) // the reader's, where that is why the line is cut
	}
	return nil
}

// fault tells the reader's own errors, after which one may try again, from
// damage.
func (inv *Inventory) fault(err error) error {
	if inv.src.err != nil {
		return inv.src.err
	}
	return fmt.Errorf("%w: %w", ErrInventory, err)
}

// ReadInventory reads all that [WriteInventory] wrote. Errors are as for
// [OpenInventory].
func ReadInventory(r io.Reader) (*Bag, error) {
	inv, err := OpenInventory(r)
	if err != nil {
		return nil, err
	}
	defer inv.Close()
	b := inv.Bag
	for f, err := range inv.Files() {
		if err != nil {
			return nil, err
		}
		b.Files = append(b.Files, f)
	}
	return &b, nil
}
