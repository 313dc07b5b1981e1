// Package formats has the files whose formats are to be identified again. What comes in is a
// filter, and what files were found to be; what goes out are the files, page by page, and the
// events of their identification.
package formats

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct{ db registry.Database }

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB()} }

// Filter says which active files are to be identified again.
type Filter struct {
	// OlderThan takes files that were identified with PRONOM signature files of a
	// lower or unknown number. 0 takes files that have neither a PUID nor a reason for
	// having none.
	OlderThan   int
	Institution string // identifier; "": of any
	Object      string // identifier; "": of any
	// Groups take files of these that are not on record with NotBy, instead.
	Groups []Group
	NotBy  string // version of the signatures
}

// Group is a set of files about which other signatures say the same, as far as the record
// tells.
type Group struct {
	PUID   string `db:"puid"`
	Method string `db:"method"`
	Ext    string `db:"ext"` // of the name, with its dot and in small letters; "": none
}

// groupOf has the columns of a Group for a file f.
const groupOf = `f.format_puid, f.format_method, coalesce(lower(substring(f.identifier FROM '[.][^./]*$')), '')`

// File is a file that is to be identified again.
type File struct {
	ID         int64
	Identifier string
	Path       string // in the bag
	Size       int64
	MIME       string    `db:"mime"`
	PUID       string    `db:"puid"`
	UpdatedAt  time.Time // identifies a version of the row
	Signatures int       // number of the signature file

	// Its copies, each at the same place in every list.
	Targets []string
	Buckets []string
	Keys    []string
	ETags   []string `db:"etags"`
}

// where is the filter in SQL. The first condition of each is that of a partial
// index: generic_files_signatures, and generic_files_without_format.
func (f Filter) where() string {
	var b strings.Builder
	switch {
	case f.NotBy != "":
		b.WriteString(`f.state = 'A' AND f.size > 0 AND f.format_signature_version <> @not_by AND (` + groupOf + `) IN (
			SELECT * FROM unnest(@puids::text[], @methods::text[], @exts::text[]))`)
	case f.OlderThan > 0:
		b.WriteString(`f.state = 'A' AND signature_number(f.format_signature_version) < @older AND f.size > 0`)
	default:
		b.WriteString(`f.state = 'A' AND f.format_puid = '' AND f.format_reason = ''`)
	}
	if f.Institution != "" {
		b.WriteString(` AND f.institution_id = (SELECT id FROM institutions WHERE identifier = @institution)`)
	}
	if f.Object != "" {
		b.WriteString(` AND f.intellectual_object_id = (SELECT id FROM intellectual_objects WHERE identifier = @object)`)
	}
	return b.String()
}

func (f Filter) args() pgx.NamedArgs {
	var puids, methods, exts []string
	for _, g := range f.Groups {
		puids, methods, exts = append(puids, g.PUID), append(methods, g.Method), append(exts, g.Ext)
	}
	return pgx.NamedArgs{
		"older": f.OlderThan, "institution": f.Institution, "object": f.Object,
		"not_by": f.NotBy, "puids": puids, "methods": methods, "exts": exts,
	}
}

// Count is how many files a filter takes.
type Count struct {
	Files int64
	Bytes int64
	At    time.Time // by the database's clock
}

// Count counts the files that a filter takes.
func (r Records) Count(ctx context.Context, f Filter) (c Count, err error) {
	err = r.db.QueryRow(ctx, `SELECT count(*), coalesce(sum(f.size), 0)::bigint, now() FROM generic_files f WHERE `+f.where(), f.args()).
		Scan(&c.Files, &c.Bytes, &c.At)
	if err != nil {
		return c, fmt.Errorf("count files to identify: %w", err)
	}
	return c, nil
}

// ToIdentify returns up to most files that a filter takes and that nobody has
// changed since began, in the order of their signatures and IDs; those behind the
// file after, which is nil at first.
func (r Records) ToIdentify(ctx context.Context, f Filter, began time.Time, after *File, most int) ([]File, error) {
	args := f.args()
	args["began"], args["most"] = began, most
	behind, order := ``, `f.id`
	if f.OlderThan > 0 {
		order = `signature_number(f.format_signature_version), f.id`
	}
	if after != nil {
		args["id"], args["signatures"] = after.ID, after.Signatures
		behind = ` AND f.id > @id`
		if f.OlderThan > 0 {
			behind = ` AND (signature_number(f.format_signature_version), f.id) > (@signatures, @id)`
		}
	}
	return registry.Collect[File](ctx, r.db, "list files to identify", `
		SELECT f.id, f.identifier, substr(f.identifier, length(o.identifier) + 2) AS path, f.size, f.file_format AS mime,
			f.format_puid AS puid, f.updated_at, signature_number(f.format_signature_version) AS signatures,
			c.targets, c.buckets, c.keys, c.etags
		FROM generic_files f
		JOIN intellectual_objects o ON o.id = f.intellectual_object_id
		CROSS JOIN LATERAL (
			SELECT coalesce(array_agg(s.target ORDER BY s.id), '{}') AS targets, coalesce(array_agg(s.bucket ORDER BY s.id), '{}') AS buckets,
				coalesce(array_agg(s.key ORDER BY s.id), '{}') AS keys, coalesce(array_agg(s.etag ORDER BY s.id), '{}') AS etags
			FROM storage_records s WHERE s.generic_file_id = f.id
		) c
		WHERE `+f.where()+` AND f.updated_at < @began`+behind+`
		ORDER BY `+order+` LIMIT @most`, args)
}

// Identified is what a file was found to be.
type Identified struct {
	registry.Format

	File File
}

// A file that someone works on, or has changed since it was read, is left to
// them: nobody is waited for, and so nobody waits in a ring. The event is derived
// from the content and the answer: the same signatures say it once.
const identifySQL = `
WITH found AS (
	SELECT * FROM unnest(@ids::bigint[], @was::timestamptz[], @mimes::text[], @puids::text[], @names::text[], @methods::text[], @by::text[],
		@versions::text[], @reasons::text[], @at::timestamptz[]) AS n (id, was, mime, puid, name, method, by, version, reason, at)
), free AS (
	SELECT f.id, f.format_signature_version AS before FROM generic_files f JOIN found n ON n.id = f.id
	WHERE f.state = 'A' AND f.updated_at = n.was
	ORDER BY f.id FOR NO KEY UPDATE OF f SKIP LOCKED
), changed AS (
	UPDATE generic_files f SET
		file_format = n.mime, format_puid = n.puid, format_name = n.name, format_method = n.method, format_identified_by = n.by,
		format_signature_version = n.version, format_reason = n.reason, format_identified_at = n.at,
		updated_at = greatest(now(), n.was + interval '1 microsecond')
	FROM found n JOIN free ON free.id = n.id
	WHERE f.id = n.id
	RETURNING f.id, f.institution_id, f.intellectual_object_id, f.identifier, n.mime, n.puid, n.name, n.method, n.by, n.version, n.reason, n.at, free.before
), event AS (
	SELECT c.*, format_outcome(c.puid, c.mime, c.name, c.method, c.version, c.reason) AS outcome_detail,
		coalesce((SELECT k.digest FROM checksums k WHERE k.generic_file_id = c.id AND k.algorithm = 'sha256'
			ORDER BY k.datetime DESC LIMIT 1), '') AS sha256
	FROM changed c
), reported AS (
	INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(0, e.identifier || ' ' || e.sha256, 'format identification', e.outcome_detail), e.institution_id,
		e.intellectual_object_id, e.id, 'format identification', e.at, 'Identified file format',
		CASE WHEN identification_failed(e.reason) THEN 'Failure' ELSE 'Success' END, e.outcome_detail,
		coalesce(nullif(e.reason, ''), 'Identified by ' || e.by)
			|| CASE WHEN e.before NOT IN ('', e.version) THEN '; before by ' || e.before ELSE '' END, coalesce(nullif(e.version, ''), 'Farol'),
		CASE e.version WHEN '' THEN 'https://github.com/farol-preservation/farol' ELSE 'https://github.com/richardlehane/siegfried' END
	FROM event e
)
SELECT id FROM changed`

// Identify puts on record what files were found to be, each with its event, and
// returns the IDs of those that were written: the others were deleted or changed
// since they were read.
func (r Records) Identify(ctx context.Context, found []Identified) (ids []int64, err error) {
	var of struct {
		ids                                                 []int64
		was, at                                             []time.Time
		mimes, puids, names, methods, by, versions, reasons []string
	}
	for _, f := range found {
		of.ids, of.was, of.at = append(of.ids, f.File.ID), append(of.was, f.File.UpdatedAt), append(of.at, f.At)
		of.mimes, of.puids, of.names = append(of.mimes, f.MIME), append(of.puids, f.PUID), append(of.names, f.Name)
		of.methods, of.by = append(of.methods, f.Method), append(of.by, f.IdentifiedBy)
		of.versions, of.reasons = append(of.versions, f.SignatureVersion), append(of.reasons, f.Reason)
	}
	err = registry.Again(func() error {
		rows, _ := r.db.Query(ctx, identifySQL, pgx.NamedArgs{
			"ids": of.ids, "was": of.was, "at": of.at, "mimes": of.mimes, "puids": of.puids, "names": of.names, "methods": of.methods,
			"by": of.by, "versions": of.versions, "reasons": of.reasons,
		})
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record the formats of %d files: %w", len(found), registry.Refusal(err))
	}
	return ids, nil
}
