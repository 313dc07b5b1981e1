package console

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/permission"
)

// recordSheets are the pages of what is kept. Parts of a record have paths of their own: those
// below /objects/show and /files/show are for clients of the member API.
func recordSheets() []sheet {
	return []sheet{
		{Path: "/objects", Title: "Objects", File: "objects.html", Nav: "Records", Key: "o", Shell: "farol object list", Needs: permission.ObjectsRead, Load: (*Pages).objects},
		{Path: "/files", Title: "Files", File: "files.html", Nav: "Records", Shell: "farol file list", Needs: permission.FilesRead, Load: (*Pages).filesPage},
		{Path: "/events", Title: "Events", File: "events.html", Nav: "Records", Needs: permission.EventsRead, Load: (*Pages).events},
		{Path: "/objects/{id}", Title: "Object", File: "object.html", Shell: "farol object show IDENTIFIER", Needs: permission.ObjectsRead, Load: (*Pages).object},
		{Path: "/object-files/{id}", Title: "Files of an object", File: "files.html", Needs: permission.FilesRead, Load: (*Pages).objectFiles},
		{Path: "/object-events/{id}", Title: "Events of an object", File: "events.html", Needs: permission.EventsRead, Load: (*Pages).objectEvents},
		{Path: "/files/{id}", Title: "File", File: "file.html", Shell: "farol file show IDENTIFIER", Needs: permission.FilesRead, Load: (*Pages).file},
		{Path: "/file-events/{id}", Title: "Events of a file", File: "events.html", Needs: permission.EventsRead, Load: (*Pages).fileEvents},
		exportSheet(),
	}
}

// recordList is a page of a list with its filters.
type recordList[T any] struct {
	Filter   url.Values // as it is in the address
	Narrowed bool
	Rows     []T
	More     string
	Broad    string // why the list is refused
	All      bool   // the person sees all institutions
	About    string // the one record that the list belongs to; "": none
	Back     string // its page
	Own      string // identifier of the person's institution
}

// records loads a page of a list with the filters of the address.
func records[T any](v *visit, path string, fields []string, more url.Values) (l recordList[T], err error) {
	l.Filter, l.All = v.query(fields...), v.Caller.Scope.All()
	_, l.Own = v.Caller.Scope.Institution()
	l.Narrowed = len(l.Filter) > 0
	q := v.query(append(slices.Clone(fields), "after")...)
	for name, values := range more {
		if q.Get(name) == "" {
			q[name] = values
		}
	}
	q.Set("limit", "40")
	found, err := get[listOf[T]](v, path, q)
	if reason, broad := tooBroad(err); broad {
		l.Broad = reason
		return l, nil
	}
	l.Rows, l.More = found.Items, v.more(found.Next)
	return l, err
}

// plainName is an identifier that a shell takes as it is.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/@+-]*$`)

// shellFor names an object or a file in the command that shows the same as a page.
func (v *visit) shellFor(identifier string) {
	if plainName.MatchString(identifier) {
		v.sheet.Shell = strings.ReplaceAll(v.sheet.Shell, "IDENTIFIER", identifier)
	}
}

// objects is the list of objects.
func (p *Pages) objects(v *visit) (any, error) {
	fields := []string{"institution", "identifier_prefix", "state", "storage_option", "access", "bag_group_identifier", "alt_identifier", "updated_after", "updated_before", "sort"}
	return records[record.ListedObject](v, "objects", fields, nil)
}

// filesPage is the list of files. It is empty until it is narrowed: there are too many.
func (p *Pages) filesPage(v *visit) (any, error) {
	fields := []string{"institution", "object", "identifier_prefix", "uuid", "digest", "state", "format", "size_min", "size_max"}
	if len(v.query(fields...)) == 0 {
		l := recordList[record.ListedFile]{All: v.Caller.Scope.All()}
		_, l.Own = v.Caller.Scope.Institution()
		return l, nil
	}
	more := url.Values{}
	if _, own := v.Caller.Scope.Institution(); own != "" && !narrowed(v, "object", "identifier_prefix", "uuid", "digest") {
		more.Set("institution", own)
	}
	return records[record.ListedFile](v, "files", fields, more)
}

func narrowed(v *visit, fields ...string) bool { return len(v.query(fields...)) > 0 }

// mostWindow is how long a window of events is that a page asks for by itself.
const mostWindow = 7 * 24 * time.Hour

// events is the list of events: those of the last week, until a filter says which.
func (p *Pages) events(v *visit) (any, error) {
	fields := []string{"institution", "type", "failed", "recorded_after", "recorded_before"}
	more := url.Values{}
	if !narrowed(v, "failed", "recorded_after", "recorded_before") && v.URL.Query().Get("type") != "deletion" {
		more.Set("recorded_after", time.Now().UTC().Add(-mostWindow).Truncate(time.Hour).Format(time.RFC3339))
		more.Set("recorded_before", time.Now().UTC().Add(time.Hour).Truncate(time.Hour).Format(time.RFC3339))
	}
	return records[record.ListedEvent](v, "events", fields, more)
}

// objectFiles are the files of one object.
func (p *Pages) objectFiles(v *visit) (any, error) {
	l, err := records[record.ListedFile](v, "objects/"+v.id()+"/files", nil, nil)
	if err != nil {
		return nil, err
	}
	err = ofObject(v, &l.About, &l.Back, "Files of ")
	return l, err
}

// objectEvents are the events of one object, without those of its files.
func (p *Pages) objectEvents(v *visit) (any, error) {
	l, err := records[record.ListedEvent](v, "objects/"+v.id()+"/events", nil, nil)
	if err != nil {
		return nil, err
	}
	err = ofObject(v, &l.About, &l.Back, "Events of ")
	return l, err
}

func ofObject(v *visit, about, back *string, title string) error {
	o, err := get[record.Object](v, "objects/"+v.id(), nil)
	if err == nil {
		*about, *back, v.title = o.Identifier, "/objects/"+v.id(), title+text(o.Identifier)
	}
	return err
}

// fileEvents are the events of one file.
func (p *Pages) fileEvents(v *visit) (any, error) {
	l, err := records[record.ListedEvent](v, "files/"+v.id()+"/events", nil, nil)
	if err != nil {
		return nil, err
	}
	f, err := get[record.File](v, "files/"+v.id(), nil)
	l.About, l.Back, v.title = f.Identifier, "/files/"+v.id(), "Events of "+text(f.Identifier)
	return l, err
}

// filePage is all there is to know of a file.
type filePage struct {
	File   record.FileView
	Events []record.ListedEvent
	Note   string // why there are no events
	Bad    int    // copies that are known to be bad
}

// file shows a file.
func (p *Pages) file(v *visit) (any, error) {
	var d filePage
	var err error
	if d.File, err = get[record.FileView](v, "files/"+v.id(), nil); err != nil {
		return nil, err
	}
	events, note := optional[listOf[record.ListedEvent]](v, "files/"+v.id()+"/events", url.Values{"limit": {"20"}})
	if d.Note = note; events != nil {
		d.Events = events.Items
	}
	for _, c := range d.File.Copies {
		if c.Problem != "" {
			d.Bad++
		}
	}
	v.title = "File " + text(d.File.Identifier)
	v.shellFor(d.File.Identifier)
	return d, nil
}
