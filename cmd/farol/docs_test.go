package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Each alert and each code has a section, or a row of a table.
func TestRunbookHasASectionForEach(t *testing.T) {
	t.Parallel()
	sections := map[string]bool{}
	runbook := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md")))(t)
	for line := range strings.Lines(string(runbook)) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			sections[title] = true
		}
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for name := range strings.SplitSeq(cells[1], ",") {
				sections[strings.TrimSpace(name)] = true
			}
		}
	}
	db := testenv.Database(t)
	names := func(sql string) []string {
		rows, _ := db.Query(t.Context(), sql)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(list) < 6 {
			t.Fatalf("%s: %v, %v", sql, list, err)
		}
		return list
	}
	const quoted = `SELECT (regexp_matches(pg_get_constraintdef(oid), '''([A-Z][A-Za-z ]+)''', 'g'))[1] FROM pg_constraint WHERE `
	alerts := names(quoted + `conname = 'alerts_type_check'`)
	statuses := names(quoted + `contypid = 'work_status'::regtype`)
	wanted := slices.Concat(alerts, statuses, []string{"Service Held", "held", "bag-gone", "sent-back"})
	for _, service := range []string{
		fault.Database, fault.Redis, fault.Bucket("x"), fault.Scanner, fault.Disk, fault.Memory, fault.Identifier, fault.Settings,
	} {
		class, _ := strings.CutSuffix((&fault.Error{Service: service, Kind: fault.Denied}).Code(), "-denied")
		wanted = append(wanted, class)
	}
	for _, k := range []fault.Kind{
		fault.Unavailable, fault.Overloaded, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly, fault.Skewed, fault.WrongAnswer,
	} {
		wanted = append(wanted, string(k))
	}
	for _, name := range wanted {
		if !sections[name] {
			t.Errorf("docs/runbook.md has no section or row %q", name)
		}
	}
}
