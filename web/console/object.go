package console

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// objectPage is all there is to know of an object.
type objectPage struct {
	Object   record.ObjectView
	Holdings *record.ObjectHoldings
	NoCounts string // why there are no holdings
	Versions []record.WorkItem
	Live     []record.WorkItem // items that are about it now
	Safe     time.Time         // when the newest version was stored and verified; zero: not known
	Events   []record.ListedEvent
	Tags     []tagLine
	Exports  []exportKind
}

// tagLine is a tag of a bag.
type tagLine struct{ Name, Value string }

// exportKind is what can be taken along of an object.
type exportKind struct{ Kind, About string }

// object shows an object.
func (p *Pages) object(v *visit) (any, error) {
	var d objectPage
	var err error
	id := v.id()
	if d.Object, err = get[record.ObjectView](v, "objects/"+id, nil); err != nil {
		return nil, err
	}
	o := d.Object
	v.title = "Object " + text(o.Identifier)
	v.shellFor(o.Identifier)
	d.Holdings, d.NoCounts = optional[record.ObjectHoldings](v, "objects/"+id+"/holdings", nil)
	if found, _ := optional[listOf[record.WorkItem]](v, "items", url.Values{"object": {o.Identifier}, "limit": {"50"}}); found != nil {
		d.arrange(found.Items)
	}
	if found, _ := optional[listOf[record.ListedEvent]](v, "objects/"+id+"/events", url.Values{"limit": {"10"}}); found != nil {
		d.Events = found.Items
	}
	for _, t := range []tagLine{
		{"Title", o.Title},
		{"Description", o.Description},
		{"Alternate identifier", o.AltIdentifier},
		{"Bag group", o.BagGroupIdentifier},
		{"Source organization", o.SourceOrganization},
		{"Internal sender identifier", o.InternalSenderIdentifier},
		{"Internal sender description", o.InternalSenderDescription},
		{"BagIt profile", o.BagItProfileIdentifier},
		{"Encoding of the tag files", o.TagEncoding},
	} {
		if t.Value != "" {
			d.Tags = append(d.Tags, t)
		}
	}
	d.Exports = exportsFor(v)
	for _, i := range d.Live {
		v.watch.items = append(v.watch.items, i.ID)
	}
	return d, nil
}

// arrange sorts out the versions of an object and the items that are about it now.
func (d *objectPage) arrange(items []record.WorkItem) {
	for _, i := range items {
		switch {
		case i.Action == "Ingest" && i.Status == registry.Success:
			d.Versions = append(d.Versions, i)
			if i.DateProcessed.After(d.Safe) {
				d.Safe = i.DateProcessed
			}
		case i.Status != registry.Success && i.Status != registry.Cancelled:
			d.Live = append(d.Live, i)
		}
	}
}

// exportsFor are the exports of an object that a person may make.
func exportsFor(v *visit) []exportKind {
	list := []exportKind{
		{"inventory", "active files as CSV"},
		{"manifest", "their SHA-256"},
		{"evidence", "all that proves what is kept, as a ZIP archive"},
		{"events", "PREMIS events as JSON lines"},
		{"premis", "PREMIS 3 XML"},
	}
	if v.Caller.Person.Role == registry.RoleInstitutionalUser {
		list = list[:2]
	}
	return list
}

// exportPage is an export, and where its content is.
type exportPage struct {
	Export record.ExportView
	Object string
	Item   *record.ItemView // that writes a large one; nil: there is none, or it is not known now
}

// export shows an export that was made.
func (p *Pages) export(v *visit) (any, error) {
	e, err := get[record.ExportView](v, "exports/"+v.id(), nil)
	if err != nil {
		return nil, err
	}
	v.title = "Export of " + string(e.Kind)
	d := exportPage{Export: e, Object: str(e.Object)}
	if e.WorkItem != nil {
		d.Item, _ = optional[record.ItemView](v, fmt.Sprint("items/", *e.WorkItem), nil)
	}
	if d.Writing() {
		v.every = 5
	}
	return d, nil
}

// Writing reports whether an item writes the export, or will.
func (d exportPage) Writing() bool {
	return d.Item != nil && (d.Item.Status == "Pending" || d.Item.Status == registry.Started)
}

// exportSheet is the page of an export.
func exportSheet() sheet {
	return sheet{Path: "/exports/{id}", Title: "Export", File: "export.html", Needs: permission.ExportsMake, Load: (*Pages).export}
}

// has reports whether an object has a live request of an action.
func (d objectPage) has(action registry.Action) bool {
	return slices.ContainsFunc(d.Live, func(i record.WorkItem) bool { return i.Action == action })
}

// Deleting reports whether a deletion of the object or of files of it is on its way.
func (d objectPage) Deleting() bool {
	return d.Object.Deleting || d.has("Delete") && d.Waiting() == nil
}

// Waiting is the approved deletion that names the object or files of it and has not begun, or
// waits for a store; nil: none.
func (d objectPage) Waiting() *record.DeletionRequest {
	for i, one := range d.Object.Deletion.Requests {
		if one.Waits(time.Now()) || one.Kept != "" {
			return &d.Object.Deletion.Requests[i]
		}
	}
	return nil
}
