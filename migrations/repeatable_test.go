package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/migrations"
)

// files are those with a state in the database.
func files(t *testing.T, url string, in func(migrations.Applied) bool) (names []string) {
	t.Helper()
	list := must.Get(migrations.Status(t.Context(), url))(t)
	for _, m := range list {
		if in(m) {
			names = append(names, m.File)
		}
	}
	return names
}

func lacking(t *testing.T, url string) []string {
	t.Helper()
	return files(t, url, func(m migrations.Applied) bool { return m.At.IsZero() })
}

func replaced(t *testing.T, url string) []string {
	t.Helper()
	return files(t, url, func(m migrations.Applied) bool { return m.Replaced })
}

// A repeatable file that has changed is applied again, the others are left alone, and
// so are files that a newer program has replaced.
func TestRepeatableFilesAreAppliedWhenTheyChange(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	if files := lacking(t, owner); len(files) != 0 {
		t.Fatalf("after Up the database lacks %v", files)
	}
	const spoilt = `CREATE OR REPLACE FUNCTION virtual_cost(size bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0`
	const applied = `SELECT string_agg(file || ' ' || applied_at, ', ' ORDER BY file) FROM schema_repeatables WHERE file <> '20_new_items.sql'`
	before := value[string](t, super, applied)
	exec(t, super, spoilt)
	up(t, owner)
	if value[int64](t, super, `SELECT virtual_cost(1)`) != 0 {
		t.Error("a file that has not changed was applied again")
	}
	exec(t, super, `UPDATE schema_repeatables SET digest = 'of another text' WHERE file = '20_new_items.sql'`)
	if files := lacking(t, owner); len(files) != 1 || files[0] != "20_new_items.sql" {
		t.Errorf("the database lacks %v", files)
	}
	up(t, owner)
	if value[int64](t, super, `SELECT virtual_cost(1)`) == 0 {
		t.Error("a file that has changed was not applied")
	}
	if after := value[string](t, super, applied); after != before {
		t.Errorf("others were applied again:\n%s\nwere\n%s", after, before)
	}
	// A newer program has replaced the file.
	exec(t, super, spoilt)
	exec(t, super, `UPDATE schema_repeatables SET applied_at = clock_timestamp() WHERE digest = 'of another text'`)
	up(t, owner)
	if value[int64](t, super, `SELECT virtual_cost(1)`) != 0 || len(lacking(t, owner)) != 0 {
		t.Error("an older program has replaced the file of a newer one")
	}
	if files := replaced(t, owner); len(files) != 1 || files[0] != "20_new_items.sql" {
		t.Errorf("replaced since are %v", files)
	}
	must.Do(t, migrations.Reapply(t.Context(), owner))
	if files := replaced(t, owner); value[int64](t, super, `SELECT virtual_cost(1)`) == 0 || len(files) != 0 {
		t.Errorf("an earlier content was not applied again, of %v", files)
	}
}

// A view whose columns change is dropped with what depends on it and created again, and
// the rights that were given by hand are kept.
func TestViewsWhoseColumnsChange(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	reader := login(t, super, owner, `GRANT SELECT ON running TO $role; GRANT EXECUTE ON FUNCTION drain_worker(text) TO $role`)
	exec(t, super, `CREATE OR REPLACE VIEW running AS SELECT w.id AS item, w.action, w.stage, w.worker, w.node, w.pid, w.attempt,
		w.stage_started_at AS since, w.lease_expires_at - now() AS lease_left, a.heartbeat_at AS last_heartbeat, a.current_file,
		i.identifier AS institution, w.name, w.size, 1 AS more
		FROM work_items w JOIN institutions i ON i.id = w.institution_id
		LEFT JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token`)
	exec(t, super, `UPDATE schema_repeatables SET digest = 'of an older text' WHERE file = '30_queue_views.sql'`)
	up(t, owner)
	if value[bool](t, super, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'running'::regclass AND attname = 'more')`) {
		t.Error("the view has kept its columns")
	}
	if !value[bool](t, super, `SELECT has_table_privilege('`+reader.Config().User+`', 'running', 'SELECT')
			AND has_function_privilege('`+reader.Config().User+`', 'drain_worker(text)', 'EXECUTE') AND has_table_privilege('farol_admin', 'running', 'SELECT')
			AND NOT has_function_privilege('public', 'drain_worker(text)', 'EXECUTE')`) {
		t.Error("rights were lost, or given")
	}
}

// What people read in mails, alerts and notes is written by the database for all channels: a
// reader of a mail or of a page has no command line.
func TestTextsOfTheDatabaseNameNoCommands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("repeatable/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	command := regexp.MustCompile("(?m)^[ \\t]*[^ \\t\\n-].*`farol [a-z].*$") // of no comment
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for _, line := range command.FindAllString(string(text), -1) {
			t.Errorf("%s: %s", file, line)
		}
	}
}
