package registry

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// StoredFile is an active file with all that is needed to read and check it.
// Digests are the current ones, in lower-case hex; "" if there is none.
type StoredFile struct {
	ID         int64
	Identifier string // <object identifier>/<path in bag>
	UUID       string
	Size       int64
	Format     string
	ModTime    *time.Time // as the tar had it
	MD5        string     `db:"md5"`
	SHA1       string     `db:"sha1"`
	SHA256     string     `db:"sha256"`
	SHA512     string     `db:"sha512"`
	Copies     []record.StoredCopy
}

// storedFilesSQL walks the files of an object in the order of their identifiers
// (generic_files_identifier_key, checksums_generic_file_id_algorithm_digest_key,
// storage_records_generic_file_id_url_key).
const storedFilesSQL = `
SELECT f.id, f.identifier, f.uuid::text AS uuid, f.size, f.file_format AS format, f.mod_time,
	coalesce(c.md5, '') AS md5, coalesce(c.sha1, '') AS sha1, coalesce(c.sha256, '') AS sha256, coalesce(c.sha512, '') AS sha512,
	coalesce((SELECT jsonb_agg(jsonb_build_object('id', s.id, 'target', s.target, 'bucket', s.bucket, 'key', s.key, 'url', s.url, 'etag', s.etag, 'stored_at', s.stored_at)
			ORDER BY s.target)
		FROM storage_records s WHERE s.generic_file_id = f.id), '[]') AS copies
FROM (
	SELECT f.* FROM generic_files f
	WHERE f.identifier > $2 COLLATE "C" AND f.identifier < $3 COLLATE "C"
	  AND f.intellectual_object_id = $1 AND ($4::bigint = 0 OR f.id = $4) AND f.state = 'A'
	ORDER BY f.identifier
	LIMIT $5
) f
CROSS JOIN LATERAL (
	SELECT (array_agg(digest ORDER BY datetime DESC) FILTER (WHERE algorithm = 'md5'))[1] AS md5,
		(array_agg(digest ORDER BY datetime DESC) FILTER (WHERE algorithm = 'sha1'))[1] AS sha1,
		(array_agg(digest ORDER BY datetime DESC) FILTER (WHERE algorithm = 'sha256'))[1] AS sha256,
		(array_agg(digest ORDER BY datetime DESC) FILTER (WHERE algorithm = 'sha512'))[1] AS sha512
	FROM checksums k WHERE k.generic_file_id = f.id
) c
ORDER BY f.identifier`

// Payload counts the active payload files of an object, and their bytes (object_holdings).
func (r *Registry) Payload(ctx context.Context, object int64) (files, bytes int64, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT coalesce(max(payload_files), 0), coalesce(max(payload_bytes), 0) FROM object_holdings WHERE intellectual_object_id = $1`, object).Scan(&files, &bytes)
	if err != nil {
		return 0, 0, fmt.Errorf("count the payload of object %d: %w", object, err)
	}
	return files, bytes, nil
}

// RestoreBucket is the bucket to which what is an institution's is given back.
func (r *Registry) RestoreBucket(ctx context.Context, institution int64) (string, error) {
	return Value[string](ctx, r.db, fmt.Sprintf("look up institution %d", institution), `SELECT restore_bucket FROM institutions WHERE id = $1`, institution)
}

// ObjectByID is [Registry.Object] by the object's id.
func (r *Registry) ObjectByID(ctx context.Context, id int64) (record.Object, error) {
	var identifier string
	if err := r.db.QueryRow(ctx, `SELECT identifier FROM intellectual_objects WHERE id = $1`, id).Scan(&identifier); err != nil {
		return record.Object{}, fmt.Errorf("look up object %d: %w", id, Refusal(err))
	}
	return r.Object(ctx, identifier)
}

// StoredFiles walks the active files of an object in the order of the bytes of
// their identifiers, or one of them if file is not 0. It asks page by page, so that
// who takes days for it keeps no query open.
func (r *Registry) StoredFiles(ctx context.Context, object, file int64) iter.Seq2[StoredFile, error] {
	return r.StoredFilesAfter(ctx, object, file, "")
}

// StoredFilesAfter is [Registry.StoredFiles] from after an identifier on.
func (r *Registry) StoredFilesAfter(ctx context.Context, object, file int64, after string) iter.Seq2[StoredFile, error] {
	return func(yield func(StoredFile, error) bool) {
		const page = 500
		var name string
		if err := r.db.QueryRow(ctx, `SELECT identifier FROM intellectual_objects WHERE id = $1`, object).Scan(&name); err != nil {
			yield(StoredFile{}, fmt.Errorf("look up object %d: %w", object, Refusal(err)))
			return
		}
		end := name + "0" // the byte after the slash
		if after == "" {
			after = name + "/"
		}
		for {
			rows, _ := r.db.Query(ctx, storedFilesSQL, object, after, end, file, page)
			list, err := pgx.CollectRows(rows, pgx.RowToStructByName[StoredFile])
			if err != nil {
				yield(StoredFile{}, fmt.Errorf("list files of %s: %w", name, err))
				return
			}
			for _, f := range list {
				if !yield(f, nil) {
					return
				}
				after = f.Identifier
			}
			if len(list) < page {
				return
			}
		}
	}
}
