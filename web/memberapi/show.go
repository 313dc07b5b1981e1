package memberapi

import (
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/permission"
)

// number is the ID in a path; 0: it is none.
func number(text string) int64 {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0
	}
	return id
}

// byNumber shows a record that has no other name than its ID.
func byNumber[T any](r *request, show func(id int64) (T, error)) (any, error) {
	id := number(r.PathValue("id"))
	if id == 0 {
		return nil, notFound()
	}
	return show(id)
}

func showItem(r *request) (any, error) {
	return byNumber(r, func(id int64) (browse.FlatItem, error) {
		w, err := r.records.FlatItem(r.Context(), id)
		return seen(r, w), err //nolint:wrapcheck // it names the item
	})
}

func showDeletion(r *request) (any, error) {
	return byNumber(r, func(id int64) (browse.FlatDeletion, error) { return r.records.FlatDeletion(r.Context(), id) })
}

// showAlert shows an alert to the person who asks, and to no other.
func showAlert(r *request) (any, error) {
	if number(r.PathValue("user")) != r.caller.Person.ID || r.caller.Person.ID == 0 {
		return nil, notFound()
	}
	return byNumber(r, func(id int64) (browse.FlatAlert, error) {
		return r.records.FlatAlert(r.Context(), id, browse.AlertFilter{For: r.caller.Person.ID, Staff: r.caller.Operates()})
	})
}

func showObject(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	return r.records.FlatObject(r.Context(), number(name), name)
}

// nameOf is the ID or the identifier in a path.
func nameOf(r *request) (string, error) {
	name := r.PathValue("id")
	if !storable(name) {
		return "", notFound()
	}
	return name, nil
}

// copyOf is where a copy of a file is.
type copyOf struct {
	ID     int64  `json:"id"`
	FileID int64  `json:"generic_file_id"`
	URL    string `json:"url"`
}

// wholeFile is a file with what belongs to it.
type wholeFile struct {
	ID                   int64       `json:"id"`
	FileFormat           string      `json:"file_format"`
	Size                 int64       `json:"size"`
	Identifier           string      `json:"identifier"`
	IntellectualObjectID int64       `json:"intellectual_object_id"`
	State                string      `json:"state"`
	LastFixityCheck      browse.Time `json:"last_fixity_check"`
	InstitutionID        int64       `json:"institution_id"`
	StorageOption        string      `json:"storage_option"`
	UUID                 string      `json:"uuid"`
	CreatedAt            browse.Time `json:"created_at"`
	UpdatedAt            browse.Time `json:"updated_at"`

	Events    []browse.FlatEvent    `json:"premis_events"`
	Checksums []browse.FlatChecksum `json:"checksums"`
	Copies    []copyOf              `json:"storage_records"`
}

// showFile shows a file with the newest of its events, and its digests and copies. A token
// that may not read one of these has none of them.
func showFile(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	f, err := r.records.FlatFile(r.Context(), number(name), name)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	whole := wholeFile{
		ID: f.ID, FileFormat: f.FileFormat, Size: f.Size, Identifier: f.Identifier, IntellectualObjectID: f.IntellectualObjectID, State: f.State,
		LastFixityCheck: f.LastFixityCheck, InstitutionID: f.InstitutionID, StorageOption: f.StorageOption, UUID: f.UUID, CreatedAt: f.CreatedAt, UpdatedAt: f.UpdatedAt,
		Events: []browse.FlatEvent{}, Checksums: []browse.FlatChecksum{}, Copies: []copyOf{},
	}
	all := browse.Slice{Limit: browse.MostRows}
	if r.caller.Holds(permission.EventsRead) {
		events, err := r.records.FlatEvents(r.Context(), browse.EventFilter{EventFilter: record.EventFilter{File: f.ID}}, all)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the list
		}
		whole.Events = append(whole.Events, events.Rows...)
	}
	if r.caller.Holds(permission.ChecksumsRead) {
		digests, err := r.records.FlatChecksums(r.Context(), browse.ChecksumFilter{File: f.ID}, all)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the list
		}
		whole.Checksums = append(whole.Checksums, digests.Rows...)
	}
	if r.caller.Holds(permission.CopiesRead) {
		copies, _, err := r.records.Copies(r.Context(), browse.CopyFilter{File: f.ID}, browse.Page{Limit: browse.MostRows})
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the list
		}
		for _, c := range copies {
			whole.Copies = append(whole.Copies, copyOf{c.ID, f.ID, c.URL})
		}
	}
	return whole, nil
}

// showEvent shows the event with a UUID of the object or the file that the query names: a
// UUID alone does not lead to an event.
func showEvent(r *request) (any, error) {
	q := newQuery(r.Request)
	var err error
	f := browse.EventFilter{EventFilter: record.EventFilter{Identifier: r.PathValue("id")}}
	if f.File, err = file(r, q); err != nil {
		return nil, err
	}
	if f.Object, err = object(r, q); err != nil {
		return nil, err
	}
	if err := q.check("events"); err != nil {
		return nil, err
	}
	if f.File == 0 && f.Object == 0 {
		return nil, missing("an event is found by its UUID and what it is about: add generic_file_id, generic_file_identifier, intellectual_object_id or intellectual_object_identifier")
	}
	if f.File != 0 {
		f.Object = 0
	}
	if q.nothing || len(f.Identifier) != 36 || uuid.Validate(f.Identifier) != nil {
		return nil, notFound()
	}
	return only(r.records.FlatEvents(r.Context(), f, browse.Slice{Limit: 1}))
}

// showChecksum shows the digest with an ID of the file that the query names.
func showChecksum(r *request) (any, error) {
	q := newQuery(r.Request)
	of, err := file(r, q)
	if err != nil {
		return nil, err
	}
	if err := q.check("checksums"); err != nil {
		return nil, err
	}
	if of == 0 && !q.nothing {
		return nil, missing("a checksum is found by its ID and its file: add generic_file_id or generic_file_identifier")
	}
	return byNumber(r, func(id int64) (browse.FlatChecksum, error) { return r.records.FlatChecksum(r.Context(), of, id) })
}

// only is the one record of a page.
func only[T any](p browse.Part[T], err error) (any, error) {
	if err == nil && len(p.Rows) == 0 {
		err = notFound()
	}
	if err != nil {
		return nil, err
	}
	return p.Rows[0], nil
}

// missing says what a query has to name, too.
func missing(text string) error { return failure{http.StatusNotFound, text} }
