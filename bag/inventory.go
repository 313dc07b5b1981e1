package bag

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
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
	Version       int         `json:"version"`
	TopDir        string      `json:"top_dir"`
	Profile       string      `json:"profile"`
	Identifier    string      `json:"profile_identifier"`
	StorageOption string      `json:"storage_option"`
	Files         int         `json:"files"`
	Bytes         int64       `json:"bytes"`
	Manifests     []Algorithm `json:"manifests,omitempty"`
	TagManifests  []Algorithm `json:"tag_manifests,omitempty"`
	HasFetch      bool        `json:"has_fetch,omitzero"`
	NoPayloadDir  bool        `json:"no_payload_dir,omitzero"`
	Unpacked      bool        `json:"unpacked,omitzero"`
	Tags          []Tag       `json:"tags,omitempty"`
	Problems      []Finding   `json:"problems,omitempty"`
	Warnings      []Finding   `json:"warnings,omitempty"`
	More          int         `json:"more,omitzero"`
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
	Path     string     `json:"path"`
	Kind     Kind       `json:"kind"`
	Offset   int64      `json:"offset"`
	Size     int64      `json:"size"`
	ModTime  time.Time  `json:"mtime,omitzero"`
	Digests  *Digests   `json:"digests,omitzero"`
	Parts    []byte     `json:"parts,omitempty"`     // 32 bytes each
	PartsMD5 []byte     `json:"parts_md5,omitempty"` // 16 bytes each
	Expected []Expected `json:"expected,omitempty"`
	Missing  bool       `json:"missing,omitzero"`
	Fetch    bool       `json:"fetch,omitzero"`
	UUID     uuid.UUID  `json:"uuid,omitzero"`
	Format   string     `json:"format,omitempty"`
}

// MarshalJSONTo writes the file as in an inventory.
func (f *File) MarshalJSONTo(e *jsontext.Encoder) error {
	line := fileJSON{
		Path:     f.Path,
		Kind:     f.Kind(),
		Offset:   f.Offset,
		Size:     f.Size,
		ModTime:  f.ModTime,
		Expected: f.Expected(),
		Missing:  f.Missing,
		Fetch:    f.Fetch,
		UUID:     f.UUID,
		Format:   f.Format,
	}
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
	var line fileJSON
	if err := json.UnmarshalDecode(d, &line); err != nil {
		return err
	}
	switch {
	case pathFault(line.Path) != "":
		return fmt.Errorf("path %q: %s", line.Path, pathFault(line.Path))
	case line.Offset < 0 || line.Size < 0:
		return fmt.Errorf("%s: negative offset or size", line.Path)
	case line.Digests == nil && !line.Missing:
		return fmt.Errorf("%s: no digests", line.Path)
	case len(line.Parts)%32 != 0, len(line.PartsMD5) != 0 && len(line.PartsMD5) != len(line.Parts)/2:
		return fmt.Errorf("%s: parts of %d and %d bytes", line.Path, len(line.Parts), len(line.PartsMD5))
	}
	*f = File{
		Path:    line.Path,
		Offset:  line.Offset,
		Size:    line.Size,
		ModTime: line.ModTime,
		Missing: line.Missing,
		Fetch:   line.Fetch,
		Parts:   newPartDigests(slices.Collect(slices.Chunk(line.Parts, 32)), slices.Collect(slices.Chunk(line.PartsMD5, 16))),
		UUID:    line.UUID,
		Format:  unique.Make(line.Format).Value(), // few different ones, in a bag of many files
	}
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
	name, _ := profileFor(b.ProfileIdentifier())
	err := writeLine(out, inventoryHeader{
		Version:       inventoryVersion,
		TopDir:        b.TopDir,
		Profile:       name,
		Identifier:    b.ProfileIdentifier(),
		StorageOption: b.StorageOption(),
		Files:         len(b.Files),
		Bytes:         b.Bytes,
		Manifests:     b.Manifests,
		TagManifests:  b.TagManifests,
		HasFetch:      b.HasFetch,
		NoPayloadDir:  b.NoPayloadDir,
		Unpacked:      b.Unpacked,
		Tags:          b.Tags,
		Problems:      b.Problems,
		Warnings:      b.Warnings,
		More:          b.More,
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
	lines *bufio.Reader
	long  []byte
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
	inv := &Inventory{src: src, zstd: z, lines: bufio.NewReader(z)}
	if err := inv.header(); err != nil {
		inv.Close()
		return nil, fmt.Errorf("open inventory: %w", err)
	}
	return inv, nil
}

// Close frees what the decoder holds. It does not close the underlying reader.
func (inv *Inventory) Close() { _ = inv.zstd.Close() } // which has no error

func (inv *Inventory) header() error {
	var h inventoryHeader
	if err := inv.line(&h); err != nil {
		return err
	}
	if h.Version != inventoryVersion || h.Files < 0 {
		return fmt.Errorf("%w: version %d, %d files", ErrInventory, h.Version, h.Files)
	}
	inv.Count = h.Files
	inv.Bag = Bag{
		TopDir:       h.TopDir,
		Tags:         h.Tags,
		Manifests:    h.Manifests,
		TagManifests: h.TagManifests,
		HasFetch:     h.HasFetch,
		NoPayloadDir: h.NoPayloadDir,
		Unpacked:     h.Unpacked,
		Bytes:        h.Bytes,
		Problems:     h.Problems,
		Warnings:     h.Warnings,
		More:         h.More,
	}
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
	_, err := inv.lines.ReadByte()
	switch {
	case errors.Is(err, io.EOF) && inv.src.err == nil:
		return nil
	case err != nil:
		return inv.fault(err)
	default:
		return fmt.Errorf("%w: data after its end record", ErrInventory)
	}
}

// line decodes the next line into v.
func (inv *Inventory) line(v any) error {
	line, err := inv.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line, err = inv.longLine(line)
	}
	if err != nil {
		return inv.fault(err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%w: %w", ErrInventory, err)
	}
	return nil
}

func (inv *Inventory) longLine(first []byte) ([]byte, error) {
	inv.long = append(inv.long[:0], first...)
	for {
		piece, err := inv.lines.ReadSlice('\n')
		inv.long = append(inv.long, piece...)
		switch {
		case len(inv.long) > maxInventoryLine:
			return nil, fmt.Errorf("a line longer than %d bytes", maxInventoryLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return inv.long, err
		}
	}
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
