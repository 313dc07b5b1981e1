package registry_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// invariantsSQL finds what must not be, no matter who wrote it: a row for each item, or
// setting, with what is wrong about it.
const invariantsSQL = `
WITH live AS (SELECT * FROM work_items WHERE status IN ('Pending', 'Started')),
open AS (SELECT * FROM work_item_attempts WHERE ended_at IS NULL)
SELECT what || ': ' || item FROM (
	SELECT 'no worker comes to its stage', id FROM live w
		WHERE NOT EXISTS (SELECT FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage)
	UNION ALL SELECT 'live or not, retry says otherwise', id FROM work_items WHERE retry <> (status IN ('Pending', 'Started'))
	UNION ALL SELECT 'waits for nothing, for ever', id FROM work_items WHERE waits_for IS NULL AND run_at = 'infinity'
	UNION ALL SELECT 'waits for what has ended', id FROM work_items w
		WHERE waits_for IS NOT NULL AND NOT EXISTS (SELECT FROM live o WHERE o.id = w.waits_for)
	UNION ALL SELECT 'is waited for by two', waits_for FROM work_items WHERE waits_for IS NOT NULL GROUP BY waits_for HAVING count(*) > 1
	UNION ALL SELECT 'goes beside another of its object', min(id) FROM live
		WHERE action = 'Ingest' AND waits_for IS NULL GROUP BY object_identifier HAVING count(*) > 1
	UNION ALL SELECT 'waits in a circle', min(id) FROM live
		WHERE action = 'Ingest' GROUP BY object_identifier HAVING count(*) FILTER (WHERE waits_for IS NULL) = 0
	UNION ALL SELECT 'runs, and has no open attempt of its token', id FROM work_items w WHERE status = 'Started'
		AND NOT EXISTS (SELECT FROM open a WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token)
	UNION ALL SELECT 'an attempt is open that does not run', work_item_id FROM open a
		WHERE NOT EXISTS (SELECT FROM work_items w WHERE w.id = a.work_item_id AND w.claim_token = a.claim_token AND w.status = 'Started')
	UNION ALL SELECT 'has a lease that never lapses', id FROM work_items WHERE lease_expires_at > now() + interval '100 days'
	UNION ALL SELECT 'an attempt has a later token', work_item_id FROM work_item_attempts a JOIN work_items w ON w.id = a.work_item_id
		WHERE a.claim_token > w.claim_token
	UNION ALL SELECT 'came to its stage later than now', id FROM work_items WHERE entered_token > claim_token
	UNION ALL SELECT 'is in the wrong band', id FROM work_items w
		WHERE size_band <> (SELECT max(band) FROM size_bands WHERE min_size <= w.size)
	UNION ALL SELECT 'has a turn that its institution has not come to', id FROM work_items w
		WHERE virtual_start >= (SELECT max(virtual_finish) FROM institution_virtual_times t WHERE t.institution_id = w.institution_id)
	UNION ALL SELECT 'succeeded, and not at the end', id FROM work_items WHERE status = 'Success' AND stage <> 'Cleanup'
	UNION ALL SELECT 'a paused stage does not say by whom', ordinal FROM stage_settings WHERE paused <> (paused_by IS NOT NULL AND paused_at IS NOT NULL)
	UNION ALL SELECT 'a stage is not what it was', 14 - count(*) FROM stage_settings WHERE (stage, ordinal) IN (
		('Receive', 1), ('Validate', 2), ('Reingest Check', 3), ('Copy To Staging', 4), ('Format Identification', 5),
		('Store', 6), ('Storage Validation', 7), ('Record', 8), ('Cleanup', 9), ('Requested', 1)) HAVING count(*) <> 14
) AS wrong (what, item)`

// fit fails the test if the queue is in a state in which it must not be.
func (a *archive) fit(t rapid.TB, after string) {
	t.Helper()
	ctx := context.Background()
	rows, _ := a.db.Query(ctx, invariantsSQL)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(wrong) > 0 {
		t.Fatalf("after %s: %v, %q", after, err, wrong)
	}
}

// seen fails the test if anything that administrators look at can no longer be
// looked at.
func (a *archive) seen(t rapid.TB, after string) {
	t.Helper()
	ctx := context.Background()
	for _, view := range []string{"queue_depth", "running", "needs_review", "failed", "outcomes", "workers", "attempts", "all_work_items"} {
		if _, err := a.db.Exec(ctx, `SELECT * FROM `+view); err != nil {
			t.Fatalf("after %s: %s: %v", after, view, err)
		}
	}
	if _, err := a.db.Exec(ctx, `SELECT * FROM work_items, why_not(id)`); err != nil {
		t.Fatalf("after %s: why_not: %v", after, err)
	}
}

// frozen is what never changes of the items, however often someone tries, and
// their tokens, which only grow.
func (a *archive) frozen(t rapid.TB) (identities map[int64]string, tokens map[int64]int64) {
	t.Helper()
	identities, tokens = map[int64]string{}, map[int64]int64{}
	rows, _ := a.db.Query(context.Background(), `
		SELECT id, concat_ws('|', institution_id, action, name, bucket, etag, object_identifier, bag_date), claim_token FROM work_items`)
	var id, token int64
	var identity string
	must.Get(pgx.ForEachRow(rows, []any{&id, &identity, &token}, func() error {
		identities[id], tokens[id] = identity, token
		return nil
	}))(t)
	return identities, tokens
}
