package registry

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// File is a file with all that is on record of its content and its copies.
type File struct {
	ID                     int64      `json:"id"`
	Identifier             string     `json:"identifier"` // <object identifier>/<path in bag>
	Object                 string     `json:"object_identifier"`
	Institution            string     `json:"institution_identifier"`
	UUID                   string     `json:"uuid" db:"uuid"`
	State                  string     `json:"state"` // A or D
	Size                   int64      `json:"size"`
	StorageOption          string     `json:"storage_option"`
	FileFormat             string     `json:"file_format"` // MIME type
	FormatPUID             string     `json:"format_puid" db:"format_puid"`
	FormatName             string     `json:"format_name"`
	FormatMethod           string     `json:"format_method"`
	FormatIdentifiedBy     string     `json:"format_identified_by"`
	FormatSignatureVersion string     `json:"format_signature_version"`
	FormatReason           string     `json:"format_reason"` // why the identifier gave no type; "": it did
	FormatIdentifiedAt     *time.Time `json:"format_identified_at"`
	ModTime                *time.Time `json:"mod_time"` // as the tar had it
	CreatedAt              time.Time  `json:"created_at"`
	UpdatedAt              time.Time  `json:"updated_at"`
	LastFixityCheck        time.Time  `json:"last_fixity_check"`
	DeletedByItem          *int64     `json:"deleted_by_item"` // that deletes the file, or has deleted it
	Digests                []Digest   `json:"digests"`         // those of the present content first
	Copies                 []FileCopy `json:"copies"`          // none once it is deleted
}

// Digest is a digest that a file has had.
type Digest struct {
	Algorithm string    `json:"algorithm"`
	Digest    string    `json:"digest"`
	At        time.Time `json:"datetime"`
	Present   bool      `json:"present"` // of the content that the file has now, or had when it was deleted
}

// FileCopy is a stored copy of a file, and what was seen of it.
type FileCopy struct {
	Target     string     `json:"target"`
	Bucket     string     `json:"bucket"`
	Key        string     `json:"key"`
	URL        string     `json:"url"`
	ETag       string     `json:"etag"`
	StoredAt   time.Time  `json:"stored_at"`
	VerifiedAt time.Time  `json:"verified_at"`
	VerifiedBy string     `json:"verified_by"`  // sha256, etag or read; "": that was not kept
	LastReadAt *time.Time `json:"last_read_at"` // its bytes were compared with their digest; nil: never since it was stored
	Problem    string     `json:"problem"`      // altered or missing; "": it is not known to be bad
}

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

// CopyFailure is a copy of a file that was found to be bad, and what became of it.
type CopyFailure struct {
	Target        string     `json:"target"`
	URL           string     `json:"url" db:"url"`
	Problem       string     `json:"problem"` // altered or missing
	Algorithm     string     `json:"algorithm"`
	Expected      string     `json:"expected"`
	Found         string     `json:"found"`    // digest; "": there was nothing
	FoundAt       time.Time  `json:"found_at"` // for the first time
	SeenAt        time.Time  `json:"seen_at"`  // for the last time
	State         string     `json:"state"`    // open, repaired, good again, replaced or deleted
	ClosedAt      *time.Time `json:"closed_at"`
	QuarantinedAs string     `json:"quarantined_as"` // where the bad bytes are kept
	RepairedFrom  string     `json:"repaired_from"`  // URL of the good copy
}

// FileFailures returns the copies of a file that were found to be bad, the newest
// first (fixity_failures_file).
func (r *Registry) FileFailures(ctx context.Context, fileID int64) ([]CopyFailure, error) {
	return Collect[CopyFailure](ctx, r.db, "list the bad copies of a file", `
		SELECT target, url, problem, algorithm, expected, found, found_at, seen_at, state, closed_at, quarantined_as, repaired_from
		FROM fixity_failures WHERE generic_file_id = @file ORDER BY id DESC`, pgx.NamedArgs{"file": fileID})
}
