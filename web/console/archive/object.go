package archive

import (
	"net/url"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
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

// loadObject shows an object.
func loadObject(v *frame.Visit) (any, error) {
	var d objectPage
	var err error
	id := v.ID()
	if d.Object, err = frame.Get[record.ObjectView](v, "objects/"+id, nil); err != nil {
		return nil, err
	}
	o := d.Object
	v.Title = "Object " + words.Text(o.Identifier)
	v.ShellFor(o.Identifier)
	d.Holdings, d.NoCounts = frame.Optional[record.ObjectHoldings](v, "objects/"+id+"/holdings", nil)
	if found, _ := frame.Optional[frame.List[record.WorkItem]](v, "items", url.Values{"object": {o.Identifier}, "limit": {"50"}}); found != nil {
		d.arrange(found.Items)
	}
	if found, _ := frame.Optional[frame.List[record.ListedEvent]](v, "objects/"+id+"/events", url.Values{"limit": {"10"}}); found != nil {
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
		v.Watch.Items = append(v.Watch.Items, i.ID)
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
func exportsFor(v *frame.Visit) []exportKind {
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
