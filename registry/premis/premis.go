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

	"github.com/farol-preservation/farol/registry"
)

// A Source is what a PREMIS document describes. It is read while that is written.
type Source struct {
	object *registry.Object // nil: the document is of files alone
	files  iter.Seq2[registry.File, error]
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
	one := func(yield func(registry.File, error) bool) { yield(f, nil) }
	return Source{nil, one, e.FileEvents(ctx, f)}, err
}

// namespace is that of the schema, and the prefix by which xsi:type names its types.
const namespace = "http://www.loc.gov/premis/v3"

// Write writes objects, events and agents, in the order that the schema wants.
// Only the agents are kept until the end: they are few.
func Write(w io.Writer, source Source) error {
	buffered := bufio.NewWriterSize(w, 1<<16)
	if _, err := buffered.WriteString(xml.Header); err != nil {
		return fmt.Errorf("write PREMIS: %w", err)
	}
	e := xml.NewEncoder(buffered)
	e.Indent("", "  ")
	root := element("premis", "xmlns", namespace, "xmlns:premis", namespace,
		"xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance", "version", "3.0")
	err := e.EncodeToken(root)
	if err == nil {
		err = writeEntities(e, source)
	}
	if err == nil {
		err = errors.Join(e.EncodeToken(root.End()), e.Close())
	}
	if err == nil {
		_, err = buffered.WriteString("\n")
	}
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return fmt.Errorf("write PREMIS: %w", err)
	}
	return nil
}

func writeEntities(e *xml.Encoder, source Source) error {
	if source.object != nil {
		if err := e.EncodeElement(describeObject(*source.object), element("object", "xsi:type", "premis:intellectualEntity")); err != nil {
			return err
		}
	}
	file := element("object", "xsi:type", "premis:file")
	for f, err := range source.files {
		if err != nil {
			return err
		}
		if err := e.EncodeElement(describeFile(f), file); err != nil {
			return err
		}
	}
	agents := map[softwareAgent]bool{}
	for event, err := range source.events {
		if err != nil {
			return err
		}
		agents[agentOf(event.Event)] = true
		if err := e.EncodeElement(describeEvent(event), element("event")); err != nil {
			return err
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(agents), func(a, b softwareAgent) int { return strings.Compare(a.id(), b.id()) }) {
		if err := e.EncodeElement(describeAgent(a), element("agent")); err != nil {
			return err
		}
	}
	return nil
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
