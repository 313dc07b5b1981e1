package platform_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// words has one space in place of any number of them.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// queries are those by which KEDA scales the pools of a profile.
func queries(t *testing.T, text string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range of[scaledObject](decode(t, text)) {
		found[strings.TrimPrefix(o.Metadata.Name, "farol-work-")] = o.Spec.Triggers[0].Metadata["query"]
	}
	return found
}

// The operators' page explains the query, and its tests keep it right.
func TestQueryIsTheOneOfTheOperatorsPage(t *testing.T) {
	t.Parallel()
	page := words(file(t, "docs", "operators.md"))
	for pool, query := range queries(t, rendered(t)["pools"]) {
		signal, _, ok := strings.Cut(words(query), "(")
		if !ok || strings.Count(page, signal+"(") < 3 {
			t.Errorf("pool %s: docs/operators.md does not have %q in SQL and for KEDA", pool, signal)
		}
	}
}

// Each item is counted by the pool that takes it, and by no other; what waits, by none.
func TestQueriesOfKEDACountTheItemsOfTheirPool(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	found := queries(t, rendered(t)["pools"])
	shows := func(when string, want map[string]int) {
		t.Helper()
		for pool, query := range found {
			if got := count(t, db, query); got != want[pool] {
				t.Errorf("%s: pool %s has %d, want %d by %s", when, pool, got, want[pool], query)
			}
		}
	}
	if len(found) != 5 {
		t.Fatalf("%d pools are scaled, want 5", len(found))
	}
	shows("an empty queue", nil)
	testenv.Exec(t, db, items)
	shows("items that are due", map[string]int{"check": 1, "store": 1, "record": 1, "large": 2, "requests": 1})
	testenv.Exec(t, db, `UPDATE stage_settings SET paused = true WHERE stage = 'Store'`)
	shows("a paused stage", map[string]int{"check": 1, "record": 1, "large": 1, "requests": 1})
	testenv.Exec(t, db, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier)
		SELECT institution_id, action, stage, name || '2', bucket, etag, size, bag_date, object_identifier || '2' FROM work_items WHERE stage = 'Format Identification'`)
	shows("one more", map[string]int{"check": 2, "record": 1, "large": 1, "requests": 1})
	testenv.Exec(t, db, `INSERT INTO known_services (service, scopes) VALUES ('redis', '[{"steps": ["Receive", "Format Identification", "Restore Object"]}]')`)
	testenv.Exec(t, db, `SELECT hold_service('redis')`)
	shows("a held service, for which one worker of each pool stays", map[string]int{"check": 1, "record": 1, "large": 1, "requests": 1})
}

func count(t *testing.T, db *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Errorf("%v\n%s", err, query)
	}
	return n
}

// items are some of each pool, small and large, and one that waits.
const items = `
INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's');
INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, run_at, object_identifier)
SELECT i.id, v.action, v.stage, v.action || v.stage || v.size || v.due || '.tar', 'r', 'e', v.size, now(), v.due, 'test.edu/' || v.action || v.stage || v.size || v.due
FROM institutions i, (VALUES
	('Ingest', 'Format Identification', 2::bigint << 30, now()), ('Ingest', 'Receive', 64::bigint << 30, now()),
	('Ingest', 'Store', 1, now()), ('Ingest', 'Store', 1, now() + interval '1 hour'), ('Ingest', 'Store', 65::bigint << 30, now()),
	('Ingest', 'Cleanup', 1, now()), ('Restore Object', 'Requested', 1, now())) v (action, stage, size, due)`

var metric = regexp.MustCompile(`(farol_[a-z_]+)\{(\w+)=~"([\w|]+)"`)

// Prometheus answers with nothing, and not with an error, if a metric does not exist.
func TestQueryOfPrometheusNamesMetrics(t *testing.T) {
	t.Parallel()
	page := file(t, "docs", "reference", "metrics.md")
	found := metric.FindAllStringSubmatch(queries(t, rendered(t)["everything"])["one"], -1)
	if len(found) < 3 {
		t.Fatalf("metrics: %q, want three", found)
	}
	for _, m := range found {
		for state := range strings.SplitSeq(m[3], "|") {
			if !regexp.MustCompile("\\| `" + m[1] + "` \\| action, stage[^|]*\\b" + m[2] + "\\b[^|]*\\|.*\\b" + state + "\\b").MatchString(page) {
				t.Errorf("docs/reference/metrics.md has no %s by stage and %s with the value %s", m[1], m[2], state)
			}
		}
	}
}
