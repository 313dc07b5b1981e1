package main

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

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/registry"
)

// exportPREMIS writes what is on record under an identifier as a PREMIS document. It
// may take longer than other commands: an object has many files.
func exportPREMIS(cmd *cobra.Command, command, identifier string,
	read func(context.Context, *registry.Export, string) (premisSource, error),
) error {
	s, err := connectRegistry(cmd.Context(), command)
	if err != nil {
		return err
	}
	defer s.close()
	return s.registry.Export(cmd.Context(), func(e *registry.Export) error {
		source, err := read(cmd.Context(), e, identifier)
		if err != nil {
			return err
		}
		return writePREMIS(cmd.OutOrStdout(), source)
	})
}

// premisSource is what a PREMIS document tells of, read as it is written.
type premisSource struct {
	object *registry.Object // nil: the document is of files alone
	files  iter.Seq2[registry.File, error]
	events iter.Seq2[registry.LinkedEvent, error]
}

func premisOfWholeObject(ctx context.Context, e *registry.Export, identifier string) (premisSource, error) {
	o, err := e.Object(ctx, identifier)
	return premisSource{&o, e.Files(ctx, o), e.ObjectEvents(ctx, o)}, noObject(err)
}

func premisOfOneFile(ctx context.Context, e *registry.Export, identifier string) (premisSource, error) {
	f, err := e.File(ctx, identifier)
	one := func(yield func(registry.File, error) bool) { yield(f, nil) }
	return premisSource{nil, one, e.FileEvents(ctx, f)}, noFile(err)
}

// premisNamespace is that of the schema, and the prefix by which xsi:type names its types.
const premisNamespace = "http://www.loc.gov/premis/v3"

// writePREMIS writes objects, events and agents, in the order that the schema wants.
// Only the agents are kept until the end: they are few.
func writePREMIS(w io.Writer, source premisSource) error {
	buffered := bufio.NewWriterSize(w, 1<<16)
	if _, err := buffered.WriteString(xml.Header); err != nil {
		return fmt.Errorf("write PREMIS: %w", err)
	}
	e := xml.NewEncoder(buffered)
	e.Indent("", "  ")
	root := element("premis", "xmlns", premisNamespace, "xmlns:premis", premisNamespace,
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

func writeEntities(e *xml.Encoder, source premisSource) error {
	if source.object != nil {
		if err := e.EncodeElement(premisOfObject(*source.object), element("object", "xsi:type", "premis:intellectualEntity")); err != nil {
			return err
		}
	}
	file := element("object", "xsi:type", "premis:file")
	for f, err := range source.files {
		if err != nil {
			return err
		}
		if err := e.EncodeElement(premisOfFile(f), file); err != nil {
			return err
		}
	}
	agents := map[softwareAgent]bool{}
	for event, err := range source.events {
		if err != nil {
			return err
		}
		agents[agentOf(event.Event)] = true
		if err := e.EncodeElement(premisOfEvent(event), element("event")); err != nil {
			return err
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(agents), func(a, b softwareAgent) int { return strings.Compare(a.id(), b.id()) }) {
		if err := e.EncodeElement(premisOfAgent(a), element("agent")); err != nil {
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
