package migrations_test

import (
	"os"
	"strings"
	"testing"
)

// A table that is added is named in the manual, with what it grows by and what trims it.
func TestTheManualSaysWhatEachTableGrowsBy(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	page, err := os.ReadFile("../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What the database grows by\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tables := strings.Fields(value[string](t, super, `SELECT string_agg(relname, ' ') FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`))
	if len(tables) < 50 {
		t.Errorf("only %d tables were found", len(tables))
	}
	for _, table := range tables {
		if !strings.Contains(section, "`"+table+"`") {
			t.Errorf("docs/operators.md does not say what %s grows by", table)
		}
	}
}
