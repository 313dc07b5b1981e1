package browse

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// FileFilter narrows a list of files.
type FileFilter struct {
	record.FileFilter
	FileDetails

	ObjectID int64
}

// filePageSQL shows files that were found: of each the copies, by
// storage_records_generic_file_id_url_key and fixity_failures_open.
const filePageSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.identifier, p.state, p.size, p.file_format, p.format_puid, c.copies, c.never_read, c.bad, c.last_read_at
FROM page p CROSS JOIN LATERAL (
	SELECT count(*) AS copies, count(*) FILTER (WHERE s.last_fixity_at IS NULL) AS never_read, min(s.last_fixity_at) AS last_read_at,
		count(*) FILTER (WHERE EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')) AS bad
	FROM storage_records s WHERE s.generic_file_id = p.id
) c
ORDER BY `

const fileAdvice = "add object, identifier, identifier prefix, uuid, digest (MD5 or SHA-256) or institution"

// Files lists files: those of a digest by ID, the newest first, and all others in the order
// of their identifiers. The key of a page is an ID or an identifier. The error is
// [ErrTooBroad] if no filter is set that has an index, or if it takes too long, and
// [registry.ErrRefused] for what is no UUID and no digest.
func (r Records) Files(ctx context.Context, f FileFilter, p Page) ([]record.ListedFile, Key, error) {
	order := `p.identifier`
	if f.Digest != "" {
		order = `p.id DESC`
	}
	return list(ctx, r, "files", f, p, func(found string) string { return fmt.Sprintf(filePageSQL, found) + order }, func(x record.ListedFile) Key {
		if f.Digest != "" {
			return Key{ID: x.ID}
		}
		return Key{Identifier: x.Identifier}
	})
}

// Files are found by their identifiers or UUIDs (generic_files_identifier_key,
// generic_files_uuid_key). Those of an object, or of an institution, are a range of the
// identifiers: a slash comes before 0.
const (
	filesSQL     = `SELECT f.* FROM generic_files f WHERE %s ORDER BY f.identifier LIMIT @n`
	objectOfFile = `(SELECT o.identifier FROM intellectual_objects o WHERE o.id = @object_id)`
)

// digestFilesSQL finds the files that have, or had, a content (file_digests_md5,
// file_digests_sha256). A file has several rows of a digest if some were written by hand.
const digestFilesSQL = `
SELECT f.* FROM (SELECT DISTINCT d.generic_file_id AS id FROM file_digests d WHERE %s ORDER BY d.generic_file_id DESC) d
JOIN generic_files f ON f.id = d.id
WHERE %s ORDER BY d.id DESC LIMIT @n`

func (f FileFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, fileAdvice)
	if !f.leads() && !q.inside.one && !q.nothing {
		return nil, q.tooBroad()
	}
	if err := f.narrow(q); err != nil {
		return nil, err
	}
	q.within(`f.institution_id`)
	if f.Digest != "" {
		digest, err := digestOf(q, f.Digest)
		if err != nil {
			return nil, err
		}
		if after.ID != 0 {
			q.args["after"] = after.ID
			digest += ` AND d.generic_file_id < @after`
		}
		q.sql = fmt.Sprintf(digestFilesSQL, digest, q.all())
		return q, nil
	}
	if after.Identifier != "" {
		q.where(`f.identifier > @after`, "after", after.Identifier)
	}
	q.ownRange(`f.identifier`)
	q.sql = fmt.Sprintf(filesSQL, q.all())
	return q, nil
}

// leads reports whether a filter is set that has an index.
func (f FileFilter) leads() bool {
	return f.ObjectID != 0 || f.Object != "" || f.Identifier != "" || f.Prefix != "" || f.UUID != "" || f.Digest != ""
}

func (f FileFilter) narrow(q *query) error {
	if f.ObjectID != 0 {
		q.where(inOrder(`f.intellectual_object_id`)+` = @object_id`, "object_id", f.ObjectID)
		q.conds = append(q.conds, `f.identifier > `+objectOfFile+` || '/'`, `f.identifier < `+objectOfFile+` || '0'`)
	}
	if f.Object != "" {
		q.where(inOrder(`f.intellectual_object_id`)+` = (SELECT o.id FROM intellectual_objects o WHERE o.identifier = @object)`, "object", f.Object)
		q.conds = append(q.conds, `f.identifier > @object || '/'`, `f.identifier < @object || '0'`)
	}
	q.equal(`f.identifier = @identifier`, "identifier", f.Identifier)
	if f.Prefix != "" {
		q.prefixed(`f.identifier`, "prefix", f.Prefix)
	}
	if f.UUID != "" {
		id, err := uuidOf(f.UUID)
		if err != nil {
			return err
		}
		q.where(`f.uuid = @uuid`, "uuid", id)
	}
	q.equal(`f.state = @state`, "state", f.State)
	q.equal(`@format IN (f.format_puid, f.format_name)`, "format", f.Format)
	if f.SizeMin != 0 {
		q.where(`f.size >= @size_min`, "size_min", f.SizeMin)
	}
	if f.SizeMax != nil {
		q.where(`f.size <= @size_max`, "size_max", *f.SizeMax)
	}
	f.FileDetails.narrow(q)
	return nil
}

// uuidOf reads a UUID.
func uuidOf(text string) (id pgtype.UUID, err error) {
	if err := id.Scan(text); err != nil {
		return id, refused("%q is no UUID", text)
	}
	return id, nil
}

// digestOf is the condition for a row d of file_digests with a digest. Its eight first
// bytes are in an index, with the file's ID.
func digestOf(q *query, digest string) (string, error) {
	raw, err := hex.DecodeString(digest)
	if err != nil {
		return "", refused("%q is no digest in hexadecimal", digest)
	}
	q.args["digest"] = raw
	switch len(raw) {
	case 16:
		return `substr(d.md5, 1, 8) = substr(@digest::bytea, 1, 8) AND d.md5 = @digest`, nil
	case 32:
		return `substr(d.sha256, 1, 8) = substr(@digest::bytea, 1, 8) AND d.sha256 = @digest`, nil
	case 20, 64:
		return "", fmt.Errorf("%w: a digest by SHA-1 or SHA-512 has no index; give the MD5 or the SHA-256", ErrTooBroad)
	}
	return "", refused("%q is no digest: MD5 has 32 hexadecimal digits, SHA-256 has 64", digest)
}

// File returns the file with an ID, in whichever state, with its digests and copies, or
// [registry.ErrNotFound].
func (r Records) File(ctx context.Context, id int64) (record.File, error) {
	q := in(r.scope, "", fileAdvice)
	return r.file(ctx, q.named("file", `f`, id, ""), q)
}

// FileByIdentifier returns the file with an identifier as [Records.File] does.
func (r Records) FileByIdentifier(ctx context.Context, identifier string) (record.File, error) {
	q := in(r.scope, "", fileAdvice)
	return r.file(ctx, q.named("file", `f`, 0, identifier), q)
}

// FileByUUID returns the file with a UUID as [Records.File] does. What is no UUID is
// [registry.ErrRefused].
func (r Records) FileByUUID(ctx context.Context, uuid string) (record.File, error) {
	q := in(r.scope, "", fileAdvice)
	id, err := uuidOf(uuid)
	if err != nil {
		return record.File{}, fmt.Errorf("look up a file: %w", err)
	}
	q.within(`f.institution_id`)
	q.where(`f.uuid = @uuid`, "uuid", id)
	return r.file(ctx, fmt.Sprintf("file %q", uuid), q)
}

func (r Records) file(ctx context.Context, what string, q *query) (record.File, error) {
	q.sql = registry.SelectFile + ` WHERE ` + q.all()
	return one[record.File](ctx, r, what, q)
}
