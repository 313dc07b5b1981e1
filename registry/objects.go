package registry

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// SelectObject reads an [Object] from o, up to the condition.
const SelectObject = `
SELECT id, institution_id, identifier, title, description, access, alt_identifier, bag_name, bag_group_identifier,
	bagit_profile_identifier, source_organization, internal_sender_identifier, internal_sender_description,
	etag, storage_option, state, tag_encoding, deletions,
	state = 'A' AND deleted_by_item IS NOT NULL OR EXISTS (
		SELECT FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A' AND f.deleted_by_item IS NOT NULL) AS deleting
FROM intellectual_objects o`

// Object returns the object with an identifier, in whichever state, or
// ErrNotFound.
func (r *Registry) Object(ctx context.Context, identifier string) (record.Object, error) {
	return One[record.Object](ctx, r.db, fmt.Sprintf("look up object %q", identifier), SelectObject+` WHERE o.identifier = $1`, identifier)
}

// KnownFile is what the registry knows of a file that may come again.
type KnownFile struct {
	ID            int64
	Identifier    string
	UUID          string
	State         string
	StorageOption string
	SHA256        string   // the current one; "" if none was ever recorded
	MD5           string   `db:"md5"`
	Bad           bool     // a copy of it is known to be bad
	Targets       []string // where there are copies of it
	Keys          []string // under which they are
}

// knownFilesSQL goes by generic_files_object, and of each file by
// checksums_generic_file_id_algorithm_digest_key, storage_records_generic_file_id_url_key
// and fixity_failures_open.
const knownFilesSQL = `
SELECT f.id, f.identifier, f.uuid::text AS uuid, f.state, f.storage_option,
	coalesce((SELECT c.digest FROM checksums c WHERE c.generic_file_id = f.id AND c.algorithm = 'sha256'
		ORDER BY c.datetime DESC LIMIT 1), '') AS sha256,
	coalesce((SELECT c.digest FROM checksums c WHERE c.generic_file_id = f.id AND c.algorithm = 'md5'
		ORDER BY c.datetime DESC LIMIT 1), '') AS md5,
	EXISTS (SELECT FROM fixity_failures b JOIN storage_records s ON s.id = b.storage_record_id
		WHERE s.generic_file_id = f.id AND b.state = 'open') AS bad,
	ARRAY(SELECT s.target FROM storage_records s WHERE s.generic_file_id = f.id ORDER BY s.id) AS targets,
	ARRAY(SELECT s.key FROM storage_records s WHERE s.generic_file_id = f.id ORDER BY s.id) AS keys
FROM generic_files f WHERE f.intellectual_object_id = $1`

// KnownFiles streams all files of an object, in whichever state, in one query.
func (r *Registry) KnownFiles(ctx context.Context, objectID int64) iter.Seq2[KnownFile, error] {
	return streamed[KnownFile](ctx, r.db, fmt.Sprintf("list files of object %d", objectID), knownFilesSQL, objectID)
}

// mostCounted is up to how many files, deleted ones among them, all that is on record of an
// object is counted.
const mostCounted = 10_000

// Summary counts the files of an object (object_holdings), and its copies and events unless
// it has too many files (generic_files_object).
func (r *Registry) Summary(ctx context.Context, objectID int64) (s record.ObjectSummary, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT coalesce(max(files), 0), coalesce(max(bytes), 0),
			(SELECT count(*) FROM (SELECT FROM generic_files WHERE intellectual_object_id = $1 LIMIT $2 + 1) f) <= $2
		FROM object_holdings WHERE intellectual_object_id = $1`, objectID, mostCounted).Scan(&s.Files, &s.Bytes, &s.Counted)
	if err != nil {
		return s, fmt.Errorf("count files of object %d: %w", objectID, err)
	}
	if !s.Counted {
		return s, nil
	}
	err = r.db.QueryRow(ctx, `
		SELECT count(*) FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id
		WHERE f.intellectual_object_id = $1 AND f.state = 'A'`, objectID).Scan(&s.Copies)
	if err != nil {
		return s, fmt.Errorf("count copies of object %d: %w", objectID, err)
	}
	s.Events = map[string]int64{}
	rows, _ := r.db.Query(ctx, `
		SELECT event_type, count(*) FROM (
			SELECT event_type FROM premis_events WHERE intellectual_object_id = $1 AND generic_file_id IS NULL
			UNION ALL
			SELECT e.event_type FROM generic_files f JOIN premis_events e ON e.generic_file_id = f.id
			WHERE f.intellectual_object_id = $1
		) e GROUP BY event_type`, objectID)
	var eventType string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&eventType, &n}, func() error {
		s.Events[eventType] = n
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("count events of object %d: %w", objectID, err)
	}
	return s, nil
}

// ObjectCopies counts the copies of an object that are known to be bad
// (fixity_failures_open), and if counted those that nobody has read
// (storage_records_generic_file_id_url_key).
func (r *Registry) ObjectCopies(ctx context.Context, objectID int64, counted bool) (c record.ObjectCopies, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT count(*) FROM fixity_failures b JOIN generic_files f ON f.id = b.generic_file_id
		WHERE b.state = 'open' AND f.intellectual_object_id = $1 AND f.state = 'A'
			AND EXISTS (SELECT FROM storage_records s WHERE s.id = b.storage_record_id)`, objectID).Scan(&c.Bad)
	if err == nil && counted {
		err = r.db.QueryRow(ctx, `
			SELECT count(*) FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id
			WHERE f.intellectual_object_id = $1 AND f.state = 'A' AND s.last_fixity_at IS NULL`, objectID).Scan(&c.NeverRead)
	}
	if err != nil {
		return c, fmt.Errorf("count copies of object %d: %w", objectID, err)
	}
	return c, nil
}

// ObjectEvents returns the events of an object itself, oldest first; those of
// its files are not among them.
func (r *Registry) ObjectEvents(ctx context.Context, objectID int64) ([]record.Event, error) {
	return Collect[record.Event](ctx, r.db, fmt.Sprintf("list events of object %d", objectID), `
		SELECT `+EventColumns+`
		FROM premis_events e WHERE e.intellectual_object_id = $1 AND e.generic_file_id IS NULL
		ORDER BY e.date_time, e.id`, objectID)
}
