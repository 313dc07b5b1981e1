package browse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// MostDays is how many days a window of events has at most.
const MostDays = 31

// EventFilter narrows a list of events.
type EventFilter struct {
	record.EventFilter

	HappenedAfter  time.Time
	HappenedBefore time.Time
	Outcome        string
	AboutFile      *bool // whether it is about a file, and not about the object
}

const eventAdvice = "add object, file, outcome Failure, type deletion, or a window of at most 31 days"

// foundEventsSQL finds events among records: those of a file (event_records_generic_file_id_key_key)
// or an object (event_records_object), or those of an institution, by the time of recording
// (event_records_recorded, event_records_notable). The records are read in the order of the
// list, so that few are read; a record has up to 64 events.
const foundEventsSQL = `
SELECT r.*, s.text, s.n FROM (
	SELECT r.* FROM event_records r WHERE %s ORDER BY r.created_at DESC, r.id DESC
) r
CROSS JOIN LATERAL unnest(r.texts) WITH ORDINALITY AS s (text, n)
JOIN event_texts t ON t.id = s.text
LEFT JOIN generic_files f ON f.id = r.generic_file_id
WHERE %s
ORDER BY r.created_at DESC, r.id DESC, s.n DESC LIMIT @n`

// allEventsSQL takes the latest events of each institution.
const allEventsSQL = `
SELECT r.* FROM institutions n CROSS JOIN LATERAL (%s) r ORDER BY r.created_at DESC, r.id DESC, r.n DESC LIMIT @n`

// What an event says is put together from its record, as in the view premis_events.
const (
	eventFile       = `coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts)`
	eventDetail     = `event_words(t.id = s.text, t.outcome_detail, ` + eventFile
	eventIdentifier = `CASE WHEN r.item IS NULL THEN r.key ELSE event_identifier(r.item, event_words(t.id = s.text, t.about, ` + eventFile + `, t.event_type, ` + eventDetail + `) END`
	eventTime       = `CASE t.at WHEN 0 THEN r.created_at ELSE r.times[t.at] END`
)

const eventPageSQL = `
WITH page AS MATERIALIZED (%s)
SELECT s.id + s.n - 1 AS id, r.institution_id, o.id AS object_id, o.identifier AS object_name, r.generic_file_id AS file_id,
	coalesce(r.file_identifier, f.identifier, '') AS file_name, r.created_at AS recorded_at,
	(` + eventIdentifier + `)::text AS identifier, t.event_type, t.event_type_uri, ` + eventTime + ` AS date_time,
	event_words(t.id = s.text, t.detail, ` + eventFile + ` AS detail, t.outcome, ` + eventDetail + ` AS outcome_detail,
	event_words(t.id = s.text, t.outcome_information, ` + eventFile + ` AS outcome_information, t.object, t.agent
FROM page r CROSS JOIN LATERAL (SELECT r.id, r.text, r.n) s
JOIN event_texts t ON t.id = r.text
JOIN intellectual_objects o ON o.id = r.intellectual_object_id
LEFT JOIN generic_files f ON f.id = r.generic_file_id
ORDER BY r.created_at DESC, r.id DESC, r.n DESC`

// Events lists PREMIS events, those recorded last first. The key of a page is a time and
// an ID. The error is [ErrTooBroad] if no filter is set that has an index, or if it takes
// too long, and [registry.ErrRefused] for what is no UUID.
func (r Records) Events(ctx context.Context, f EventFilter, p Page) ([]record.ListedEvent, Key, error) {
	return list(ctx, r, "events", f, p, func(found string) string { return fmt.Sprintf(eventPageSQL, found) },
		func(e record.ListedEvent) Key { return Key{ID: e.ID, At: e.RecordedAt} })
}

// Event returns the event with a UUID of a file, or of an object itself, or
// [registry.ErrNotFound]. A UUID alone does not lead to an event: those of an ingest are
// derived from what it says. If neither is named the error is [ErrTooBroad].
func (r Records) Event(ctx context.Context, object, file int64, identifier string) (record.ListedEvent, error) {
	what := fmt.Sprintf("event %q", identifier)
	f := EventFilter{EventFilter: record.EventFilter{Object: object, File: file, Identifier: identifier}}
	q, err := f.find(r.scope, Key{})
	if err != nil {
		return record.ListedEvent{}, fmt.Errorf("look up %s: %w", what, err)
	}
	q.args["n"] = 1
	q.sql = fmt.Sprintf(eventPageSQL, q.sql)
	return one[record.ListedEvent](ctx, r, what, q)
}

func (f EventFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, eventAdvice)
	q.timeout, q.parts = eventTimeout, true
	if !f.leads() && !q.nothing {
		return nil, q.tooBroad()
	}
	records := f.records(q)
	if after.ID != 0 {
		q.args["at"] = after.At
		records = append(records, `(r.created_at, r.id) <= (@at, @after)`)
		q.where(`(r.created_at, r.id + s.n - 1) < (@at, @after)`, "after", after.ID)
	}
	if f.Identifier != "" {
		id, err := uuidOf(f.Identifier)
		if err != nil {
			return nil, err
		}
		if f.Object == 0 && f.File == 0 {
			return nil, fmt.Errorf("%w: an identifier of an event needs object or file, too", ErrTooBroad)
		}
		q.where(eventIdentifier+` = @identifier`, "identifier", id)
	}
	q.equal(`t.event_type = @type`, "type", f.Type)
	if f.Failed {
		q.conds = append(q.conds, `t.outcome = 'Failure'`)
	}
	q.equal(`t.outcome = @outcome`, "outcome", f.Outcome)
	q.truth(`(r.generic_file_id IS NOT NULL) = @about_file`, "about_file", f.AboutFile)
	q.since(eventTime+` >= @happened_after`, "happened_after", f.HappenedAfter)
	q.since(eventTime+` < @happened_before`, "happened_before", f.HappenedBefore)
	if q.inside.one || f.Object != 0 || f.File != 0 {
		q.sql = fmt.Sprintf(foundEventsSQL, strings.Join(records, ` AND `), q.all())
		return q, nil
	}
	records = append(records, `r.institution_id = n.id`)
	q.sql = fmt.Sprintf(allEventsSQL, fmt.Sprintf(foundEventsSQL, strings.Join(records, ` AND `), q.all()))
	return q, nil
}

// leads reports whether a filter is set that has an index.
func (f EventFilter) leads() bool {
	window := f.RecordedBefore.Sub(f.RecordedAfter)
	return f.Object != 0 || f.File != 0 || f.Failed || f.Type == "deletion" ||
		!f.RecordedAfter.IsZero() && !f.RecordedBefore.IsZero() && window <= MostDays*24*time.Hour+time.Microsecond // so that it may include its end
}

// records are the conditions for records; each may have several events.
func (f EventFilter) records(q *query) (conds []string) {
	if f.Object != 0 || f.File != 0 { // which have an index that does not know the institution
		q.within(`r.institution_id`)
	} else if q.inside.one {
		conds = append(conds, `r.institution_id = `+q.inside.id)
	}
	if f.Object != 0 {
		q.args["object"] = f.Object
		conds = append(conds, `r.intellectual_object_id = @object AND r.generic_file_id IS NULL`)
	}
	if f.File != 0 {
		q.args["file"] = f.File
		conds = append(conds, `r.generic_file_id = @file`)
	}
	if f.Failed || f.Type == "deletion" {
		conds = append(conds, `0 > ANY (r.texts)`)
	}
	if !f.RecordedAfter.IsZero() {
		q.args["recorded_after"] = f.RecordedAfter
		conds = append(conds, `r.created_at >= @recorded_after`)
	}
	if !f.RecordedBefore.IsZero() {
		q.args["recorded_before"] = f.RecordedBefore
		conds = append(conds, `r.created_at < @recorded_before`)
	}
	return conds
}
