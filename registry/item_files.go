package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Entered returns the token with which an item came to its stage, by which its progress
// goes; 0 if it is archived, or not there.
func (r *Registry) Entered(ctx context.Context, id int64) (int64, error) {
	return Value[int64](ctx, r.db, fmt.Sprintf("look up item %d", id), `SELECT coalesce((SELECT entered_token FROM work_items WHERE id = $1), 0)`, id)
}

// ItemFileFilter says which files of an item that is on record are asked for.
type ItemFileFilter struct {
	Item  record.WorkItem
	Ended time.Time // when the item succeeded; zero if it did not
	State string    // "": any
	After string    // only files whose path comes after
	Limit int
}

// ItemFileStates are the states that only files of items on record can be in. Those of
// an ingest can also be added or replaced.
func ItemFileStates() []string {
	return []string{"left", "deleted", "deleting", "pending", "restored", "readable", "not done"}
}

// RecordedFile is a file of an item as it is on record now.
type RecordedFile struct {
	Path    string
	Size    int64
	State   string // what the item did to it
	Message string // what has become of it since
	UUID    string `db:"uuid"`
	Format  string
	PUID    string `db:"puid"`
	Targets []string
}

// recordedFileColumns are those of [RecordedFile], and the page of the object's files in
// the order of their identifiers (generic_files_identifier_key).
const (
	recordedFileColumns = `substr(f.identifier, length(@object) + 2) AS path, f.size, f.uuid::text AS uuid, f.file_format AS format, f.format_puid AS puid,
	ARRAY(SELECT s.target FROM storage_records s WHERE s.generic_file_id = f.id ORDER BY s.id) AS targets`
	recordedFilePage = `f.identifier > @object || '/' AND f.identifier < @object || '0' AND f.identifier > @object || '/' || @after
	  AND f.intellectual_object_id = (SELECT o.id FROM intellectual_objects o WHERE o.identifier = @object)`
)

// ingestedFilesSQL goes by the events of each file (premis_events_file): what an item
// did can be recognized by their identifiers. A file that came on record later is not the item's.
const ingestedFilesSQL = `
SELECT ` + recordedFileColumns + `, d.state,
	CASE WHEN f.state <> 'D' THEN '' ELSE d.did || coalesce('; item ' || f.deleted_by_item || ' deleted it', '; deleted since') END AS message
FROM generic_files f
CROSS JOIN LATERAL (
	SELECT bool_or(e.event_type = 'identifier assignment' AND e.identifier = event_identifier(@item, f.identifier, e.event_type, f.identifier)) AS added,
		bool_or(e.event_type = 'ingestion' AND e.identifier = event_identifier(@item, f.identifier, e.event_type, e.outcome_detail)) AS stored,
		min(e.created_at) FILTER (WHERE e.event_type = 'ingestion') AS first
	FROM premis_events e WHERE e.generic_file_id = f.id AND e.event_type IN ('ingestion', 'identifier assignment')
) e
CROSS JOIN LATERAL (
	SELECT CASE WHEN e.added AND e.stored THEN 'added' WHEN e.stored THEN 'replaced' ELSE 'left' END AS did
) w
CROSS JOIN LATERAL (SELECT w.did, CASE f.state WHEN 'D' THEN 'deleted' ELSE w.did END AS state) d
WHERE ` + recordedFilePage + ` AND (e.stored OR e.first <= @ended) AND (@state = '' OR d.state = @state)
ORDER BY f.identifier LIMIT @n`

// requestedFilesSQL lists what a request is about: one file, or those of an object that
// are on record, or were when it ended. What a deletion did is in its receipts
// (deletion_receipts_file), and what it is about to do in its mark.
const requestedFilesSQL = `
SELECT ` + recordedFileColumns + `, d.state,
	CASE WHEN d.state = 'deleted' AND f.state = 'A' THEN 'on record again' WHEN d.state <> 'deleted' AND f.state = 'D' THEN 'deleted since' ELSE '' END AS message
FROM generic_files f
CROSS JOIN LATERAL (
	SELECT EXISTS (SELECT FROM deletion_receipts r WHERE r.generic_file_id = f.id AND r.work_item_id = @item) AS receipted,
		(SELECT min(e.created_at) FROM premis_events e WHERE e.generic_file_id = f.id AND e.event_type = 'ingestion') AS first
) e
CROSS JOIN LATERAL (
	SELECT CASE
		WHEN @action = 'Delete' AND (e.receipted AND @done OR f.state = 'D' AND f.deleted_by_item = @item) THEN 'deleted'
		WHEN @action = 'Delete' AND f.deleted_by_item = @item THEN 'deleting'
		WHEN @done AND @action = 'Glacier Restore' THEN 'readable'
		WHEN @done THEN 'restored'
		WHEN @live THEN 'pending'
		ELSE 'not done'
	END AS state
) d
WHERE ` + recordedFilePage + ` AND (@file::bigint IS NULL OR f.id = @file)
  AND CASE
	WHEN @action = 'Delete' THEN d.state IN ('deleted', 'deleting') OR f.state = 'A' AND NOT @done
	WHEN @done THEN e.first <= @ended
	ELSE f.state = 'A'
  END
  AND (@state = '' OR d.state = @state)
ORDER BY f.identifier LIMIT @n`

// ItemFiles lists the files of an item that are on record, in the order of their paths:
// of an ingest those that it brought or found, of a request those that it is about.
func (r *Registry) ItemFiles(ctx context.Context, f ItemFileFilter) ([]RecordedFile, error) {
	sql := requestedFilesSQL
	args := pgx.NamedArgs{
		"item": f.Item.ID, "object": f.Item.ObjectIdentifier, "ended": f.Ended, "state": f.State, "after": f.After, "n": f.Limit,
	}
	if f.Item.Action == "Ingest" {
		sql = ingestedFilesSQL
	} else {
		args["action"], args["file"] = f.Item.Action, f.Item.GenericFileID
		args["done"], args["live"] = f.Item.Status == "Success", f.Item.Retry
	}
	return Collect[RecordedFile](ctx, r.db, fmt.Sprintf("list the files of item %d", f.Item.ID), sql, args)
}
