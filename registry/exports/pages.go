package exports

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Rows of a page. An object or a file has some ten events.
const (
	filesAtOnce   = 1000
	objectsAtOnce = 1000
)

// named is a record whose events follow.
type named struct {
	ID         int64
	Identifier string
}

func collect[T any](ctx context.Context, s *Snapshot, what, sql string, args pgx.NamedArgs) ([]T, error) {
	rows, _ := s.tx.Query(ctx, sql, args)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("export: read %s: %w", what, registry.Refusal(err))
	}
	return list, nil
}

// args are those of a page that comes after an identifier.
func (o Of) args(after string, most int) pgx.NamedArgs {
	first, end := rangeOf(o.prefix())
	return pgx.NamedArgs{"after": max(after, first), "end": end, "institution": o.Institution, "object": o.ObjectID, "n": most}
}

// The files of an object, or of an institution, are a range of identifiers in the order of
// bytes (generic_files_identifier_key). No file has the prefix itself as its identifier.
const (
	fileRange = `f.identifier > @after AND f.identifier < @end AND f.institution_id = @institution AND (@object::bigint = 0::bigint OR f.intellectual_object_id = @object)`
	fileOrder = ` ORDER BY f.identifier LIMIT @n`
)

func (s *Snapshot) files(ctx context.Context, o Of, after, condition string) (list []record.File, last string, err error) {
	list, err = collect[record.File](ctx, s, "files", registry.SelectFile+` WHERE `+fileRange+condition+fileOrder, o.args(after, filesAtOnce))
	if len(list) > 0 {
		last = list[len(list)-1].Identifier
	}
	return list, last, err
}

// activeFiles are the next files that are kept, and the identifier of the last of these.
func (s *Snapshot) activeFiles(ctx context.Context, o Of, after string) ([]record.File, string, error) {
	return s.files(ctx, o, after, ` AND f.state = 'A'`)
}

// allFiles are the next files, deleted ones too.
func (s *Snapshot) allFiles(ctx context.Context, o Of, after string) ([]record.File, string, error) {
	return s.files(ctx, o, after, ``)
}

// objects are in the order of bytes, too (intellectual_objects_bytes).
const (
	objectRange = `(@object::bigint = 0::bigint OR o.id = @object) AND o.institution_id = @institution AND o.identifier COLLATE "C" > @after AND o.identifier COLLATE "C" < @end`
	objectOrder = ` ORDER BY o.identifier COLLATE "C" LIMIT @n`
)

// objectArgs are those of a page of objects: an object's own identifier has no slash at its
// end.
func (o Of) objectArgs(after string) pgx.NamedArgs {
	whole := o
	whole.Object = ""
	return whole.args(after, objectsAtOnce)
}

func (s *Snapshot) objects(ctx context.Context, o Of, after string) (list []record.Object, last string, err error) {
	list, err = collect[record.Object](ctx, s, "objects", registry.SelectObject+` WHERE `+objectRange+objectOrder, o.objectArgs(after))
	if len(list) > 0 {
		last = list[len(list)-1].Identifier
	}
	return list, last, err
}

// Events of some records in the order of these (premis_events_object, premis_events_file).
// Each record has its events looked up by itself, whatever the planner thinks of their number.
const (
	eventsOfSQL = `
SELECT e.*, r.identifier AS about
FROM unnest(@ids::bigint[], @names::text[]) WITH ORDINALITY AS r (id, identifier, n)
CROSS JOIN LATERAL (SELECT e.id AS event, ` + registry.EventColumns + ` FROM premis_events e WHERE %s OFFSET 0) e
ORDER BY r.n, e.date_time, e.event`
	ofFile   = `e.generic_file_id = r.id`
	ofObject = `e.intellectual_object_id = r.id AND e.generic_file_id IS NULL`
)

// event is a row of eventsOfSQL.
type event struct {
	registry.LinkedEvent

	Event int64 // ID
}

func (s *Snapshot) eventsOf(ctx context.Context, page []named, condition string) ([]event, error) {
	ids, names := make([]int64, len(page)), make([]string, len(page))
	for i, r := range page {
		ids[i], names[i] = r.ID, r.Identifier
	}
	return collect[event](ctx, s, "events", fmt.Sprintf(eventsOfSQL, condition), pgx.NamedArgs{"ids": ids, "names": names})
}

// fileEvents are the events of the next files, and the identifier of the last of these.
func (s *Snapshot) fileEvents(ctx context.Context, o Of, after string) (list []event, last string, err error) {
	page, err := collect[named](ctx, s, "files", `SELECT f.id, f.identifier FROM generic_files f WHERE `+fileRange+fileOrder, o.args(after, filesAtOnce))
	if err != nil || len(page) == 0 {
		return nil, "", err
	}
	list, err = s.eventsOf(ctx, page, ofFile)
	return list, page[len(page)-1].Identifier, err
}

// objectEvents are the events of the next objects themselves.
func (s *Snapshot) objectEvents(ctx context.Context, o Of, after string) (list []event, last string, err error) {
	page, err := collect[named](ctx, s, "objects", `SELECT o.id, o.identifier FROM intellectual_objects o WHERE `+objectRange+objectOrder, o.objectArgs(after))
	if err != nil || len(page) == 0 {
		return nil, "", err
	}
	list, err = s.eventsOf(ctx, page, ofObject)
	return list, page[len(page)-1].Identifier, err
}
