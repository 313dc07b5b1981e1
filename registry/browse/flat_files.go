package browse

import (
	"context"
	"time"
)

// FileDetails narrow a list of files further. They have no indexes.
type FileDetails struct {
	StorageOption []string  // any of these
	CreatedAfter  time.Time // then or later, as the next ones
	CreatedBefore time.Time
	UpdatedAfter  time.Time
	UpdatedBefore time.Time
	CheckedAfter  time.Time // of the last fixity check
	CheckedBefore time.Time
}

// narrow adds the conditions for a row f.
func (d FileDetails) narrow(q *query) {
	anyOf(q, `f.storage_option = ANY (@storage_options::text[])`, "storage_options", d.StorageOption)
	q.since(`f.created_at >= @created_after`, "created_after", d.CreatedAfter)
	q.since(`f.created_at < @created_before`, "created_before", d.CreatedBefore)
	q.since(`f.updated_at >= @updated_after`, "updated_after", d.UpdatedAfter)
	q.since(`f.updated_at < @updated_before`, "updated_before", d.UpdatedBefore)
	q.since(`f.last_fixity_check >= @checked_after`, "checked_after", d.CheckedAfter)
	q.since(`f.last_fixity_check < @checked_before`, "checked_before", d.CheckedBefore)
}

// FlatFile is a file with its object, its institution and its present digests. What is
// absent is zero.
type FlatFile struct {
	ID                    int64  `json:"id"`
	FileFormat            string `json:"file_format"`
	Size                  int64  `json:"size"`
	Identifier            string `json:"identifier"`
	IntellectualObjectID  int64  `json:"intellectual_object_id"`
	ObjectIdentifier      string `json:"object_identifier"`
	Access                string `json:"access"`
	State                 string `json:"state"`
	LastFixityCheck       Time   `json:"last_fixity_check"`
	InstitutionID         int64  `json:"institution_id"`
	InstitutionName       string `json:"institution_name"`
	InstitutionIdentifier string `json:"institution_identifier"`
	StorageOption         string `json:"storage_option"`
	UUID                  string `json:"uuid" db:"uuid"`
	MTime                 Time   `json:"mtime" db:"mtime"`
	MD5                   string `json:"md5" db:"md5"`
	SHA1                  string `json:"sha1" db:"sha1"`
	SHA256                string `json:"sha256" db:"sha256"`
	SHA512                string `json:"sha512" db:"sha512"`
	CreatedAt             Time   `json:"created_at"`
	UpdatedAt             Time   `json:"updated_at"`
}

// flatFilesSQL reads the latest digests of each file on a page (file_digests_file).
const flatFilesSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.file_format, p.size, p.identifier, p.intellectual_object_id, o.identifier AS object_identifier, o.access, p.state, p.last_fixity_check,
	p.institution_id, i.name AS institution_name, i.identifier AS institution_identifier, p.storage_option, p.uuid::text AS uuid, p.mod_time AS mtime,
	coalesce(d.md5, '') AS md5, coalesce(d.sha1, '') AS sha1, coalesce(d.sha256, '') AS sha256, coalesce(d.sha512, '') AS sha512, p.created_at, p.updated_at
FROM page p
JOIN intellectual_objects o ON o.id = p.intellectual_object_id
JOIN institutions i ON i.id = p.institution_id
CROSS JOIN LATERAL (
	SELECT (array_agg(encode(d.md5, 'hex') ORDER BY d.datetime DESC, d.id DESC) FILTER (WHERE d.md5 IS NOT NULL))[1] AS md5,
		(array_agg(encode(d.sha1, 'hex') ORDER BY d.datetime DESC, d.id DESC) FILTER (WHERE d.sha1 IS NOT NULL))[1] AS sha1,
		(array_agg(encode(d.sha256, 'hex') ORDER BY d.datetime DESC, d.id DESC) FILTER (WHERE d.sha256 IS NOT NULL))[1] AS sha256,
		(array_agg(encode(d.sha512, 'hex') ORDER BY d.datetime DESC, d.id DESC) FILTER (WHERE d.sha512 IS NOT NULL))[1] AS sha512
	FROM file_digests d WHERE d.generic_file_id = p.id
) d`

// flatFiles has as its own order that of the filter.
func flatFiles(byID bool) flat[FlatFile] {
	l := flat[FlatFile]{
		what: "files", from: `(%s) p`, row: `p`, show: flatFilesSQL,
		columns: map[string]string{
			"id": `p.id`, "updated_at": `p.updated_at`, "created_at": `p.created_at`, "identifier": `p.identifier`, "name": `p.identifier`,
		},
		own: Order{"identifier", false}, ownSQL: `p.identifier`, tie: `p.id`, key: func(f FlatFile) Key { return Key{Identifier: f.Identifier} },
	}
	if byID {
		l.own, l.ownSQL, l.key = Order{"id", true}, `p.id DESC`, func(f FlatFile) Key { return Key{ID: f.ID} }
	}
	return l
}

// FlatFiles lists files with what they refer to, in the order that [Records.Files] has or
// as the slice says. The errors are those of [Records.Files].
func (r Records) FlatFiles(ctx context.Context, f FileFilter, s Slice) (Part[FlatFile], error) {
	return part(ctx, r, flatFiles(f.Digest != ""), f, s)
}

// FlatFile returns the file with an ID, or else an identifier, in whichever state, with
// what it refers to, or [registry.ErrNotFound].
func (r Records) FlatFile(ctx context.Context, id int64, identifier string) (FlatFile, error) {
	q := in(r.scope, "", fileAdvice)
	what := q.named("file", `f`, id, identifier)
	return single(ctx, r, flatFiles(true), what, `SELECT f.* FROM generic_files f`, q)
}
