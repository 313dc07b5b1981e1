package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// consequences is everything that a transaction has written of items, line by line.
// Times that the transaction set are "now".
const consequences = `
	SELECT 'item ' || (to_jsonb(w) || jsonb_build_object('run_at', CASE WHEN run_at = now() THEN 'now' ELSE run_at::text END,
		'updated_at', CASE WHEN updated_at = now() THEN 'now' ELSE updated_at::text END))::text FROM work_items w
	UNION ALL
	SELECT 'attempt ' || (to_jsonb(a) || jsonb_build_object('ended_at', CASE WHEN ended_at >= now() THEN 'now' ELSE ended_at::text END))::text FROM work_item_attempts a
	UNION ALL
	SELECT 'message ' || concat_ws(' ', topic, body, work_item_id) FROM topic_messages WHERE xid = pg_current_xact_id()
	UNION ALL
	SELECT 'retry ' || concat_ws(' ', topic, work_item_id) FROM topic_retries
	UNION ALL
	SELECT 'audit ' || concat_ws(' ', work_item_id, session_user_is, application_name, person, refused, before - 'run_at' - 'updated_at', after - 'run_at' - 'updated_at')
	FROM work_item_audit WHERE at >= now()
	UNION ALL
	SELECT 'virtual time ' || concat_ws(' ', institution_id, size_band, max(virtual_finish)) FROM institution_virtual_times GROUP BY institution_id, size_band
	UNION ALL
	SELECT 'upload ' || uploads_in_work::text FROM uploads_in_work
	ORDER BY 1`

// engineSQL makes the move of a typed change as the engine makes its own: by
// move_items() instead of the trigger.
const engineSQL = `SELECT move_by_hand(w, jsonb_populate_record(m, CASE WHEN w.status = 'Started'
		THEN jsonb_build_object('ended', 'cancelled', 'end_code', 'by-hand', 'error', m.note) ELSE '{}' END))
	FROM work_items w CROSS JOIN LATERAL %s_by_hand(w, jsonb_populate_record(w, '%s')) m WHERE w.id = $`

// ways are the paths of the same move, by the move.
func ways() map[string]map[string]string {
	ended := func(status string) map[string]string {
		return map[string]string{
			"typed":      fmt.Sprintf(`UPDATE work_items SET status = '%s' WHERE id = $`, status),
			"move_items": fmt.Sprintf(engineSQL, "ended", fmt.Sprintf(`{"status": "%s"}`, status)),
		}
	}
	requeued := func(stage, topic string) map[string]string {
		return map[string]string{
			"typed":         fmt.Sprintf(`UPDATE work_items SET stage = '%s', status = 'Pending' WHERE id = $`, stage),
			"requeue":       fmt.Sprintf(`SELECT requeue($, '%s')`, stage),
			"requeue_where": fmt.Sprintf(`SELECT requeue_where('id = $', '%s', false)`, stage),
			"plan":          fmt.Sprintf(`SELECT plan_apply((plan_make('requeue', 'id = $', '%s')).id)`, stage),
			"topic_request": fmt.Sprintf(`SELECT topic_request('%s', 'message', '$', $, true)`, topic),
			"move_items":    fmt.Sprintf(engineSQL, "requeued", fmt.Sprintf(`{"stage": "%s", "status": "Pending"}`, stage)),
		}
	}
	cancelled := ended("Cancelled")
	cancelled["cancel"] = `SELECT cancel($)`
	cancelled["plan"] = `SELECT plan_apply((plan_make('cancel', 'id = $')).id)`
	return map[string]map[string]string{
		"cancel": cancelled, "fail": ended("Failed"), "suspend": ended("Suspended"),
		"requeue to an earlier stage": requeued("Validate", "ingest02_bag_validation"), "requeue to Receive": requeued("Receive", "ingest01_prefetch"),
	}
}

// written is what a statement writes, which is then undone.
func (a *archive) written(t *testing.T, sql string) string {
	t.Helper()
	tx := must.Get(a.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it is to be undone
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
	rows := must.Get(tx.Query(t.Context(), consequences))(t)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		must.Do(t, rows.Scan(&line))
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Whichever path makes a move, every column of the item, its attempts, messages and
// audit is the same afterwards.
func TestEveryPathMakesTheSameTransition(t *testing.T) {
	t.Parallel()
	for _, state := range states() {
		if state == "Success" || state == "Cancelled" {
			continue // they have ended for good
		}
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.standing(state)
			for move, paths := range ways() {
				if move == "fail" && state == "Failed" || move == "suspend" && state == "Suspended" {
					continue // it stays what it is
				}
				want := a.written(t, strings.ReplaceAll(paths["typed"], "$", fmt.Sprint(id)))
				for path, sql := range paths {
					if path == "move_items" && strings.HasPrefix(move, "requeue") && (state == "Failed" || state == "Suspended") {
						continue // only a person revives an upload, and only triggers write uploads_in_work
					}
					if diff := cmp.Diff(want, a.written(t, strings.ReplaceAll(sql, "$", fmt.Sprint(id)))); diff != "" {
						t.Errorf("%s by %s (-typed +%s):\n%s", move, path, path, diff)
					}
				}
			}
		})
	}
}
