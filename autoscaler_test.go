package farol_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// scaledQuery finds the query of a trigger that scales by it.
var scaledQuery = regexp.MustCompile(`- type: postgresql\n\s+metadata:\n(?:.*\n)*?\s+query: >-\n((?:.*\n)+?)\s+targetQueryValue: `)

// scaledQueries are those of the autoscalers that the operators' page shows.
func scaledQueries(t *testing.T) (queries []string) {
	t.Helper()
	text := documents(t)["docs/operators.md"]
	for _, block := range blocks(text, "yaml") {
		if found := scaledQuery.FindStringSubmatch(block); found != nil && strings.Contains(block, "\nkind: ScaledObject\n") {
			queries = append(queries, found[1])
		}
	}
	for _, block := range blocks(text, "sql") {
		for line := range strings.Lines(block) {
			if strings.Contains(line, "scaling_signal") {
				queries = append(queries, line)
			}
		}
	}
	if len(queries) != 3 {
		t.Fatalf("queries for autoscalers: %q, want three", queries)
	}
	return queries
}

// What an autoscaler goes by does not fall when a worker takes an item, but when
// it is done; and what no worker could take is not in it.
func TestAutoscalersCountWhatIsInFlight(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	queries := scaledQueries(t)
	shows := func(when string, want int) {
		t.Helper()
		for _, query := range queries {
			var got int
			if err := db.QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %d, %v; want %d by %s", when, got, err, want, query)
			}
		}
	}
	shows("of an empty queue", 0)
	exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's')`)
	for i, due := range []string{"now()", "now()", "now()", "now() + interval '1 hour'"} {
		exec(fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, run_at)
			SELECT id, 'Ingest', 'Store', '%d.tar', 'r', 'e', 1, now(), %s FROM institutions`, i, due))
	}
	shows("three of four are due", 3)
	engine, err := claim.New(t.Context(), db, claim.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	items, err := engine.Claim(t.Context(), claim.Filter{Stages: []claim.Want{{Stage: "Store", Most: 2}}}, 2)
	if err != nil || len(items) != 2 {
		t.Fatalf("Claim = %d items, %v", len(items), err)
	}
	shows("a worker has two of them", 3)
	if err := engine.Settle(t.Context(), []claim.Ending{{Item: items[0], Result: claim.Fatal("bad", "a bad bag")}})[0]; err != nil {
		t.Fatal(err)
	}
	shows("one has failed", 2)
	exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Store'`)
	shows("the stage is paused, and one runs on", 1)
}
