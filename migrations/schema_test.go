package migrations_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/reference"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

const schemaIntro = `# The schema

This page is generated from the catalog of a migrated database: ` + "`make schema`" + ` writes it, and a test checks that it is fresh.
` + "`\\d+ table`" + ` in psql shows the columns of a table with types, constraints and comments; [SQL for administrators](sql.md) has the functions.

The roles ` + "`farol_admin`" + ` (*admin*) and ` + "`farol_auditor`" + ` (*auditor*) read all of it, unless *read by* names one of them or leaves out columns.
`

// docs/schema.md says what the catalog says.
func TestSchemaPageIsFresh(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	reference.Fresh(t, "../docs/schema.md", strings.ReplaceAll(schemaText(t, super), "|  |", "| |"))
	if bare := value[*string](t, super, uncommented); bare != nil {
		t.Errorf("without a comment are:\n%s", *bare)
	}
}

// uncommented names the tables, views and columns without a comment, and the functions
// that administrators may execute.
const uncommented = `SELECT string_agg(name, E'\n') FROM (
	SELECT c.relname::text AS name FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v')
		AND NOT c.relispartition AND c.relname <> 'goose_db_version' AND obj_description(c.oid, 'pg_class') IS NULL
	UNION ALL
	SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		AND c.relname NOT IN ('goose_db_version', 'work_items_archive', 'work_item_attempts_archive') AND col_description(c.oid, a.attnum) IS NULL
	UNION ALL
	SELECT p.oid::regprocedure::text FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) x
		WHERE p.pronamespace = current_schema()::regnamespace AND x.grantee = 'farol_admin'::regrole AND obj_description(p.oid, 'pg_proc') IS NULL
	) n`

func schemaText(t *testing.T, c *pgx.Conn) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(schemaIntro + "\n## Tables\n\n| table | what it has | read by |\n|---|---|---|\n")
	files := must.Get(filepath.Glob("0*.sql"))(t)
	var own []string
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		section := ""
		for _, table := range regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`).FindAllStringSubmatch(string(text), -1) {
			name := table[1]
			switch readers := readBy(t, c, name); {
			case value[bool](t, c, `SELECT relkind = 'v' OR relispartition AND relname NOT IN ('pipeline_messages', 'posted_messages') FROM pg_class WHERE oid = '`+name+`'::regclass`):
			case readers == "Farol":
				own = append(own, name)
			default:
				section += fmt.Sprintf("| `%s` | %s | %s |\n", name, comment(t, c, name), readers)
			}
		}
		if section != "" {
			fmt.Fprintf(&b, "| **%s** | | |\n%s", title(file), section)
		}
	}
	fmt.Fprintf(&b, "\nTables of Farol alone are `%s`.\n", strings.Join(own, "`, `"))
	b.WriteString("\n## Views\n\n| view | what it has | read by |\n|---|---|---|\n")
	for _, view := range list(t, c, `SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v' ORDER BY 1`) {
		fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", view, comment(t, c, view), columns(t, c, view), readBy(t, c, view))
	}
	fmt.Fprintf(&b, "\n## What administrators change\n\nA change takes effect at once. Rows of %s may be added and deleted, too.\n\n| table | columns |\n|---|---|\n%s",
		strings.Join(list(t, c, "SELECT '`' || relname || '`' FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND has_table_privilege('farol_admin', oid, 'INSERT') ORDER BY 1"), " and "),
		strings.Join(list(t, c, "SELECT format(E'| `%s` | %s |\\n', attrelid::regclass, string_agg(format('`%s`: %s', attname, col_description(attrelid, attnum)), ' ' ORDER BY attnum)) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid "+
			"WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND attnum > 0 AND NOT attisdropped AND has_column_privilege('farol_admin', attrelid, attnum, 'UPDATE') GROUP BY attrelid ORDER BY 1"), ""))
	return b.String()
}

// title is the subject of a migration, such as "Topic log" for 00107_topic_log.sql.
func title(file string) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	name = strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(name[:1]) + name[1:]
}

// comment is the first sentence of it.
func comment(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	return value[string](t, c, `SELECT regexp_replace(obj_description('`+table+`'::regclass, 'pg_class'), '^(.{30,}?\.) .*$', '\1')`)
}

// columns lists those of a view, unless it has as many as a table that is described elsewhere.
func columns(t *testing.T, c *pgx.Conn, view string) string {
	t.Helper()
	const most = 14
	names := list(t, c, `SELECT attname::text FROM pg_attribute WHERE attrelid = '`+view+`'::regclass AND attnum > 0 ORDER BY attnum`)
	if len(names) > most {
		return ""
	}
	return " Columns: `" + strings.Join(names, "`, `") + "`."
}

// readBy says which roles read a table or view, and which columns a role does not read.
func readBy(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	var readers []string
	for _, role := range []string{"admin", "auditor"} {
		hidden := list(t, c, `SELECT attname::text FROM pg_attribute WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND NOT attisdropped
			AND NOT has_column_privilege('farol_`+role+`', attrelid, attnum, 'SELECT') ORDER BY attnum`)
		switch {
		case !value[bool](t, c, `SELECT has_any_column_privilege('farol_`+role+`', '`+table+`', 'SELECT')`):
		case len(hidden) > 0:
			readers = append(readers, role+" but for `"+strings.Join(hidden, "`, `")+"`")
		default:
			readers = append(readers, role)
		}
	}
	switch len(readers) {
	case 0:
		return "Farol"
	case 2:
		_, admin, _ := strings.Cut(readers[0], " ")
		_, auditor, _ := strings.Cut(readers[1], " ")
		if admin == auditor {
			return admin
		}
	}
	return strings.Join(readers, ", ")
}

func list(t *testing.T, c *pgx.Conn, sql string) []string {
	t.Helper()
	rows, _ := c.Query(t.Context(), sql)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return slices.Clip(lines)
}
