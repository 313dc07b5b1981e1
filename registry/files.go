package registry

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// SelectFile reads a [File] from f, up to the condition: its digests by checksums_generic_file_id_algorithm_digest_key
// and its copies by storage_records_generic_file_id_url_key and fixity_failures_open.
const SelectFile = `
SELECT f.id, f.identifier, o.identifier AS object, i.identifier AS institution, f.uuid::text AS uuid, f.state, f.size, f.storage_option,
	f.file_format, f.format_puid, f.format_name, f.format_method, f.format_identified_by, f.format_signature_version, f.format_reason,
	f.format_identified_at, f.mod_time, f.created_at, f.updated_at, f.last_fixity_check, f.deleted_by_item,
	coalesce((
		SELECT jsonb_agg(jsonb_build_object('algorithm', c.algorithm, 'digest', c.digest, 'datetime', c.datetime, 'present', c.newest = 1)
			ORDER BY c.newest > 1, c.algorithm, c.datetime DESC)
		FROM (SELECT k.*, row_number() OVER (PARTITION BY algorithm ORDER BY datetime DESC, id DESC) AS newest
			FROM checksums k WHERE k.generic_file_id = f.id) c), '[]') AS digests,
	coalesce((
		SELECT jsonb_agg(jsonb_build_object('target', s.target, 'bucket', s.bucket, 'key', s.key, 'url', s.url, 'etag', s.etag,
			'stored_at', s.stored_at, 'verified_at', s.verified_at, 'verified_by', s.verified_by, 'last_read_at', s.last_fixity_at,
			'problem', coalesce((SELECT b.problem FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open'), ''))
			ORDER BY s.target, s.key)
		FROM storage_records s WHERE s.generic_file_id = f.id), '[]') AS copies
FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id JOIN institutions i ON i.id = f.institution_id`

// EventColumns are the columns of an [Event], for statements that read e, a row of premis_events.
const EventColumns = `e.identifier::text AS identifier, e.event_type, e.event_type_uri, e.date_time, e.detail, e.outcome, e.outcome_detail,
	e.outcome_information, e.object, e.agent`

// FileFailures returns the copies of a file that were found to be bad, the newest
// first (fixity_failures_file).
func (r *Registry) FileFailures(ctx context.Context, fileID int64) ([]record.CopyFailure, error) {
	return Collect[record.CopyFailure](ctx, r.db, "list the bad copies of a file", `
		SELECT target, url, problem, algorithm, expected, found, found_at, seen_at, state, closed_at, quarantined_as, repaired_from
		FROM fixity_failures WHERE generic_file_id = @file ORDER BY id DESC`, pgx.NamedArgs{"file": fileID})
}
