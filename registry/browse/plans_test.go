package browse_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// large are the tables that no list may read from end to end.
var large = regexp.MustCompile(`Seq Scan on (work_items|work_items_archive|intellectual_objects|generic_files|file_digests|storage_records|event_records\w*|uploads_in_work|plan_items)\b`)

// Each leading filter has its index, also in a plan that is made once for all values.
func TestEachListHasItsIndex(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	must.Get(a.db.Exec(t.Context(), `
		CREATE TEMPORARY TABLE archived (LIKE work_items INCLUDING DEFAULTS);
		INSERT INTO archived (id, institution_id, size, bag_date, retry, stage, status, name, etag, bucket, action, object_identifier)
		SELECT 20000 + n, 1 + h(n, 1, 2), 1, now(), false, 'Cleanup', CASE WHEN n % 100 = 0 THEN 'Cancelled' ELSE 'Success' END, 'bag' || n || '.tar', 'e', 'b', 'Ingest', 'test.edu/bag' || n
		FROM generate_series(1, 40000) n;
		INSERT INTO work_items_archive SELECT * FROM archived;
		INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url)
		SELECT 20000 + n % 50, f.id, 'T', 'b', 'k' || n, 'u' FROM generate_series(1, 200) n CROSS JOIN (SELECT id FROM generic_files ORDER BY id LIMIT 50) f;
		INSERT INTO deletion_requests (institution_id, requested_by) SELECT institution_id, requested_by FROM deletion_requests, generate_series(1, 10);
		INSERT INTO deletion_requests_intellectual_objects
		SELECT d.id, o.id FROM (SELECT id FROM deletion_requests ORDER BY id DESC LIMIT 10) d CROSS JOIN (SELECT id FROM intellectual_objects ORDER BY id LIMIT 1000) o ON CONFLICT DO NOTHING;
		INSERT INTO deletion_requests_generic_files
		SELECT d.id, f.id FROM (SELECT id FROM deletion_requests ORDER BY id DESC LIMIT 10) d CROSS JOIN (SELECT id FROM generic_files ORDER BY id LIMIT 1000) f ON CONFLICT DO NOTHING;
		ANALYZE`))(t)
	own := registry.Only(a.ins[1])
	day := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	digest := strings.Repeat("ab", 32)
	status := func(list ...registry.Status) browse.ItemFilter {
		return browse.ItemFilter{ItemFilter: record.ItemFilter{Status: list}}
	}
	for _, tc := range []struct {
		filter browse.Filter
		scope  registry.Scope
		want   string // names of indexes
	}{
		{browse.ItemFilter{}, registry.Everything(), "work_items_pkey work_items_archive_pkey"},
		{browse.ItemFilter{}, own, "work_items_pkey work_items_ended_bag one_live_ingest work_items_requests work_items_archive_institution"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Institution: "test.edu"}}, registry.Everything(), "work_items_ended_bag one_live_ingest work_items_archive_institution"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Name: "bag1.tar"}}, registry.Everything(), "work_items_ended_bag one_live_ingest work_items_requests work_items_archive_name"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Name: "bag1.tar"}}, own, "work_items_ended_bag one_live_ingest work_items_archive_name"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Object: "test.edu/bag1"}}, registry.Everything(), "work_items_ended_object one_live_ingest work_items_requests work_items_archive_object"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Review: true}}, registry.Everything(), "work_items_review work_items_archive_review"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Review: true}}, own, "work_items_review work_items_archive_institution_review"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Worker: "w1"}}, registry.Everything(), "work_items_lease"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Plan: 1}}, registry.Everything(), "plan_items_pkey work_items_pkey work_items_archive_pkey"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Deletion: 1}}, registry.Everything(), "work_items_deletion work_items_archive_deletion"},
		{status("Failed", "Suspended"), registry.Everything(), "work_items_review"},
		{status("Started"), registry.Everything(), "work_items_lease"},
		{status("Failed", "Started"), own, "work_items_review work_items_lease"},
		{status("Cancelled"), registry.Everything(), "work_items_pkey work_items_archive_unsuccessful"},
		{status("Cancelled"), own, "work_items_ended_bag work_items_archive_institution_unsuccessful"},
		{status("Pending"), registry.Everything(), "work_items_pkey"},
		{status("Pending"), own, "work_items_pkey one_live_ingest work_items_requests"},
		{status("Success"), registry.Everything(), "work_items_pkey work_items_archive_pkey"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Action: []registry.Action{"Restore File"}}}, registry.Everything(), "work_items_requests work_items_archive_requests"},
		{browse.ItemFilter{ItemFilter: record.ItemFilter{Action: []registry.Action{"Restore File"}}}, own, "work_items_requests work_items_archive_institution_requests"},

		{browse.ObjectFilter{}, registry.Everything(), "intellectual_objects_pkey"},
		{browse.ObjectFilter{}, own, "intellectual_objects_of_institution"},
		{browse.ObjectFilter{ObjectFilter: record.ObjectFilter{Identifier: "x"}}, registry.Everything(), "intellectual_objects_identifier_key|intellectual_objects_bytes"},
		{browse.ObjectFilter{ObjectFilter: record.ObjectFilter{Prefix: "x"}}, registry.Everything(), "intellectual_objects_bytes"},
		{browse.ObjectFilter{ObjectFilter: record.ObjectFilter{Prefix: "x"}}, own, "intellectual_objects_bytes"},
		{browse.ObjectFilter{ObjectFilter: record.ObjectFilter{UpdatedAfter: day}}, registry.Everything(), "intellectual_objects_updated"},
		{browse.ObjectFilter{ObjectFilter: record.ObjectFilter{UpdatedBefore: day}}, own, "intellectual_objects_updated"},

		{browse.FileFilter{}, own, "generic_files_identifier_key"},
		{browse.FileFilter{ObjectID: 1}, registry.Everything(), "generic_files_identifier_key"},
		{browse.FileFilter{FileFilter: record.FileFilter{Object: "x"}}, registry.Everything(), "generic_files_identifier_key"},
		{browse.FileFilter{FileFilter: record.FileFilter{Prefix: "x"}}, registry.Everything(), "generic_files_identifier_key"},
		{browse.FileFilter{FileFilter: record.FileFilter{UUID: "00000000-0000-4000-8000-000000000000"}}, registry.Everything(), "generic_files_uuid_key"},
		{browse.FileFilter{FileFilter: record.FileFilter{Digest: digest}}, registry.Everything(), "file_digests_sha256 generic_files_pkey"},
		{browse.FileFilter{FileFilter: record.FileFilter{Digest: digest[:32]}}, own, "file_digests_md5 generic_files_pkey"},

		{browse.ChecksumFilter{File: 1}, registry.Everything(), "file_digests_file"},
		{browse.ChecksumFilter{Digest: digest}, own, "file_digests_sha256"},
		{browse.CopyFilter{File: 1}, own, "storage_records_generic_file_id_url_key"},

		{browse.EventFilter{EventFilter: record.EventFilter{Object: 1}}, registry.Everything(), "event_records_\\d+_intellectual_object_id_idx"},
		{browse.EventFilter{EventFilter: record.EventFilter{File: 1}}, own, "event_records_\\d+_generic_file_id_key_key"},
		{browse.EventFilter{EventFilter: record.EventFilter{Failed: true}}, registry.Everything(), "event_records_\\d+_notable"},
		{browse.EventFilter{EventFilter: record.EventFilter{Type: "deletion"}}, own, "event_records_\\d+_notable"},
		{browse.EventFilter{EventFilter: record.EventFilter{RecordedAfter: day, RecordedBefore: day.AddDate(0, 0, 31)}}, registry.Everything(), "event_records_\\d+_recorded"},
		{browse.EventFilter{EventFilter: record.EventFilter{RecordedAfter: day, RecordedBefore: day.AddDate(0, 0, 31)}}, own, "event_records_\\d+_recorded"},

		{browse.DeletionFilter{}, own, "deletion_requests_institution"},
		{browse.AlertFilter{}, own, "alerts_institution"},
		{browse.NamedFilter{Deletion: 1}, own, "deletion_requests_intellectual_objects_pkey deletion_requests_generic_files_pkey"},
		{browse.ReceiptFilter{Deletion: 1}, own, "work_items_deletion work_items_archive_deletion deletion_receipts_pkey"},
	} {
		for _, after := range []browse.Key{{}, {ID: 5000, Of: 100, At: day, Identifier: "test.edu/bag5"}} {
			plan := a.plan(browse.Statement, tc.filter, tc.scope, after)
			whole := a.plan(browse.FlatStatement, tc.filter, tc.scope, after)
			if found := large.FindString(whole); found != "" {
				t.Errorf("%T%+v in %+v after %+v with what the rows refer to: %s\n%s", tc.filter, tc.filter, tc.scope, after, found, whole)
			}
			for _, index := range strings.Fields(tc.want) {
				if !regexp.MustCompile(`(using|on) (` + index + `)\b`).MatchString(whole) {
					t.Errorf("%T%+v in %+v after %+v does not use %s with what the rows refer to:\n%s", tc.filter, tc.filter, tc.scope, after, index, whole)
				}
			}
			if found := large.FindString(plan); found != "" {
				t.Errorf("%T%+v in %+v after %+v: %s\n%s", tc.filter, tc.filter, tc.scope, after, found, plan)
			}
			for _, index := range strings.Fields(tc.want) {
				if !regexp.MustCompile(`(using|on) (` + index + `)\b`).MatchString(plan) {
					t.Errorf("%T%+v in %+v after %+v does not use %s:\n%s", tc.filter, tc.filter, tc.scope, after, index, plan)
				}
			}
		}
	}
}

// plan is how a statement is planned for all values.
func (a *archive) plan(
	statement func(browse.Filter, registry.Scope, browse.Key) (string, pgx.NamedArgs, []any, error), f browse.Filter, s registry.Scope, after browse.Key,
) (plan string) {
	a.t.Helper()
	sql, named, settings, err := statement(f, s, after)
	if err != nil {
		a.t.Fatal(err)
	}
	must.Do(a.t, pgx.BeginFunc(context.Background(), a.db, func(tx pgx.Tx) error {
		sql, args, err := named.RewriteQuery(context.Background(), tx.Conn(), sql, nil)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(context.Background(), browse.SettingsSQL, settings...); err != nil {
			return err
		}
		if _, err := tx.Prepare(context.Background(), "planned", sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		defer tx.Conn().Deallocate(context.Background(), "planned")
		var values []string
		for i := range args {
			values = append(values, fmt.Sprintf("$%d", i+1))
		}
		r, _ := tx.Query(context.Background(), `EXPLAIN EXECUTE planned(`+strings.Join(values, ", ")+`)`, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		lines, err := pgx.CollectRows(r, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	}))
	return plan
}
