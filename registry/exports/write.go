package exports

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/premis"
)

// Cursor is how far an export is written. The zero Cursor is its beginning. It may go on in
// another process, from another snapshot.
type Cursor struct {
	Step    int            `json:"step"`            // which part of it
	After   string         `json:"after,omitempty"` // identifier that was written last
	Records int64          `json:"records"`
	Agents  []premis.Agent `json:"agents,omitempty"`
	Done    bool           `json:"done,omitempty"`
}

// page writes the next records of a part of an export. It returns how many, and the
// identifier of the last; "": the part is at its end.
type page func(ctx context.Context, s *Snapshot, o Of, after string) (records int, last string, err error)

// pageOf writes each of the next records that read has.
func pageOf[T any](read func(s *Snapshot, ctx context.Context, o Of, after string) ([]T, string, error), write func(T) error) page {
	return func(ctx context.Context, s *Snapshot, o Of, after string) (int, string, error) {
		list, last, err := read(s, ctx, o, after)
		if err != nil {
			return 0, "", err
		}
		for _, v := range list {
			if err := write(v); err != nil {
				return 0, "", err
			}
		}
		return len(list), last, nil
	}
}

// Write writes the next page of an export, of any kind but evidence.
func (s *Snapshot) Write(ctx context.Context, w io.Writer, o Of, c Cursor) (Cursor, error) {
	steps := []page{}
	begin := func() error { return nil }
	var doc *premis.Document
	switch o.Kind {
	case Inventory:
		begin = func() error { return writeRow(w, inventoryHeader) }
		steps = []page{pageOf((*Snapshot).activeFiles, func(f record.File) error { return writeRow(w, inventoryRow(f)) })}
	case Manifest:
		steps = []page{manifestPage(w)}
	case Events:
		line := func(e event) error { return writeLine(w, eventLine{e.About, e.LinkedEvent.Event}) }
		steps = []page{pageOf((*Snapshot).objectEvents, line), pageOf((*Snapshot).fileEvents, line)}
	case PREMIS:
		doc = premis.Resume(w, c.Agents)
		begin = func() error {
			doc = premis.Begin(w)
			return nil
		}
		steps = entityPages(&doc)
	case Evidence:
	}
	if len(steps) == 0 {
		return c, fmt.Errorf("export: %w: there are no pages of the kind %q", registry.ErrRefused, o.Kind)
	}
	if c.Step == 0 && c.After == "" {
		if err := begin(); err != nil {
			return c, err
		}
	}
	n, last, err := steps[c.Step](ctx, s, o, c.After)
	if err != nil {
		return c, err
	}
	c.Records, c.After = c.Records+int64(n), last
	if last == "" {
		c.Step++
		c.Done = c.Step == len(steps)
	}
	if doc == nil {
		return c, nil
	}
	c.Agents = doc.Agents()
	if c.Done {
		return c, doc.End()
	}
	return c, doc.Flush()
}

// entityPages write into the document that there is when they are called.
func entityPages(doc **premis.Document) []page {
	entity := func(e event) error { return (*doc).Event(e.LinkedEvent) }
	return []page{
		pageOf((*Snapshot).objects, func(o record.Object) error { return (*doc).Object(o) }),
		pageOf((*Snapshot).allFiles, func(f record.File) error { return (*doc).File(f) }),
		pageOf((*Snapshot).objectEvents, entity), pageOf((*Snapshot).fileEvents, entity),
	}
}

// WriteAll writes an export from its beginning to its end, and returns the number of its
// records.
func (s *Snapshot) WriteAll(ctx context.Context, w io.Writer, o Of) (records int64, err error) {
	if o.Kind == Evidence {
		return s.evidence(ctx, w, o)
	}
	for c := (Cursor{}); !c.Done && err == nil; records = c.Records {
		c, err = s.Write(ctx, w, o, c)
	}
	return records, err
}

//nolint:gochecknoglobals // a constant, but for Go
var inventoryHeader = []string{
	"identifier", "object", "path", "uuid", "size", "sha256", "md5", "storage_option", "copies", "format_puid", "format_name", "mime_type", "recorded_at", "last_fixity_check",
}

func writeRow(w io.Writer, cells []string) error {
	out := csv.NewWriter(w)
	if err := out.Write(registry.HarmlessCells(cells)); err != nil {
		return fmt.Errorf("write a row: %w", err)
	}
	out.Flush()
	return out.Error() //nolint:wrapcheck // the writer is the caller's
}

// digestOf is the present digest of a file.
func digestOf(f record.File, algorithm string) string {
	for _, d := range f.Digests {
		if d.Present && d.Algorithm == algorithm {
			return d.Digest
		}
	}
	return ""
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func inventoryRow(f record.File) []string {
	var targets []string
	for _, c := range f.Copies {
		targets = append(targets, c.Target)
	}
	return []string{
		f.Identifier, f.Object, strings.TrimPrefix(f.Identifier, f.Object+"/"), f.UUID, strconv.FormatInt(f.Size, 10), digestOf(f, "sha256"), digestOf(f, "md5"),
		f.StorageOption, strings.Join(targets, " "), f.FormatPUID, f.FormatName, f.FileFormat, instant(f.CreatedAt), instant(f.LastFixityCheck),
	}
}

// escapedPath is a path as manifests have it: what ends a line is escaped as in BagIt.
func escapedPath(path string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(path)
}

func manifestPage(w io.Writer) page {
	return func(ctx context.Context, s *Snapshot, o Of, after string) (int, string, error) {
		files, last, err := s.activeFiles(ctx, o, after)
		if err != nil {
			return 0, "", err
		}
		n := 0
		for _, f := range files {
			digest := digestOf(f, "sha256")
			if digest == "" {
				continue // of an old file, which the inventory has
			}
			if _, err := fmt.Fprintf(w, "%s  %s\n", digest, escapedPath(strings.TrimPrefix(f.Identifier, o.prefix()))); err != nil {
				return 0, "", err //nolint:wrapcheck // the writer is the caller's
			}
			n++
		}
		return n, last, nil
	}
}

// eventLine is a line of an export of events.
type eventLine struct {
	About string `json:"about"` // identifier of an object or a file

	record.Event
}

// writeLine writes a value as a line of JSON.
func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	return nil
}
