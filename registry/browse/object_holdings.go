package browse

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/record"
)

// objectHoldingsSQL reads up to 10,000 files of an object (generic_files_object) and their copies
// (storage_records_generic_file_id_url_key).
const objectHoldingsSQL = `
WITH found AS MATERIALIZED (
	SELECT f.* FROM generic_files f WHERE %s LIMIT 10001
), files AS MATERIALIZED (
	SELECT * FROM found WHERE state = 'A' AND (SELECT count(*) FROM found) <= 10000
)
SELECT (SELECT count(*) FROM found) <= 10000 AS counted,
	coalesce((
		SELECT jsonb_agg(to_jsonb(t) ORDER BY t.target) FROM (
			SELECT s.target, count(*) AS copies, sum(f.size)::bigint AS bytes, count(*) FILTER (WHERE s.last_fixity_at IS NULL) AS never_read,
				min(s.last_fixity_at) AS last_read_at
			FROM files f JOIN storage_records s ON s.generic_file_id = f.id GROUP BY s.target) t), '[]') AS targets,
	coalesce((
		SELECT jsonb_agg(to_jsonb(t) ORDER BY t.files DESC, t.format_puid, t.file_format) FROM (
			SELECT f.format_puid, f.format_name, f.file_format, count(*) AS files, sum(f.size)::bigint AS bytes
			FROM files f GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 3 LIMIT 100) t), '[]') AS formats`

// ObjectHoldings counts the files of an object by format and their copies by target. The
// error is [ErrTooBroad] if it takes too long.
func (r Records) ObjectHoldings(ctx context.Context, object int64) (record.ObjectHoldings, error) {
	q := in(r.scope, "", "read the object's files in pages")
	q.where(`f.intellectual_object_id = @id`, "id", object)
	q.within(`f.institution_id`)
	q.sql = fmt.Sprintf(objectHoldingsSQL, q.all())
	return one[record.ObjectHoldings](ctx, r, fmt.Sprintf("what is kept of object %d", object), q)
}
