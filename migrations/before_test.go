package migrations_test

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/migrations"
)

// old is a database of migrations 1 to 38 with the data of the demo, and a superuser's
// connection to it.
func old(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	at := sibling(t, testenv.DatabaseURL(t))
	packed, err := os.Open("testdata/before-101.sql.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close() //nolint:errcheck // it was only read
	text, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	c := osexec.CommandContext(t.Context(), testenv.Psql(t), "--no-psqlrc", "-q", "-v", "ON_ERROR_STOP=1", at)
	c.Stdin = io.Reader(text)
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	super := connect(t, at)
	t.Cleanup(func() { super.Close(context.Background()) }) //nolint:errcheck // the database goes with the test
	return at, super
}

// sibling is the URL of an empty database of the same server.
func sibling(t *testing.T, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, of)
	name := "sibling_" + strings.ToLower(rand.Text()[:12])
	exec(t, admin, `CREATE DATABASE `+name+` TEMPLATE template0`)
	t.Cleanup(func() {
		exec(t, admin, `DROP DATABASE `+name+` WITH (FORCE)`)
		admin.Close(context.Background()) //nolint:errcheck // likewise
	})
	u.Path = "/" + name
	return u.String()
}

// documented are the commands of docs/upgrading.md.
func documented(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/upgrading.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "\n```sh\n")
	script, _, found := strings.Cut(script, "\n```\n")
	if !found {
		t.Fatal("docs/upgrading.md has no commands")
	}
	return script
}

// rows is a digest of the rows of each table, and where each sequence stands, without
// tables and columns that only one of the two databases has.
const rows = `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
	SELECT relname || ' ' || (xpath('/row/n/text()', query_to_xml(format('SELECT md5(coalesce(string_agg(x::text, '''' ORDER BY x::text), '''')) AS n FROM (SELECT %s FROM %s) x',
			(SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND NOT (
					relname = 'deletion_requests' AND attname IN ('token_sha256', 'requested_as', 'approved_as', 'on_paper', 'cancel_reason', 'begins_at')
					OR relname = 'schedules' AND attname IN ('paused_by', 'paused_at', 'pause_reason')
					OR relname IN ('work_item_audit', 'stage_settings_audit') AND attname = 'actor'
					OR relname = 'deletion_receipts' AND attname IN ('begun_at', 'kept_by_store')
					OR relname = 'request_settings' AND attname = 'deletion_wait'
					OR relname = 'plans' AND attname IN ('approved_by', 'approved_at')
					OR relname = 'retrievals' AND attname = 'requested_by'
					OR relname = 'institutions' AND attname IN ('second_factor_required', 'version', 'deletion_wait')
					OR relname = 'api_tokens' AND attname IN ('user_id', 'permissions')
					OR relname = 'storage_options' AND attname IN ('per_gib_month', 'included_tib')
					OR relname = 'alerts' AND attname IN ('user_id', 'count', 'stage', 'error_code', 'last_at')
					OR relname = 'users' AND attname ~ '^(password|totp|second_factor|signed|time_zone|color_scheme|version|oidc)')),
			oid::regclass), false, true, '')))[1]::text AS line
	FROM pg_class c WHERE relnamespace = current_schema()::regnamespace AND (relkind IN ('r', 'p') OR relname IN ('premis_events', 'checksums'))
		AND relname !~ '^(event_records|event_texts|file_digests|actions|sessions|sign_in_failures|links|recovery_codes|idempotency_keys|alert_reads|alert_repeats|mail_|object_holdings|holdings_daily|daily_outcomes|exports|means_given|admins_left|pauses)'
		AND relname NOT IN ('goose_db_version', 'schema_repeatables', 'administration_rights', 'auditor_rights')
	UNION ALL
	SELECT sequencename || ' ' || coalesce(last_value, 0) FROM pg_sequences
	WHERE schemaname = current_schema() AND sequencename !~ '^(goose|event_texts|actions|sessions|alert_repeats|mail_|exports_|pauses_)') l`

// renamed are the rows under the names that tables have now, in their order.
func renamed(rows string) string {
	lines := strings.Split(strings.NewReplacer("institution_turns ", "institution_virtual_times ", "attempts_forgiven ", "attempt_resets ",
		"repair_brakes", "repair_stops").Replace(rows), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A database that cannot be migrated in place is refused and left as it is; the
// documented way brings all its rows, sequences and partitions into a new one, which
// goes on where the old one stopped.
func TestOldDatabaseIsRefusedAndLoadedIntoANewOne(t *testing.T) {
	t.Parallel()
	from, before := old(t)
	exec(t, before, `SELECT open_log_partition('pipeline_messages', 7)`)
	exec(t, before, `SELECT setval('topic_message_ids', 700000000)`)
	exec(t, before, `INSERT INTO topic_messages (topic, body) VALUES ('fixity_check', 'in the seventh partition')`)
	exec(t, before, `UPDATE schedules SET paused = true WHERE job = (SELECT min(job) FROM schedules)`)
	exec(t, before, `UPDATE stage_settings SET paused = true, paused_by = 'farol (ann)', paused_at = now(), pause_reason = 'legal hold' WHERE action = 'Ingest' AND stage = 'Store'`)
	exec(t, before, `UPDATE fixity_feed SET paused = true, paused_by = 'farol (ann)', paused_at = now(), pause_reason = 'audit'`)
	exec(t, before, `UPDATE known_services SET held_at = now(), held_by = 'farol (ann)', held_reason = 'disks' WHERE service = (SELECT min(service) FROM known_services)`)
	want := renamed(value[string](t, before, rows))
	if err := migrations.Up(t.Context(), from); !errors.Is(err, migrations.ErrOldSchema) {
		t.Fatalf("Up = %v", err)
	}
	if _, err := migrations.Status(t.Context(), from); !errors.Is(err, migrations.ErrOldSchema) {
		t.Fatalf("Status = %v", err)
	}
	if renamed(value[string](t, before, rows)) != want || value[bool](t, before, `SELECT to_regclass('schema_repeatables') IS NOT NULL`) {
		t.Error("the refusal changed something")
	}

	to := sibling(t, from)
	bin := t.TempDir()
	if err := os.Symlink(testenv.Binary(t), filepath.Join(bin, "farol")); err != nil {
		t.Fatal(err)
	}
	c := osexec.CommandContext(t.Context(), "sh", "-c", documented(t))
	c.Dir = t.TempDir()
	c.Env = []string{"PATH=" + bin + ":" + filepath.Dir(testenv.Psql(t)) + ":" + os.Getenv("PATH"), "OLD=" + from, "NEW=" + to, "OWNER=" + to, "HOME=" + c.Dir}
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("the commands of docs/upgrading.md: %v\n%s", err, said)
	}
	after := connect(t, to)
	defer after.Close(context.Background())
	if got := renamed(value[string](t, after, rows)); got != want {
		t.Errorf("the new database has\n%s\nand the old one had\n%s", got, want)
	}
	if got := value[string](t, after, `SELECT string_agg(action || ' ' || coalesce(reason, 'no reason'), ', ' ORDER BY action) FROM pauses WHERE lifted_at IS NULL`); got != "Fixity Check audit, Ingest legal hold, Schedule no reason, Service disks" {
		t.Errorf("these pauses are on record: %s", got)
	}
	exec(t, after, `UPDATE stage_settings SET paused_at = paused_at`) // which writes what follows from the pauses
	if n := value[int](t, after, `SELECT count(*) FROM stage_pauses WHERE paused AND pause_reason IN ('legal hold', 'audit')`); n != 2 {
		t.Errorf("%d of the two stages are still paused", n)
	}
	goesOn(t, after)
}

// goesOn checks that a loaded database is whole: every constraint holds, files are counted,
// what comes next has the next number, and is announced in the partition of the others.
func goesOn(t *testing.T, c *pgx.Conn) {
	t.Helper()
	exec(t, c, `DO $$
		DECLARE
			k record;
		BEGIN
			FOR k IN SELECT conrelid::regclass AS of, conname FROM pg_constraint WHERE contype IN ('f', 'c') AND conrelid <> 0 AND conparentid = 0
				AND connamespace = current_schema()::regnamespace AND NOT (SELECT relispartition FROM pg_class WHERE oid = conrelid)
				AND (SELECT relkind FROM pg_class WHERE oid = conrelid) = 'r' LOOP
				EXECUTE format('UPDATE pg_constraint SET convalidated = false WHERE conrelid = %L::regclass AND conname = %L', k.of, k.conname);
				EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.of, k.conname);
			END LOOP;
		END $$`)
	if wrong := value[int](t, c, `SELECT count(*) FROM (SELECT intellectual_object_id, count(*) FROM generic_files WHERE state = 'A' GROUP BY 1) f (object, files)
			FULL JOIN (SELECT * FROM object_holdings WHERE files > 0) h ON h.intellectual_object_id = object WHERE f.files IS DISTINCT FROM h.files`); wrong != 0 {
		t.Errorf("of %d objects the files are not counted", wrong)
	}
	if n := value[int](t, c, `SELECT count(*) FROM pipeline_messages_rest`) + value[int](t, c, `SELECT count(*) FROM posted_messages_rest`); n != 0 {
		t.Errorf("%d messages are in no partition of their own", n)
	}
	last := value[int64](t, c, `SELECT max(id) FROM work_items`)
	exec(t, c, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Receive', 'next.tar', receiving_bucket, 'e', 1, now() FROM institutions ORDER BY id LIMIT 1`)
	if next := value[int64](t, c, `SELECT max(id) FROM work_items`); next <= last {
		t.Errorf("the next item is %d, after %d", next, last)
	}
	if !value[bool](t, c, `SELECT tableoid = 'pipeline_messages_7'::regclass FROM topic_messages WHERE work_item_id = (SELECT max(id) FROM work_items)`) {
		t.Error("the next message is not in the partition of the last")
	}
	exec(t, c, `SELECT requeue_where('status = ''Failed''', 'Receive', false)`)
	if n := value[int](t, c, `SELECT count(*) FROM work_items WHERE status = 'Failed'`); n != 0 {
		t.Errorf("%d failed items were not requeued", n)
	}
}
