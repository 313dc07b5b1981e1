package memberapi

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/permission"
)

func items(r *request) (any, error) {
	return list(r, "items", "updated_at", func(records browse.Records, ctx context.Context, f browse.ItemFilter, s browse.Slice) (browse.Part[browse.FlatItem], error) {
		p, err := records.FlatItems(ctx, f, s)
		for i, w := range p.Rows {
			p.Rows[i] = seen(r, w)
		}
		return p, err //nolint:wrapcheck // it names the list
	}, func(q *query, _ browse.Slice, institution string) (browse.ItemFilter, error) {
		f := browse.ItemFilter{
			ItemFilter: record.ItemFilter{
				Institution: institution, Status: words[record.Status](q.all("status")), Stage: words[record.Stage](q.all("stage")),
				Action: words[record.Action](q.all("action")), Name: q.text("name"), Object: q.text("object_identifier"), StorageOption: q.text("storage_option"),
			},
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
		return f, nil
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

func objects(r *request) (any, error) {
	return list(r, "objects", "updated_at", browse.Records.FlatObjects, func(q *query, s browse.Slice, institution string) (browse.ObjectFilter, error) {
		f := browse.ObjectFilter{
			ObjectFilter: record.ObjectFilter{
				Institution: institution, Identifier: q.text("identifier"), Prefix: q.text("identifier__starts_with"), State: q.text("state"), Access: q.text("access"),
				StorageOption: q.text("storage_option"), BagGroup: q.text("bag_group_identifier"), AltIdentifier: q.text("alt_identifier"),
				AltPrefix: q.text("alt_identifier__starts_with"),
			},
			ObjectDetails: browse.ObjectDetails{
				ETag: q.text("etag"), BagName: q.text("bag_name"), Profile: q.text("bagit_profile_identifier"), SourceOrganization: q.text("source_organization"),
				InternalSenderIdentifier: q.text("internal_sender_identifier"), InternalSenderDescription: q.text("internal_sender_description"),
				BagGroupPrefix: q.text("bag_group_identifier__starts_with"), Parent: q.id("institution_parent_id"),
				ByUpdate: len(s.Sort) == 1 && s.Sort[0] == browse.Order{Column: "updated_at", Desc: true}, // which an index has
			},
		}
		f.UpdatedAfter, f.UpdatedBefore = q.moments("updated_at")
		f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
		return f, nil
	}, "title", "description", "file_count", "size", "payload_file_count", "payload_size")
}

func files(r *request) (any, error) {
	return list(r, "files", "updated_at", browse.Records.FlatFiles, func(q *query, _ browse.Slice, institution string) (browse.FileFilter, error) {
		f := browse.FileFilter{
			FileFilter: record.FileFilter{Institution: institution, Identifier: q.text("identifier"), UUID: q.text("uuid"), State: q.text("state")},
			ObjectID:   q.id("intellectual_object_id"), FileDetails: browse.FileDetails{StorageOption: q.all("storage_option")},
		}
		f.SizeMin, f.SizeMax = q.sizes("size")
		f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
		f.UpdatedAfter, f.UpdatedBefore = q.moments("updated_at")
		f.CheckedAfter, f.CheckedBefore = q.moments("last_fixity_check")
		return f, nil
	})
}

func events(r *request) (any, error) {
	return list(r, "events", "date_time", browse.Records.FlatEvents, func(q *query, _ browse.Slice, institution string) (f browse.EventFilter, err error) {
		f = browse.EventFilter{
			EventFilter: record.EventFilter{Institution: institution, Type: q.text("event_type"), Identifier: q.text("identifier")},
			Outcome:     q.text("outcome"), AboutFile: q.given("generic_file_id"),
		}
		f.Failed = f.Outcome == "Failure"
		if f.Object, err = object(r, q); err != nil {
			return f, err
		}
		if f.File, err = file(r, q); err != nil {
			return f, err
		}
		f.HappenedAfter, f.HappenedBefore = q.moments("date_time")
		f.RecordedAfter, f.RecordedBefore = q.moments("created_at")
		if f.File != 0 && f.Object != 0 && !q.settled() { // an event of a file is none of the object's own
			var x browse.FlatFile
			x, err = r.records.FlatFile(r.Context(), f.File, "")
			err = q.unlessMissing(err)
			q.nothing = q.nothing || x.IntellectualObjectID != f.Object
			f.Object = 0
		}
		return f, err
	})
}

func checksums(r *request) (any, error) {
	return list(r, "checksums", "datetime", browse.Records.FlatChecksums, func(q *query, _ browse.Slice, institution string) (f browse.ChecksumFilter, err error) {
		f = browse.ChecksumFilter{
			Institution: institution, Digest: q.text("digest"), Algorithm: q.text("algorithm"),
			ChecksumDetails: browse.ChecksumDetails{ObjectID: q.id("intellectual_object_id"), State: q.text("state"), At: q.moment("datetime")},
		}
		f.File, err = file(r, q)
		return f, err
	})
}

func deletions(r *request) (any, error) {
	return list(r, "deletions", "requested_at", browse.Records.FlatDeletions, func(q *query, _ browse.Slice, institution string) (browse.DeletionFilter, error) {
		f := browse.DeletionFilter{Institution: institution}
		f.RequestedAfter, f.RequestedBefore = q.moments("requested_at")
		return f, nil
	})
}

func alerts(r *request) (any, error) {
	return list(r, "alerts", "created_at", browse.Records.FlatAlerts, func(q *query, _ browse.Slice, institution string) (browse.AlertFilter, error) {
		f := browse.AlertFilter{Institution: institution, Type: q.text("type"), For: r.caller.Person.ID, Staff: r.caller.Operates()}
		if user := q.id("user_id"); user != 0 && user != f.For {
			q.nothing = true // what others have read is theirs
		}
		f.CreatedAfter, f.CreatedBefore = q.moments("created_at")
		return f, nil
	})
}
