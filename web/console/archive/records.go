// Package archive has the pages about what is kept: objects, files, events, restorations,
// deletions, fixity, reports and exports. In comes what a person asks for; out goes what a
// template shows.
package archive

import (
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// RecordSheets are the pages of what is kept. Parts of a record have paths of their own: those
// below /objects/show and /files/show are for clients of the member API.
func RecordSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/objects", Title: "Objects", File: "objects.html", Nav: "Records", Key: "o", Shell: "farol object list", Needs: permission.ObjectsRead, Load: loadObjects},
		{Path: "/files", Title: "Files", File: "files.html", Nav: "Records", Shell: "farol file list", Needs: permission.FilesRead, Load: loadFiles},
		{Path: "/events", Title: "Events", File: "events.html", Nav: "Records", Needs: permission.EventsRead, Load: loadEvents},
		{Path: "/objects/{id}", Title: "Object", File: "object.html", Shell: "farol object show IDENTIFIER", Needs: permission.ObjectsRead, Load: loadObject},
		{Path: "/object-files/{id}", Title: "Files of an object", File: "files.html", Needs: permission.FilesRead, Load: loadObjectFiles},
		{Path: "/object-events/{id}", Title: "Events of an object", File: "events.html", Needs: permission.EventsRead, Load: loadObjectEvents},
		{Path: "/files/{id}", Title: "File", File: "file.html", Shell: "farol file show IDENTIFIER", Needs: permission.FilesRead, Load: loadFile},
		{Path: "/file-events/{id}", Title: "Events of a file", File: "events.html", Needs: permission.EventsRead, Load: loadFileEvents},
		exportSheet(),
	}
}

// loadObjects is the list of objects.
func loadObjects(v *frame.Visit) (any, error) {
	fields := []string{"institution", "identifier_prefix", "state", "storage_option", "access", "bag_group_identifier", "alt_identifier", "updated_after", "updated_before", "sort"}
	return frame.Records[record.ListedObject](v, "objects", fields, nil)
}

// loadFiles is the list of files. It is empty until it is narrowed: there are too many.
func loadFiles(v *frame.Visit) (any, error) {
	fields := []string{"institution", "object", "identifier_prefix", "uuid", "digest", "state", "format", "size_min", "size_max"}
	if len(v.Query(fields...)) == 0 {
		l := frame.RecordList[record.ListedFile]{All: v.Caller.Scope.All()}
		_, l.Own = v.Caller.Scope.Institution()
		return l, nil
	}
	more := url.Values{}
	if _, own := v.Caller.Scope.Institution(); own != "" && !narrowed(v, "object", "identifier_prefix", "uuid", "digest") {
		more.Set("institution", own)
	}
	return frame.Records[record.ListedFile](v, "files", fields, more)
}

func narrowed(v *frame.Visit, fields ...string) bool { return len(v.Query(fields...)) > 0 }

// mostWindow is how long a window of events is that a page asks for by itself.
const mostWindow = 7 * 24 * time.Hour

// loadEvents is the list of events: those of the last week, until a filter says which.
func loadEvents(v *frame.Visit) (any, error) {
	fields := []string{"institution", "type", "failed", "recorded_after", "recorded_before"}
	more := url.Values{}
	if !narrowed(v, "failed", "recorded_after", "recorded_before") && v.URL.Query().Get("type") != "deletion" {
		more.Set("recorded_after", time.Now().UTC().Add(-mostWindow).Truncate(time.Hour).Format(time.RFC3339))
		more.Set("recorded_before", time.Now().UTC().Add(time.Hour).Truncate(time.Hour).Format(time.RFC3339))
	}
	return frame.Records[record.ListedEvent](v, "events", fields, more)
}

// loadObjectFiles are the files of one object.
func loadObjectFiles(v *frame.Visit) (any, error) {
	l, err := frame.Records[record.ListedFile](v, "objects/"+v.ID()+"/files", nil, nil)
	if err != nil {
		return nil, err
	}
	err = ofObject(v, &l.About, &l.Back, "Files of ")
	return l, err
}

// loadObjectEvents are the events of one object, without those of its files.
func loadObjectEvents(v *frame.Visit) (any, error) {
	l, err := frame.Records[record.ListedEvent](v, "objects/"+v.ID()+"/events", nil, nil)
	if err != nil {
		return nil, err
	}
	err = ofObject(v, &l.About, &l.Back, "Events of ")
	return l, err
}

func ofObject(v *frame.Visit, about, back *string, title string) error {
	o, err := frame.Get[record.Object](v, "objects/"+v.ID(), nil)
	if err == nil {
		*about, *back, v.Title = o.Identifier, "/objects/"+v.ID(), title+words.Text(o.Identifier)
	}
	return err
}

// loadFileEvents are the events of one file.
func loadFileEvents(v *frame.Visit) (any, error) {
	l, err := frame.Records[record.ListedEvent](v, "files/"+v.ID()+"/events", nil, nil)
	if err != nil {
		return nil, err
	}
	f, err := frame.Get[record.File](v, "files/"+v.ID(), nil)
	l.About, l.Back, v.Title = f.Identifier, "/files/"+v.ID(), "Events of "+words.Text(f.Identifier)
	return l, err
}

// filePage is all there is to know of a file.
type filePage struct {
	File   record.FileView
	Events []record.ListedEvent
	Note   string // why there are no events
	Bad    int    // copies that are known to be bad
}

// loadFile shows a file.
func loadFile(v *frame.Visit) (any, error) {
	var d filePage
	var err error
	if d.File, err = frame.Get[record.FileView](v, "files/"+v.ID(), nil); err != nil {
		return nil, err
	}
	events, note := frame.Optional[frame.List[record.ListedEvent]](v, "files/"+v.ID()+"/events", url.Values{"limit": {"20"}})
	if d.Note = note; events != nil {
		d.Events = events.Items
	}
	for _, c := range d.File.Copies {
		if c.Problem != "" {
			d.Bad++
		}
	}
	v.Title = "File " + words.Text(d.File.Identifier)
	v.ShellFor(d.File.Identifier)
	return d, nil
}
