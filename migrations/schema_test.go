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

It has the tables and views that *farol_admin* and *farol_auditor* read; both read all rows, unless a table says otherwise. Tables of Farol
alone are listed [at the end](#tables-of-farol). Columns that hold what their names say are left out. ` + "`\\d+ table`" + ` in psql shows all columns with
types, constraints and comments, and [SQL for administrators](sql.md) has the functions.
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
	var own []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		section := ""
		for _, table := range regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`).FindAllStringSubmatch(string(text), -1) {
			switch name := table[1]; {
			case value[bool](t, c, `SELECT relkind = 'v' OR relispartition AND relname NOT IN ('pipeline_messages', 'posted_messages') FROM pg_class WHERE oid = '`+name+`'::regclass`):
			case value[bool](t, c, `SELECT has_any_column_privilege('farol_admin', '`+name+`', 'SELECT') OR has_any_column_privilege('farol_auditor', '`+name+`', 'SELECT')`):
				section += tableText(t, c, name)
			default:
				own = append(own, fmt.Sprintf("| `%s` | %s |\n", name, comment(t, c, name)))
			}
		}
		if section != "" {
			fmt.Fprintf(&b, "\n## %s\n%s", title(file), section)
		}
	}
	b.WriteString("\n## Views\n\n| view | what it has |\n|---|---|\n")
	for _, view := range list(t, c, `SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v' ORDER BY 1`) {
		fmt.Fprintf(&b, "| `%s` | %s%s |\n", view, comment(t, c, view), rights(t, c, view))
	}
	b.WriteString("\n## Tables of Farol\n\n| table | what it has |\n|---|---|\n" + strings.Join(own, ""))
	return b.String()
}

// title is the subject of a migration, such as "Topic log" for 00107_topic_log.sql.
func title(file string) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	name = strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(name[:1]) + name[1:]
}

func comment(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	return value[string](t, c, `SELECT obj_description('`+table+`'::regclass, 'pg_class')`)
}

// tableText explains the columns whose comments are long or have a condition: the others are as
// their names say.
func tableText(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	text := fmt.Sprintf("\n### %s\n\n%s%s\n", table, comment(t, c, table), rights(t, c, table))
	switch table {
	case "work_items_archive":
		return text + "\nIt has the columns of work_items.\n"
	case "work_item_attempts_archive":
		return text + "\nIt has the columns of work_item_attempts.\n"
	}
	explained := list(t, c, `SELECT '- `+"`"+`' || attname || '`+"`"+`: ' || col_description(attrelid, attnum) FROM pg_attribute
		WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND col_description(attrelid, attnum) ~ '^(\S+ ){12}|[:;]' ORDER BY attnum`)
	if len(explained) > 0 {
		text += "\n" + strings.Join(explained, "\n") + "\n"
	}
	return text
}

// rights says what administrators and auditors may do with a table or view, unless both read it and that is all.
func rights(t *testing.T, c *pgx.Conn, table string) string {
	t.Helper()
	may := func(role string) string {
		return strings.Join(list(t, c, `SELECT CASE p WHEN 'SELECT' THEN 'reads' WHEN 'INSERT' THEN 'adds' WHEN 'UPDATE' THEN 'changes' ELSE 'deletes' END
				|| CASE WHEN has_table_privilege('`+role+`', '`+table+`', p) THEN ' rows' ELSE ' ' || (SELECT string_agg('`+"`"+`' || attname || '`+"`"+`', ', ' ORDER BY attnum)
					FROM pg_attribute WHERE attrelid = '`+table+`'::regclass AND attnum > 0 AND NOT attisdropped AND has_column_privilege('`+role+`', attrelid, attnum, p)) END
			FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) WITH ORDINALITY u (p, n)
			WHERE CASE p WHEN 'DELETE' THEN has_table_privilege('`+role+`', '`+table+`', p) ELSE has_any_column_privilege('`+role+`', '`+table+`', p) END ORDER BY n`), ", ")
	}
	switch admin, auditor := may("farol_admin"), may("farol_auditor"); {
	case admin == auditor && admin == "reads rows":
		return ""
	case admin == auditor:
		return " Each role " + admin + "."
	case auditor == "reads rows" && admin != "":
		return " *farol_admin* " + strings.TrimPrefix(admin, "reads rows, ") + "."
	case admin == "":
		return " *farol_auditor* alone " + auditor + "."
	case auditor == "":
		return " *farol_admin* alone " + admin + "."
	default:
		return " *farol_auditor* " + auditor + "; *farol_admin* " + admin + "."
	}
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
