package browse

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/requests"
)

// deletionReviewSQL reads what a request names (deletion_requests_*_pkey), what its objects
// have (object_holdings), and what ended of them (work_items_archive_object, work_items_ended,
// work_items_requests).
const deletionReviewSQL = `
WITH asked AS MATERIALIZED (
	SELECT d.* FROM deletion_requests d WHERE %s
), objects AS MATERIALIZED (
	SELECT o.id, o.identifier, o.state FROM asked d
	JOIN deletion_requests_intellectual_objects n ON n.deletion_request_id = d.id JOIN intellectual_objects o ON o.id = n.intellectual_object_id
), files AS MATERIALIZED (
	SELECT f.id, f.size, f.state, o.identifier AS object FROM asked d
	JOIN deletion_requests_generic_files n ON n.deletion_request_id = d.id JOIN generic_files f ON f.id = n.generic_file_id
	JOIN intellectual_objects o ON o.id = f.intellectual_object_id
), sums AS MATERIALIZED (
	SELECT coalesce(sum(files), 0)::bigint AS files, coalesce(sum(bytes), 0)::bigint AS bytes FROM (
		SELECT h.files, h.bytes FROM objects o JOIN object_holdings h ON h.intellectual_object_id = o.id
		UNION ALL
		SELECT 1, f.size FROM files f WHERE f.state = 'A') h
), refused AS MATERIALIZED (
	SELECT u.* FROM (%s) u
	WHERE (SELECT num_nonnulls(approved_at, cancelled_at) = 0 FROM asked)
), names AS MATERIALIZED (
	SELECT identifier FROM objects UNION SELECT object FROM files
), ended AS MATERIALIZED (
	SELECT w.id AS item, w.action, w.object_identifier, w.updated_at AS at
	FROM names n JOIN work_items_archive w ON w.object_identifier = n.identifier
	WHERE w.status = 'Success' AND w.action IN ('Ingest', 'Restore Object', 'Restore File')
	UNION ALL
	SELECT w.id, w.action, w.object_identifier, w.updated_at
	FROM asked d JOIN work_items w ON w.status IN ('Success', 'Cancelled') AND w.updated_at > d.requested_at
	WHERE w.action = 'Ingest' AND w.status = 'Success' AND w.object_identifier IN (SELECT identifier FROM names)
	UNION ALL
	SELECT w.id, w.action, w.object_identifier, w.updated_at
	FROM names n JOIN work_items w ON w.object_identifier = n.identifier AND w.action <> 'Ingest'
	WHERE w.status = 'Success' AND w.action IN ('Restore Object', 'Restore File')
)
SELECT s.files, s.bytes,
	CASE WHEN s.files <= 10000 THEN (
		SELECT count(*) FROM (
			SELECT f.id FROM objects o JOIN generic_files f ON f.intellectual_object_id = o.id WHERE f.state = 'A'
			UNION
			SELECT f.id FROM files f WHERE f.state = 'A') f
		JOIN storage_records c ON c.generic_file_id = f.id) END AS copies,
	coalesce((SELECT jsonb_agg(to_jsonb(u)) FROM (SELECT * FROM refused ORDER BY identifier LIMIT 100) u), '[]') AS refused,
	(SELECT count(*) FROM refused) AS refused_count,
	(SELECT count(*) FROM objects WHERE state = 'D') + (SELECT count(*) FROM files WHERE state = 'D') AS gone,
	coalesce((SELECT jsonb_agg(to_jsonb(e)) FROM (
		SELECT * FROM ended WHERE action = 'Ingest' AND at > d.requested_at ORDER BY at DESC LIMIT 20) e), '[]') AS ingested,
	coalesce((SELECT jsonb_agg(to_jsonb(e)) FROM (
		SELECT * FROM ended WHERE action <> 'Ingest' ORDER BY at DESC LIMIT 20) e), '[]') AS restored
FROM asked d CROSS JOIN sums s`

// DeletionReview looks at what a deletion request names as it is now, or returns
// [registry.ErrNotFound]. The error is [ErrTooBroad] if it takes too long.
func (r Records) DeletionReview(ctx context.Context, id int64) (record.DeletionReview, error) {
	q := in(r.scope, "", "read what the request names in pages")
	q.where(`d.id = @deletion`, "deletion", id)
	q.within(`d.institution_id`)
	q.sql = fmt.Sprintf(deletionReviewSQL, q.all(), requests.UndeletableSQL)
	return one[record.DeletionReview](ctx, r, fmt.Sprintf("deletion request %d", id), q)
}
