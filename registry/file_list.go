package registry

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// FileFilter narrows a list of an object's files. Empty fields do not.
type FileFilter struct {
	Object string // identifier
	State  string // A or D
	After  string // only files whose identifier comes after, for the next page
	Limit  int
}

// ListedFile is a file in a list.
type ListedFile struct {
	ID         int64      `json:"id"`
	Identifier string     `json:"identifier"`
	State      string     `json:"state"` // A or D
	Size       int64      `json:"size"`
	FileFormat string     `json:"file_format"`
	FormatPUID string     `json:"format_puid" db:"format_puid"`
	Copies     int64      `json:"copies"`
	NeverRead  int64      `json:"never_read"`   // of these
	Bad        int64      `json:"bad"`          // of these
	LastReadAt *time.Time `json:"last_read_at"` // the oldest of the copies' last checks; nil: none was read
}

// filesSQL walks the files of an object in the order of their identifiers, which are
// together: a slash comes before 0 (generic_files_identifier_key).
const filesSQL = `
WITH page AS MATERIALIZED (
	SELECT f.id, f.identifier, f.state, f.size, f.file_format, f.format_puid
	FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id
	WHERE o.identifier = @object AND f.identifier > @object || '/' AND f.identifier < @object || '0'
	  AND (@state = '' OR f.state = @state)
	  AND f.identifier > @after
	ORDER BY f.identifier
	LIMIT @n
)
SELECT p.*, c.copies, c.never_read, c.bad, c.last_read_at
FROM page p CROSS JOIN LATERAL (
	SELECT count(*) AS copies, count(*) FILTER (WHERE s.last_fixity_at IS NULL) AS never_read, min(s.last_fixity_at) AS last_read_at,
		count(*) FILTER (WHERE EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')) AS bad
	FROM storage_records s WHERE s.generic_file_id = p.id
) c
ORDER BY p.identifier`

// Files lists files of an object in the order of their identifiers.
func (r *Registry) Files(ctx context.Context, f FileFilter) ([]ListedFile, error) {
	return Collect[ListedFile](ctx, r.db, "list the files of "+f.Object, filesSQL, pgx.NamedArgs{
		"object": f.Object, "state": f.State, "after": f.After, "n": f.Limit,
	})
}
