package migrations_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// twentyFiles are on record, without copies.
const twentyFiles = `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's');
	INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag) VALUES (1, 'test.edu/bag', 'T', 'bag', 'p', 'e');
	INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT 1, 1, 'test.edu/bag/' || n, md5(n::text)::uuid, 'text/plain', n, 'Standard', now() FROM generate_series(1, 20) n`

// copyAt records a copy at a URL that ends with the uuid of the first file.
const copyAt = `INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
	SELECT f.id, $1 || f.uuid, 't', 'b', f.uuid, now(), now() FROM generic_files f WHERE f.id = 1`

// Migration 160 lets copies be recorded that are reached over plain HTTP, and nothing else that
// was refused. What is on record stays as it is.
func TestCopiesOverPlainHTTPAreRecorded(t *testing.T) {
	t.Parallel()
	owner := at(t, 157)
	c := connect(t, owner)
	defer c.Close(context.Background()) //nolint:errcheck // the database goes with the test
	exec(t, c, twentyFiles)
	records := func(before string) error {
		_, err := c.Exec(t.Context(), copyAt, before)
		return err
	}
	refused := func(before string) {
		t.Helper()
		var pg *pgconn.PgError
		if err := records(before); !errors.As(err, &pg) || pg.ConstraintName != "storage_records_url_check" {
			t.Errorf("a copy at %s: %v", before, err)
		}
	}
	if err := records("https://host/b/"); err != nil {
		t.Fatal(err)
	}
	refused("http://host/b/")
	kept := list(t, c, `SELECT s::text FROM storage_records s`)
	up(t, owner)
	if got := list(t, c, `SELECT s::text FROM storage_records s`); len(kept) != 1 || !slices.Equal(got, kept) {
		t.Errorf("on record are %q, before it were %q", got, kept)
	}
	if err := records("http://host/b/"); err != nil {
		t.Error("after the migration:", err)
	}
	for _, before := range []string{"ftp://host/", "xhttp://host/", "http:/host/", "host/"} {
		refused(before)
	}
}

// addressEvents are events of all files that name addresses of a scheme.
const addressEvents = `INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome,
		outcome_detail, outcome_information, object, agent)
	SELECT gen_random_uuid(), 1, 1, f.id, e.type, now(), 'A detail', 'Success', e.text, e.information, 'Farol', 'https://example.org'
	FROM generic_files f CROSS JOIN LATERAL (VALUES
		('replication', $1 || '://h%/b/' || f.uuid, 'Replicated'),
		('fixity check', 'sha256:' || repeat(md5(f.id::text), 2), 'Fixity matches at ' || $1 || '://h%/b/' || f.uuid || ': ' || repeat(md5(f.id::text), 2))) e (type, text, information)
	ORDER BY f.id`

// Events that name addresses over plain HTTP are divided as those over TLS are: the address of a
// bucket is in the dictionary once, and each file adds its uuid alone. They read as written.
func TestEventsOverPlainHTTPShareTheirTexts(t *testing.T) {
	t.Parallel()
	owner := at(t, 157)
	c := connect(t, owner)
	defer c.Close(context.Background()) //nolint:errcheck // the database goes with the test
	exec(t, c, twentyFiles)
	up(t, owner)
	for _, scheme := range []string{"https", "http"} {
		before := value[int](t, c, `SELECT count(*) FROM event_texts`)
		if _, err := c.Exec(t.Context(), addressEvents, scheme); err != nil {
			t.Fatal(err)
		}
		if n := value[int](t, c, `SELECT count(*) FROM event_texts`) - before; n != 2 {
			t.Errorf("%s: %d texts for two events of each of 20 files, want 2", scheme, n)
		}
		if n := value[int](t, c, `SELECT count(*) FROM event_records r, unnest(r.facts) fact WHERE position('://'::bytea IN fact) > 0`); n != 0 {
			t.Errorf("%s: %d addresses are spelt out", scheme, n)
		}
		if n := value[int](t, c, `SELECT count(*) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
			WHERE e.outcome_detail = '`+scheme+`://h%/b/' || f.uuid
				OR e.outcome_information = 'Fixity matches at `+scheme+`://h%/b/' || f.uuid || ': ' || repeat(md5(f.id::text), 2)`); n != 40 {
			t.Errorf("%s: %d events read as they were written, want 40", scheme, n)
		}
	}
}
