package archive

import (
	"fmt"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// exportsPage are the exports, and the form for another.
type exportsPage struct {
	Exports []record.ExportView
	More    string
	Kinds   []frame.Choice
	All     bool
	Filter  string // institution
	Object  string // that is proposed
}

func loadExports(v *frame.Visit) (any, error) {
	d := exportsPage{All: v.Caller.Scope.All(), Filter: v.URL.Query().Get("institution"), Object: v.URL.Query().Get("object")}
	about := map[exports.Kind]string{
		"inventory": "Inventory: active files, as CSV", "manifest": "Manifest: the SHA-256 of files", "events": "Events, as JSON lines",
		"premis": "PREMIS 3, as XML", "evidence": "Evidence pack: all of this of one object, as ZIP",
	}
	for _, k := range exports.WithKinds(v.Caller.Person.Role == registry.RoleInstitutionalUser) {
		d.Kinds = append(d.Kinds, frame.Choice{Value: string(k), Name: about[k], Chosen: string(k) == v.URL.Query().Get("kind")})
	}
	found, err := frame.Get[frame.List[record.ExportView]](v, "exports", v.Query("institution", "after"))
	d.Exports, d.More = found.Items, v.More(found.Next)
	return d, err
}

// exportPage is an export, and where its content is.
type exportPage struct {
	Export record.ExportView
	Object string
	Item   *record.ItemView // that writes a large one; nil: there is none, or it is not known now
}

// loadExport shows an export that was made.
func loadExport(v *frame.Visit) (any, error) {
	e, err := frame.Get[record.ExportView](v, "exports/"+v.ID(), nil)
	if err != nil {
		return nil, err
	}
	v.Title = "Export of " + string(e.Kind)
	d := exportPage{Export: e, Object: words.Str(e.Object)}
	if e.WorkItem != nil {
		d.Item, _ = frame.Optional[record.ItemView](v, fmt.Sprint("items/", *e.WorkItem), nil)
	}
	if d.Writing() {
		v.Every = 5
	}
	return d, nil
}

// Writing reports whether an item writes the export, or will.
func (d exportPage) Writing() bool {
	return d.Item != nil && (d.Item.Status == "Pending" || d.Item.Status == registry.Started)
}

// exportSheet is the page of an export.
func exportSheet() frame.Sheet {
	return frame.Sheet{Path: "/exports/{id}", Title: "Export", File: "export.html", Needs: permission.ExportsMake, Load: loadExport}
}
