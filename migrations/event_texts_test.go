package migrations_test

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose runs on
	"github.com/pressly/goose/v3"

	"github.com/farol-preservation/farol/migrations"
)

// at is a database with the migrations up to one, as its owner sees it.
func at(t *testing.T, version int64) string {
	t.Helper()
	owner, _ := empty(t)
	db, err := sql.Open("pgx", owner)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the test ends with it
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return owner
}

// earlier are rows as Farol wrote them before migration 112, with texts that a dictionary might
// mistake for something else.
const earlier = `
INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's');
INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag) VALUES (1, 'test.edu/bag', 'T', 'bag', 'p', 'e');
INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
	SELECT 1, 1, 'test.edu/bag/data/%f' || n, md5(n::text)::uuid, 'text/plain', n, 'Standard', now() FROM generate_series(1, 20) n;
INSERT INTO checksums (generic_file_id, algorithm, digest, datetime)
	SELECT f.id, a.name, left(repeat(md5(f.id::text), 4), a.length), '2026-01-01'
	FROM generic_files f CROSS JOIN LATERAL (VALUES ('md5', 32), ('sha1', 40), ('sha256', 64), ('sha512', 128)) a (name, length);
INSERT INTO checksums (generic_file_id, algorithm, digest, datetime, updated_at)
	SELECT f.id, 'sha256', repeat('ab', 32), '2026-02-01', now() + interval '1 hour' FROM generic_files f;
UPDATE checksums SET datetime = datetime + interval '1 day' WHERE id % 7 = 0;
DELETE FROM checksums WHERE id % 11 = 0;
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome, outcome_detail,
	outcome_information, object, agent)
	SELECT gen_random_uuid(), 1, 1, nullif(f.id, 20), e.type, now() - n * interval '1 second', e.detail, 'Success', t.text, i.text, 'Farol ' || n % 3, 'https://example.org/%f'
	FROM generic_files f
	CROSS JOIN LATERAL (VALUES ('fixity check', 'Fixity check against registered hash'), ('format identification', 'Identified file format'),
		('ingestion', 'Completed copy to preservation storage (' || f.uuid || ')'), ('deletion', '100% %u'), ('replication', 'A %u of %p')) e (type, detail)
	CROSS JOIN LATERAL unnest(ARRAY['', '%', '%t01', f.identifier, 'https://h%/' || f.uuid, f.uuid::text, 'sha256:' || repeat('ab', 32), 'md5:AB', E'a\nb', 'plain'])
		WITH ORDINALITY t (text, n)
	CROSS JOIN LATERAL unnest(ARRAY['', 'Fixity matches', '%p', 'Fixity matches at https://h%/' || f.uuid || ': ' || repeat('ab', 32),
		'Fixity matches at https://h/' || f.uuid || ': none']) i (text);
UPDATE premis_events SET updated_at = now() + interval '1 hour' WHERE id % 5 = 0;
CREATE TABLE kept_events AS SELECT * FROM premis_events;
CREATE TABLE kept_checksums AS SELECT * FROM checksums`

// Rows that are there when events get a dictionary read as before, with their ids,
// identifiers and times, and what comes next has higher ids.
func TestEarlierEventsReadAsBefore(t *testing.T) {
	t.Parallel()
	owner := at(t, 110)
	c := connect(t, owner)
	defer c.Close(context.Background()) //nolint:errcheck // the database goes with the test
	exec(t, c, earlier)
	if err := migrations.Up(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if n := list(t, c, `SELECT id::text FROM event_texts WHERE (id < 0) <> (outcome = 'Failure' OR event_type = 'deletion')
		UNION ALL SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`); len(n) > 0 {
		t.Errorf("texts or indexes that are not as migration 114 makes them: %q", n)
	}
	for view, kept := range map[string]string{"premis_events": "kept_events", "checksums": "kept_checksums"} {
		want := list(t, c, `SELECT k::text FROM `+kept+` k ORDER BY id`)
		got := list(t, c, `SELECT v::text FROM `+view+` v ORDER BY id`)
		if len(want) < 50 || !slices.Equal(want, got) {
			for i := range min(len(want), len(got)) {
				if want[i] != got[i] {
					t.Fatalf("%s: %d rows, want %d; the first that differs is\n%s\nand was\n%s", view, len(got), len(want), got[i], want[i])
				}
			}
			t.Fatalf("%s: %d rows, want %d", view, len(got), len(want))
		}
	}
	if n := value[int](t, c, `SELECT count(*) FROM event_texts`); n > 300 {
		t.Errorf("%d texts: what differs from file to file is in the dictionary", n)
	}
	last := value[int64](t, c, `SELECT max(id) FROM premis_events`)
	exec(t, c, `INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, event_type, date_time, detail, outcome, outcome_detail,
		outcome_information, object, agent) VALUES (gen_random_uuid(), 1, 1, 'creation', now(), 'd', 'Success', '', '', '', '')`)
	if next := value[int64](t, c, `SELECT max(id) FROM premis_events`); next <= last {
		t.Errorf("the next event is %d, after %d", next, last)
	}
	if n := value[int](t, c, `SELECT count(*) FROM file_digests WHERE num_nonnulls(md5, sha1, sha256, sha512) > 2`); n < 10 {
		t.Errorf("digests of %d files were put together, want those of most", n)
	}
}
