// Package premis writes records as PREMIS 3 documents.
package premis

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A Source is what a PREMIS document describes. It is read while that is written.
type Source struct {
	object *record.Object // nil: the document is of files alone
	files  iter.Seq2[record.File, error]
	events iter.Seq2[registry.LinkedEvent, error]
}

// OfObject reads an object with its files and the events of all of them.
func OfObject(ctx context.Context, e *registry.Export, identifier string) (Source, error) {
	o, err := e.Object(ctx, identifier)
	return Source{&o, e.Files(ctx, o), e.ObjectEvents(ctx, o)}, err
}

// OfFile reads one file and its events.
func OfFile(ctx context.Context, e *registry.Export, identifier string) (Source, error) {
	f, err := e.File(ctx, identifier)
	one := func(yield func(record.File, error) bool) { yield(f, nil) }
	return Source{nil, one, e.FileEvents(ctx, f)}, err
}

// namespace is that of the schema, and the prefix by which xsi:type names its types.
const namespace = "http://www.loc.gov/premis/v3"

// Write writes objects, events and agents, in the order that the schema wants.
// Only the agents are kept until the end: they are few.
func Write(w io.Writer, source Source) error {
	d := Begin(w)
	if source.object != nil {
		d.note(d.Object(*source.object))
	}
	var broken error // what was read, not what was written
	for f, err := range source.files {
		if broken = err; err != nil || d.File(f) != nil {
			break
		}
	}
	if broken == nil && d.err == nil {
		for event, err := range source.events {
			if broken = err; err != nil || d.Event(event) != nil {
				break
			}
		}
	}
	if broken != nil {
		return fmt.Errorf("write PREMIS: %w", errors.Join(broken, d.Flush()))
	}
	return d.End()
}

// A Document is written entity by entity: all objects and files first, and then the events.
// After an error it writes nothing more, and returns the error again.
type Document struct {
	out    *bufio.Writer
	xml    *xml.Encoder
	begun  bool // it has written an entity
	agents map[Agent]bool
	err    error
}

// Begin begins a document.
func Begin(w io.Writer) *Document {
	d := Resume(w, nil)
	root := element("premis", "xmlns", namespace, "xmlns:premis", namespace,
		"xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance", "version", "3.0")
	d.text(xml.Header)
	head := xml.NewEncoder(d.out)
	d.note(head.EncodeToken(root))
	d.note(head.Flush())
	return d
}

// Resume continues a document whose beginning was written by another, which has had these
// agents.
func Resume(w io.Writer, agents []Agent) *Document {
	d := &Document{out: bufio.NewWriterSize(w, 1<<16), agents: map[Agent]bool{}}
	d.xml = xml.NewEncoder(d.out)
	d.xml.Indent("  ", "  ")
	for _, a := range agents {
		d.agents[a] = true
	}
	return d
}

func (d *Document) note(err error) {
	if d.err == nil && err != nil {
		d.err = fmt.Errorf("write PREMIS: %w", err)
	}
}

func (d *Document) text(s string) {
	if d.err == nil {
		_, err := d.out.WriteString(s)
		d.note(err)
	}
}

func (d *Document) entity(v any, start xml.StartElement) error {
	if d.err == nil {
		if !d.begun { // later the encoder does it
			d.text("\n")
		}
		d.begun = true
		d.note(d.xml.EncodeElement(v, start))
	}
	return d.err
}

// Object writes an object.
func (d *Document) Object(o record.Object) error {
	return d.entity(describeObject(o), element("object", "xsi:type", "premis:intellectualEntity"))
}

// File writes a file.
func (d *Document) File(f record.File) error {
	return d.entity(describeFile(f), element("object", "xsi:type", "premis:file"))
}

// Event writes an event, and keeps its agent for the end.
func (d *Document) Event(e registry.LinkedEvent) error {
	d.agents[agentOf(e.Event)] = true
	return d.entity(describeEvent(e), element("event"))
}

// Agents are those of the events so far, for [Resume].
func (d *Document) Agents() []Agent {
	return slices.SortedFunc(maps.Keys(d.agents), func(a, b Agent) int { return strings.Compare(a.id(), b.id()) })
}

// Flush hands on what was written so far.
func (d *Document) Flush() error {
	if d.err == nil {
		d.note(d.out.Flush())
	}
	return d.err
}

// End writes the agents, and ends the document.
func (d *Document) End() error {
	for _, a := range d.Agents() {
		if err := d.entity(describeAgent(a), element("agent")); err != nil {
			return err
		}
	}
	d.text("\n</premis>\n")
	return d.Flush()
}

// element is a start tag with attributes: name, value, and so on. Prefixes are part
// of the names, since encoding/xml makes up its own.
func element(name string, attributes ...string) xml.StartElement {
	start := xml.StartElement{Name: xml.Name{Local: name}}
	for pair := range slices.Chunk(attributes, 2) {
		start.Attr = append(start.Attr, xml.Attr{Name: xml.Name{Local: pair[0]}, Value: pair[1]})
	}
	return start
}
