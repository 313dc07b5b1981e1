package memberapi

import (
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/permission"
)

// latest is the default order of most lists.
func latest(column string) browse.Order { return browse.Order{Column: column, Desc: true} }

func (a *API) items(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("updated_at"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.ItemFilter{
		Institution: institution, Status: words[registry.Status](q.all("status")), Stage: words[registry.Stage](q.all("stage")),
		Action: words[registry.Action](q.all("action")), Name: q.text("name"), Object: q.text("object_identifier"), StorageOption: q.text("storage_option"),
		Node: q.given("node"),
		ItemDetails: browse.ItemDetails{
			ETag: q.text("etag"), Bucket: q.text("bucket"), User: q.text("user"), ObjectID: q.id("intellectual_object_id"), FileID: q.id("generic_file_id"),
			File: q.text("generic_file_identifier"), AltIdentifier: q.text("alt_identifier"), BagGroup: q.text("bag_group_identifier"),
			Profile: q.text("bagit_profile_identifier"), HasObject: q.given("intellectual_object_id"), HasFile: q.given("generic_file_id"),
			Queued: q.given("queued_at"), Retry: q.truth("retry"), NeedsReview: q.truth("needs_admin_review"),
		},
	}
	f.Review = f.NeedsReview != nil && *f.NeedsReview
	f.SizeMin, f.SizeMax = q.sizes("size")
	f.BagDateAfter, f.BagDateBefore = q.moments("bag_date")
	f.ProcessedAfter, f.ProcessedBefore = q.moments("date_processed")
	if err := q.check("items"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatItem], error) {
		p, err := r.records.FlatItems(r.Context(), f, s)
		for i, w := range p.Rows {
			p.Rows[i] = seen(r, w)
		}
		return p, err //nolint:wrapcheck // it names the list
	})
}

// seen is an item as the caller may see it: hosts and processes are for those who look after
// them.
func seen(r *request, w browse.FlatItem) browse.FlatItem {
	if !r.caller.Holds(permission.ItemsWorkers) {
		w.Node, w.PID = "", 0
	}
	return w
}

// words are texts as names of a kind.
func words[T ~string](texts []string) (list []T) {
	for _, text := range texts {
		list = append(list, T(text))
	}
	return list
}

func (a *API) objects(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("updated_at"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.ObjectFilter{
		Institution: institution, Identifier: q.text("identifier"), Prefix: q.text("identifier__starts_with"), State: q.text("state"), Access: q.text("access"),
		StorageOption: q.text("storage_option"), BagGroup: q.text("bag_group_identifier"), AltIdentifier: q.text("alt_identifier"),
		AltPrefix: q.text("alt_identifier__starts_with"),
		ObjectDetails: browse.ObjectDetails{
			ETag: q.text("etag"), BagName: q.text("bag_name"), Profile: q.text("bagit_profile_identifier"), SourceOrganization: q.text("source_organization"),
			InternalSenderIdentifier: q.text("internal_sender_identifier"), InternalSenderDescription: q.text("internal_sender_description"),
			BagGroupPrefix: q.text("bag_group_identifier__starts_with"), Parent: q.id("institution_parent_id"),
			ByUpdate: len(s.Sort) == 1 && s.Sort[0] == latest("updated_at"), // which an index has
		},
	}
	f.UpdatedAfter, f.UpdatedBefore = q.moments("updated_at")
	f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
	if err := q.check("objects", "title", "description", "file_count", "size", "payload_file_count", "payload_size"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatObject], error) { return r.records.FlatObjects(r.Context(), f, s) })
}

func (a *API) files(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("updated_at"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.FileFilter{
		Institution: institution, Identifier: q.text("identifier"), UUID: q.text("uuid"), ObjectID: q.id("intellectual_object_id"), State: q.text("state"),
		FileDetails: browse.FileDetails{StorageOption: q.all("storage_option")},
	}
	f.SizeMin, f.SizeMax = q.sizes("size")
	f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
	f.UpdatedAfter, f.UpdatedBefore = q.moments("updated_at")
	f.CheckedAfter, f.CheckedBefore = q.moments("last_fixity_check")
	if err := q.check("files"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatFile], error) { return r.records.FlatFiles(r.Context(), f, s) })
}

func (a *API) events(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("date_time"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.EventFilter{
		Institution: institution, Type: q.text("event_type"), Identifier: q.text("identifier"), Outcome: q.text("outcome"), AboutFile: q.given("generic_file_id"),
	}
	f.Failed = f.Outcome == "Failure"
	if f.Object, err = object(r, q); err != nil {
		return nil, err
	}
	if f.File, err = file(r, q); err != nil {
		return nil, err
	}
	f.HappenedAfter, f.HappenedBefore = q.moments("date_time")
	f.RecordedAfter, f.RecordedBefore = q.moments("created_at")
	if err := q.check("events"); err != nil {
		return nil, err
	}
	if f.File != 0 && f.Object != 0 { // an event of a file is none of the object's own
		if f.Object, err = objectOf(r, q, f); err != nil {
			return nil, err
		}
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatEvent], error) { return r.records.FlatEvents(r.Context(), f, s) })
}

// objectOf drops the object of a filter that names one of its files, too.
func objectOf(r *request, q *query, f browse.EventFilter) (int64, error) {
	x, err := r.records.FlatFile(r.Context(), f.File, "")
	id, err := named(q, "file", func() (int64, error) { return x.IntellectualObjectID, err })
	q.nothing = q.nothing || err == nil && id != f.Object
	return 0, err
}

func (a *API) checksums(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("datetime"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.ChecksumFilter{
		Institution: institution, Digest: q.text("digest"), Algorithm: q.text("algorithm"),
		ChecksumDetails: browse.ChecksumDetails{ObjectID: q.id("intellectual_object_id"), State: q.text("state"), At: q.moment("datetime")},
	}
	if f.File, err = file(r, q); err != nil {
		return nil, err
	}
	if err := q.check("checksums"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatChecksum], error) { return r.records.FlatChecksums(r.Context(), f, s) })
}

func (a *API) deletions(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("requested_at"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.DeletionFilter{Institution: institution}
	f.RequestedAfter, f.RequestedBefore = q.moments("requested_at")
	if err := q.check("deletions"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatDeletion], error) { return r.records.FlatDeletions(r.Context(), f, s) })
}

func (a *API) alerts(r *request) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(latest("created_at"))
	institution, err := a.institution(r, q)
	if err != nil {
		return nil, err
	}
	f := browse.AlertFilter{Institution: institution, Type: q.text("type"), For: r.caller.Person.ID, Staff: r.caller.Operates()}
	if user := q.id("user_id"); user != 0 && user != f.For {
		q.nothing = true // what others have read is theirs
	}
	f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
	if err := q.check("alerts"); err != nil {
		return nil, err
	}
	return answer(r, q, s, func() (browse.Part[browse.FlatAlert], error) { return r.records.FlatAlerts(r.Context(), f, s) })
}
