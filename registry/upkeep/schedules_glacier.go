package upkeep

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// WaitingRetrieval is an item that waits until its provider has made archived
// copies readable, and the last file that it asked for.
type WaitingRetrieval struct {
	Item, Token int64
	Class       string // storage class that its copies are in
	Rested      bool   // it was not woken for as long as is between two polls of its own
	File        string // identifier
	Copies      []record.StoredCopy
}

// waitingRetrievalsSQL finds those that a poll of theirs has put off
// (work_items_requested), not those that wait after a failure.
const waitingRetrievalsSQL = `
SELECT w.id AS item, w.claim_token AS token, q.storage_class AS class,
	coalesce(q.woken_at < now() - coalesce(p.poll, interval '1 hour'), true) AS rested,
	f.identifier AS file,
	coalesce((SELECT jsonb_agg(jsonb_build_object('target', s.target, 'bucket', s.bucket, 'key', s.key, 'url', s.url) ORDER BY s.target)
		FROM storage_records s WHERE s.generic_file_id = f.id), '[]') AS copies
FROM work_items w
JOIN retrievals q ON q.work_item_id = w.id
LEFT JOIN retrieval_prices p ON p.storage_class = q.storage_class AND p.tier = q.tier
JOIN intellectual_objects o ON o.id = w.intellectual_object_id
CROSS JOIN LATERAL (
	(SELECT f.id, f.identifier FROM generic_files f
	WHERE f.id = w.generic_file_id)
	UNION ALL
	(SELECT f.id, f.identifier FROM generic_files f -- generic_files_identifier_key
	WHERE w.generic_file_id IS NULL AND f.state = 'A' AND f.intellectual_object_id = o.id
	  AND f.identifier > (o.identifier || '/') COLLATE "C" AND f.identifier < (o.identifier || '0') COLLATE "C"
	ORDER BY f.identifier DESC
	LIMIT 1)
) f
WHERE w.action = 'Glacier Restore' AND w.stage = 'Requested' AND w.status = 'Pending' AND w.retry
  AND w.run_at > now() AND w.waits_for IS NULL AND w.error_code = 'snoozed' AND w.id > $1
ORDER BY w.id
LIMIT $2`

// WaitingRetrievals returns up to n items, after one, that wait for their provider.
func (r Records) WaitingRetrievals(ctx context.Context, after int64, n int) ([]WaitingRetrieval, error) {
	return registry.Collect[WaitingRetrieval](ctx, r.db, "list items that wait for their provider", waitingRetrievalsSQL, after, n)
}

// WakeRetrieval has an item that waits for its provider taken up now, unless
// someone has had it since it was listed.
func (r Records) WakeRetrieval(ctx context.Context, w WaitingRetrieval) (bool, error) {
	return registry.Value[bool](ctx, r.db, fmt.Sprintf("wake item %d", w.Item), `SELECT wake_retrieval($1, $2)`, w.Item, w.Token)
}
