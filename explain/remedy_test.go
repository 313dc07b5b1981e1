package explain

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
)

// Each reason of why_not() has a remedy here: the one of the database is in SQL.
func TestRemediesAreNoSQL(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../migrations/repeatable/32_why_not.sql"))(t)
	other, reasons := int64(8), map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:SELECT|THEN|ELSE) '([a-z]+(?: [a-z]+)?)'(?:,| END)`).FindAllStringSubmatch(string(text), -1) {
		reasons[m[1]] = true
	}
	if len(reasons) < 11 {
		t.Errorf("only %d reasons were found: %v", len(reasons), reasons)
	}
	for reason := range reasons {
		got := remedy(record.WorkItem{ID: 7, Stage: "Store", Action: "Ingest", WaitsFor: &other}, record.Obstacle{Reason: reason, Remedy: "SELECT 1"})
		if reason != "ended" && (got == "" || strings.Contains(got, "SELECT ")) {
			t.Errorf("%s: %q", reason, got)
		}
	}
}
