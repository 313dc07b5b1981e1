package migrations_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

var update = flag.Bool("update", false, "write docs/schema.md") //nolint:gochecknoglobals // as package testing has it

const schemaPage = "../docs/schema.md"

const schemaIntro = `# The schema

This page is generated from the catalog of a migrated database: ` + "`make schema`" + ` writes it, and a test checks that it is fresh. The
comments are in ` + "`migrations/repeatable/95_comments_*.sql`" + `, the reasons next to the statements in ` + "`migrations/*.sql`" + `.

Times are set by the database's clock. In the column *null*, a dash means that the column always has a value. The role that works
(` + "`grant_work()`" + `) reads and writes all tables; *farol_admin* and *farol_auditor* may do what is said of each table. Everybody else may do
nothing.
`

// docs/schema.md says what the catalog says.
func TestSchemaPageIsFresh(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	text := schemaText(t, super)
	if *update {
		if err := os.WriteFile(schemaPage, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(schemaPage); err != nil || string(page) != text {
		t.Errorf("docs/schema.md is not that of the catalog: run make schema, %v", err)
	}
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
	b.WriteString(schemaIntro)
	files, err := filepath.Glob("0*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if tables := regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`).FindAllStringSubmatch(string(text), -1); len(tables) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", title(file), opening(string(text)))
			for _, table := range tables {
				b.WriteString(tableText(t, c, table[1]))
			}
		}
	}
	b.WriteString("\n## Views\n")
	for _, view := range list(t, c, `SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v' ORDER BY 1`) {
		b.WriteString(viewText(t, c, view))
	}
	b.WriteString(`
## Functions

These are for administrators and for everybody; [sql.md](sql.md) has examples. Triggers, and functions that they and Farol's own
programs call, are in ` + "`migrations/repeatable/`" + `.

| function | who | what it does |
|---|---|---|
`)
	for _, line := range list(t, c, functionLines) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// title is the subject of a migration, such as "Topic log" for 00107_topic_log.sql.
func title(file string) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	name = strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(name[:1]) + name[1:]
}

// opening is the comment that a migration begins with.
func opening(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		words, comment := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if !comment || strings.HasPrefix(words, "+goose") {
			break
		}
		lines = append(lines, words)
	}
	return strings.Join(lines, "\n")
}

func tableText(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	if value[bool](t, c, `SELECT relispartition AND relname NOT IN ('pipeline_messages', 'posted_messages') FROM pg_class WHERE oid = '`+table+`'::regclass`) {
		return ""
	}
	text := fmt.Sprintf("\n### %s\n\n%s%s\n", table, value[string](t, c, `SELECT obj_description('`+table+`'::regclass, 'pg_class')`), rights(t, c, table))
	switch table {
	case "work_items_archive", "work_item_attempts_archive", "pipeline_messages", "posted_messages":
		return text + "\nIt has the columns of " + map[string]string{
			"work_items_archive": "work_items", "work_item_attempts_archive": "work_item_attempts",
			"pipeline_messages": "topic_messages", "posted_messages": "topic_messages",
		}[table] + ".\n"
	}
	text += "\n| column | type | null | meaning |\n|---|---|---|---|\n"
	for _, line := range list(t, c, `SELECT format('| %s | %s | %s | %s |', '`+"`"+`' || attname || '`+"`"+`', format_type(atttypid, atttypmod),
			CASE WHEN attnotnull THEN '–' ELSE 'yes' END, coalesce(col_description(attrelid, attnum), ''))
		FROM pg_attribute WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`) {
		text += line + "\n"
	}
	return text
}

func viewText(t *testing.T, c *pgx.Conn, view string) string {
	t.Helper()
	columns := list(t, c, `SELECT '`+"`"+`' || attname || '`+"`"+`' FROM pg_attribute WHERE attrelid = '`+view+`'::regclass AND attnum > 0 ORDER BY attnum`)
	return fmt.Sprintf("\n### %s\n\n%s%s\n\nColumns: %s.\n", view,
		value[string](t, c, `SELECT obj_description('`+view+`'::regclass, 'pg_class')`), rights(t, c, view), strings.Join(columns, ", "))
}

// rights says what administrators and auditors may do with a table or view.
func rights(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	var said []string
	for _, role := range []string{"farol_admin", "farol_auditor"} {
		may := list(t, c, `SELECT CASE p WHEN 'SELECT' THEN 'reads' WHEN 'INSERT' THEN 'adds' WHEN 'UPDATE' THEN 'changes' ELSE 'deletes' END
				|| CASE WHEN has_table_privilege('`+role+`', '`+table+`', p) THEN ' rows' ELSE ' ' || (SELECT string_agg('`+"`"+`' || attname || '`+"`"+`', ', ' ORDER BY attnum)
					FROM pg_attribute WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND NOT attisdropped AND has_column_privilege('`+role+`', attrelid, attnum, p)) END
			FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) WITH ORDINALITY u (p, n)
			WHERE CASE p WHEN 'DELETE' THEN has_table_privilege('`+role+`', '`+table+`', p) ELSE has_any_column_privilege('`+role+`', '`+table+`', p) END ORDER BY n`)
		if len(may) > 0 {
			said = append(said, role+" "+strings.Join(may, ", "))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "\n\nRights: " + strings.Join(said, "; ") + "."
}

const functionLines = `SELECT format('| %s | %s | %s |', '` + "`" + `' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')` + "`" + `',
		CASE WHEN admin THEN 'farol_admin' ELSE 'everybody' END, obj_description(p.oid, 'pg_proc'))
	FROM (SELECT p.*, has_function_privilege('farol_admin', p.oid, 'EXECUTE') AND NOT EXISTS (
			SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x WHERE x.grantee = 0) AS admin FROM pg_proc p) p
	WHERE p.pronamespace = current_schema()::regnamespace AND obj_description(p.oid, 'pg_proc') IS NOT NULL AND has_function_privilege('farol_admin', p.oid, 'EXECUTE')
	ORDER BY p.proname, 1`

func list(t *testing.T, c *pgx.Conn, sql string) []string {
	t.Helper()
	rows, _ := c.Query(t.Context(), sql)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return slices.Clip(lines)
}
