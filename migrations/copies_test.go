package migrations_test

import (
	"strings"
	"testing"
)

// before28 is an archive as it was: one copy that nobody has read, one that was read, a
// bad one, one that was replaced while it was bad, one of a deleted file, and an item that
// was called off.
const before28 = `
INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore');
INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
	VALUES (1, 'test.edu/bag', 'T', 'bag', 'p', 'e');
INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, state, last_fixity_check)
	SELECT 1, 1, 'test.edu/bag/' || n, gen_random_uuid(), 'text/plain', 1, 'Standard', CASE n WHEN 'deleted' THEN 'D' ELSE 'A' END, '2026-01-01'
	FROM unnest(ARRAY['unread', 'read', 'bad', 'replaced', 'deleted']) n;
INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at)
	SELECT id, 'https://' || identifier, 'Standard-VA', 'va', uuid::text, '2026-01-02', '2026-01-03',
		CASE WHEN identifier LIKE '%/unread' THEN '2026-01-01' ELSE '2026-03-01' END::timestamptz
	FROM generic_files WHERE identifier NOT LIKE '%/deleted';
INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at)
	SELECT CASE WHEN f.identifier LIKE '%/bad' THEN s.id END, f.id, 'Standard-VA', 'AWS', 'u', 'altered', 'sha256', 'x', '2026-03-01', '2026-03-01'
	FROM generic_files f LEFT JOIN storage_records s ON s.generic_file_id = f.id WHERE f.identifier ~ '/(bad|replaced|deleted)$';
INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, note, outcome)
	VALUES (1, 'Ingest', 'Receive', 'off.tar', 'receiving', 'e2', 1, now(), 'n', 'Item is pending ingest');
SELECT cancel(id) FROM work_items;`

// What is on record of copies of before says no more than what was seen, and
// what was due is due at the same time as it was.
func TestCopiesOfBeforeAreTruthful(t *testing.T) {
	p, c := migrated(t)
	if _, err := p.DownTo(t.Context(), 27); err != nil {
		t.Fatal(err)
	}
	exec(t, c, before28)
	for _, try := range []string{"up", "down and up again"} {
		if _, err := p.UpTo(t.Context(), 28); err != nil {
			t.Fatal(try, err)
		}
		got := value[string](t, c, `SELECT string_agg(concat_ws(' ', split_part(f.identifier, '/', 3), coalesce(s.last_fixity_at::date::text, 'never'), s.fixity_from::date, s.verified_by), ', ' ORDER BY f.id)
			FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id`)
		if want := "unread never 2026-01-01 , read 2026-03-01 2026-03-01 , bad 2026-03-01 2026-03-01 , replaced 2026-03-01 2026-03-01 "; got != want {
			t.Errorf("%s: copies: %s\nwant %s", try, got, want)
		}
		got = value[string](t, c, `SELECT string_agg(split_part(f.identifier, '/', 3) || ' ' || b.state, ', ' ORDER BY f.id) FROM fixity_failures b JOIN generic_files f ON f.id = b.generic_file_id`)
		if want := "bad open, replaced replaced, deleted deleted"; got != want && !strings.Contains(try, "again") {
			t.Errorf("%s: failures: %s, want %s", try, got, want)
		}
		if got := value[string](t, c, `SELECT outcome FROM work_items`); got != "Ingest was cancelled" {
			t.Errorf("%s: outcome = %q", try, got)
		}
		if _, err := p.DownTo(t.Context(), 27); err != nil {
			t.Fatal(try, err)
		}
	}
}
