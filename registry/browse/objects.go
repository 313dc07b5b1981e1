package browse

import (
	"context"
	"fmt"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ObjectFilter narrows a list of objects.
type ObjectFilter struct {
	record.ObjectFilter
	ObjectDetails

	Newer int64 // ID: only objects with a higher one, those nearest to it; the list is by ID, and has no next key
}

// objectPageSQL shows objects that were found, and of these only what they have
// (object_holdings) and their last ingest (event_records_object).
const objectPageSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.identifier, p.title, p.storage_option, p.state, coalesce(h.files, 0) AS files, coalesce(h.bytes, 0) AS bytes, (
	SELECT max(e.date_time) FROM premis_events e
	WHERE e.intellectual_object_id = p.id AND e.generic_file_id IS NULL AND e.event_type = 'ingestion') AS last_ingest, p.updated_at
FROM page p LEFT JOIN object_holdings h ON h.intellectual_object_id = p.id
ORDER BY `

// How a list of objects is walked, by intellectual_objects_pkey or _of_institution, by
// intellectual_objects_updated, and by intellectual_objects_bytes.
const (
	objectsByID     = `o.id DESC`
	objectsUpwards  = `o.id`
	objectsByUpdate = `o.updated_at DESC, o.id DESC`
	objectsByName   = `o.identifier COLLATE "C"`
)

const objectAdvice = "add institution, identifier, identifier prefix or a window of updates, or fewer of the other filters"

// Objects lists objects: those of an identifier or a prefix in the order of their identifiers, those of a
// window of updates by their last update, the latest first, and all others by ID, the
// newest first. The key of a page is an identifier, a time and an ID, or an ID. The error is
// [ErrTooBroad] if it takes too long.
func (r Records) Objects(ctx context.Context, f ObjectFilter, p Page) ([]record.ListedObject, Key, error) {
	order := f.order()
	if order == objectsUpwards {
		order = objectsByID
	}
	show := func(found string) string {
		return fmt.Sprintf(objectPageSQL, found) + strings.ReplaceAll(order, `o.`, `p.`)
	}
	return list(ctx, r, "objects", f, p, show, func(o record.ListedObject) Key {
		switch order {
		case objectsByName:
			return Key{Identifier: o.Identifier}
		case objectsByUpdate:
			return Key{ID: o.ID, At: o.UpdatedAt}
		}
		return Key{ID: o.ID}
	})
}

func (f ObjectFilter) order() string {
	switch {
	case f.Newer != 0:
		return objectsUpwards
	case f.Prefix != "", f.Identifier != "":
		return objectsByName
	case !f.UpdatedAfter.IsZero(), !f.UpdatedBefore.IsZero(), f.ByUpdate:
		return objectsByUpdate
	}
	return objectsByID
}

func (f ObjectFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, objectAdvice)
	order := f.order()
	q.upwards = order == objectsUpwards
	f.narrow(q)
	switch {
	case after == (Key{}):
	case order == objectsByName:
		q.where(`o.identifier COLLATE "C" > @after`, "after", after.Identifier)
	case order == objectsByUpdate:
		q.args["at"] = after.At
		q.where(`(o.updated_at, o.id) < (@at, @after)`, "after", after.ID)
	default:
		q.after(`o.id < @after`, after.ID)
	}
	if order == objectsByID {
		q.sql = q.newest(`intellectual_objects`, `o`)
		return q, nil
	}
	if order == objectsByUpdate && !q.inside.one {
		q.sql = fmt.Sprintf(updatedObjectsSQL, q.all())
		return q, nil
	}
	if order == objectsByName {
		q.ownRange(`o.identifier COLLATE "C"`)
		q.within(inOrder(`o.institution_id`))
	} else {
		q.within(`o.institution_id`)
	}
	q.sql = `SELECT o.* FROM intellectual_objects o WHERE ` + q.all() + ` ORDER BY ` + order + ` LIMIT @n`
	return q, nil
}

// updatedObjectsSQL takes the latest of each institution (intellectual_objects_updated).
const updatedObjectsSQL = `
SELECT o.* FROM institutions n CROSS JOIN LATERAL (
	SELECT o.* FROM intellectual_objects o WHERE o.institution_id = n.id AND %s ORDER BY o.updated_at DESC, o.id DESC LIMIT @n
) o ORDER BY o.updated_at DESC, o.id DESC LIMIT @n`

func (f ObjectFilter) narrow(q *query) {
	q.equal(`o.identifier = @identifier`, "identifier", f.Identifier)
	if f.Prefix != "" {
		q.prefixed(`o.identifier COLLATE "C"`, "prefix", f.Prefix)
	}
	q.since(`o.updated_at >= @updated_after`, "updated_after", f.UpdatedAfter)
	q.since(`o.updated_at < @updated_before`, "updated_before", f.UpdatedBefore)
	q.equal(`o.state = @state`, "state", f.State)
	q.equal(`o.access = @access`, "access", f.Access)
	q.equal(`o.storage_option = @storage_option`, "storage_option", f.StorageOption)
	q.equal(`o.bag_group_identifier = @bag_group`, "bag_group", f.BagGroup)
	q.equal(`o.alt_identifier = @alt_identifier`, "alt_identifier", f.AltIdentifier)
	q.equal(`starts_with(o.alt_identifier, @alt_prefix)`, "alt_prefix", f.AltPrefix)
	if f.Newer != 0 {
		q.where(`o.id > @newer`, "newer", f.Newer)
	}
	f.ObjectDetails.narrow(q)
}

// Object returns the object with an ID, in whichever state, or [registry.ErrNotFound].
func (r Records) Object(ctx context.Context, id int64) (record.Object, error) {
	return r.object(ctx, id, "")
}

// ObjectByIdentifier returns the object with an identifier, in whichever state, or
// [registry.ErrNotFound].
func (r Records) ObjectByIdentifier(ctx context.Context, identifier string) (record.Object, error) {
	return r.object(ctx, 0, identifier)
}

func (r Records) object(ctx context.Context, id int64, identifier string) (record.Object, error) {
	q := in(r.scope, "", objectAdvice)
	what := q.named("object", `o`, id, identifier)
	q.sql = registry.SelectObject + ` WHERE ` + q.all()
	return one[record.Object](ctx, r, what, q)
}
