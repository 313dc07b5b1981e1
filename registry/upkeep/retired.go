package upkeep

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/registry"
)

// RetiredCopy is a stored copy that a re-ingest has replaced.
type RetiredCopy struct {
	Target string
	Bucket string
	Key    string
}

// RetiredCopies returns what an item has replaced and nobody deleted yet. A key
// that any record still names is not among them.
func (r Records) RetiredCopies(ctx context.Context, item int64) ([]RetiredCopy, error) {
	return registry.Collect[RetiredCopy](ctx, r.db, fmt.Sprintf("list copies that item %d replaced", item), `
		SELECT target, bucket, key FROM retired_copies c
		WHERE work_item_id = $1
		  AND NOT EXISTS (SELECT FROM storage_records s WHERE s.key = c.key AND s.target = c.target)`, item)
}

// retiredSQL forgets replaced copies and says in an event of each what was deleted
// (retired_copies_pkey). Saying it twice is saying it once.
const retiredSQL = `
WITH gone AS (
	DELETE FROM retired_copies WHERE work_item_id = @item AND target = @target AND key = ANY (@keys)
	RETURNING generic_file_id, url, digest, problem
)
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, g.url, 'deletion', g.digest), f.institution_id, f.intellectual_object_id, f.id, 'deletion', now(),
	'Deleted a replaced copy from preservation storage', 'Success', g.url,
	'Work item ' || @item::bigint || ' has replaced this copy. It was on record with ' || coalesce(nullif(g.digest, ''), 'no digest')
		|| CASE g.problem WHEN '' THEN '' ELSE ', and was known to be ' || g.problem END, @remove_object, @remove_agent
FROM gone g JOIN generic_files f ON f.id = g.generic_file_id`

// RecordRetired says that copies in a target, which an item replaced, are deleted.
func (r Records) RecordRetired(ctx context.Context, item int64, target string, keys []string) error {
	args := r.registry.EventArgs()
	args["item"], args["target"], args["keys"] = item, target, keys
	return registry.Do(ctx, r.db, fmt.Sprintf("record that copies replaced by item %d are deleted", item), retiredSQL, args)
}

// ForgetRetiredCopies forgets what is left of the copies that an item replaced:
// those which a record names again, so that they stay.
func (r Records) ForgetRetiredCopies(ctx context.Context, item int64) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("delete the list of copies that item %d replaced", item), `DELETE FROM retired_copies WHERE work_item_id = $1`, item)
}

// CopiesInstead are the copies on record of the file that a replaced copy was of.
func (r Records) CopiesInstead(ctx context.Context, item int64, c RetiredCopy) ([]RetiredCopy, error) {
	return registry.Collect[RetiredCopy](ctx, r.db, "list the copies that replace "+c.Key, `
		SELECT s.target, s.bucket, s.key FROM retired_copies c JOIN storage_records s ON s.generic_file_id = c.generic_file_id
		WHERE c.work_item_id = $1 AND c.target = $2 AND c.key = $3`, item, c.Target, c.Key)
}

// KeepRetired has a replaced copy not be deleted: then nothing on record names it.
func (r Records) KeepRetired(ctx context.Context, item int64, c RetiredCopy) error {
	return registry.Do(ctx, r.db, "keep the copy "+c.Key, `DELETE FROM retired_copies WHERE work_item_id = $1 AND target = $2 AND key = $3`, item, c.Target, c.Key)
}
