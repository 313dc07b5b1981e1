package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// The first page of staff counts what needs a person, and leads there; the wall says the same.
func TestNowPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 hour'`)
	o := s.in(registry.RoleOperator, "")
	o.sees("/", "Nothing needs you.", "No item waits for a person.", "No worker runs.", "Items that ended with success, last 24 hours: 0")
	for who, title := range map[*browser]string{o: "Now", s.in(registry.RoleInstitutionalUser, "test.edu"): "My deposits"} {
		if a := who.open("/items"); !strings.Contains(a.text, `<a href="/">`+title+`</a>`) {
			t.Errorf("the list of pages begins without %s", title)
		}
	}
	empty := o.sees("/wall", "✓ Nothing needs you.", "No bag is preserved yet.")
	empty.lacks(t, "Alerts", "Sign out")

	s = newSite(t) // its figures are kept
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 hour'`)
	s.queued()
	s.exec(`UPDATE stage_settings SET paused = true, paused_by = 'ann', paused_at = now(), pause_reason = $1 WHERE stage = 'Record'`, hostileText)
	s.exec(`INSERT INTO repair_stops (provider, reason) VALUES ('Wasabi-VA', '12 copies failed')`)
	s.exec(fmt.Sprintf(`CREATE TEMPORARY TABLE ended (LIKE work_items INCLUDING DEFAULTS) ON COMMIT DROP;
		INSERT INTO ended (id, institution_id, size, bag_date, retry, stage, status, name, etag, bucket, action, object_identifier)
		VALUES (9000, %d, 1, now(), false, 'Cleanup', 'Success', 'safe %s.tar', 'e', 'b', 'Ingest', 'test.edu/safe');
		INSERT INTO work_items_archive SELECT * FROM ended`, s.test.ID, hostileText))
	o = s.in(registry.RoleOperator, "")
	page := o.sees("/", "6 things need you.", "You have unread alerts: 1.", "4 items wait for a person, in 1 group.", "An item at Receive has been due for 3 hours. The stage allows 1 hour.", "Record is paused (",
		"No worker runs, and 6 items are due.", "Repair has stopped at Wasabi-VA", "6 items are due, 0 run, 0 are delayed and 0 wait", "timeout Store 4", "Items that were parked, last 24 hours: 4")
	page.escaped(t, made)
	wall := o.sees("/wall", "! 6 things need you.", "due 6", "oldest due 3 hours", "parked 4", "4 timeout Store")
	wall.escaped(t, made)
	s.in(registry.RoleInstitutionalAdmin, "test.edu").sees("/").lacks(t, "other.edu", "Slots", "Wasabi-VA")
}

// Of many things of a kind some are named and the others counted, and all count in the first sentence.
func TestNowPageWithManyThingsOfAKind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`UPDATE schedules SET next_run_at = now() + interval '1 hour'`)
	plans := func(n int) {
		s.exec(`INSERT INTO plans (action, priority, condition, items, set_hash, created_by) SELECT 'set priority', 1, 'true', 5000, 'x', 'ann@archive.org' FROM generate_series(1, $1::int)`, n)
	}
	o := s.in(registry.RoleOperator, "")
	plans(4)
	s.exec(`UPDATE stage_settings SET paused = true, paused_by = 'ann', paused_at = now() WHERE action = 'Ingest' AND ordinal <= 4`)
	o.sees("/", "8 things need you.", "Plan 1 (", "Plan 4 (", "Receive is paused", "Copy To Staging is paused").lacks(t, "more plans", "more stages")
	plans(50)
	s.exec(`UPDATE stage_settings SET paused = true, paused_by = 'ann', paused_at = now() WHERE action = 'Ingest'`)
	o.sees("/", "60 things need you.", "Plan 54 (", "Plan 52 (", "47 more plans wait for your approval.", "More than 50 plans are not at their end.",
		"Reingest Check is paused", "6 more stages are paused.").lacks(t, "Plan 51 (", "Copy To Staging is paused")
}

// More items than are grouped are not counted.
func TestManyParkedItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.scene(fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, status, retry, error_code, name, bucket, etag, size, bag_date, object_identifier)
		SELECT %d, 'Ingest', 'Store', 'Suspended', false, 'timeout', n || '.tar', 'b', 'e', 1, now(), 'test.edu/' || n FROM generate_series(1, 10002) n`, s.test.ID))
	o := s.in(registry.RoleOperator, "")
	o.sees("/", "At least 10,000 items wait for a person").lacks(t, "10,001")
	o.sees("/items/groups", "At least 10,000 items wait for a person, in 1 group.", "A plan for a group has all of its items.")
}

// While the database is away, staff who looked a moment ago see what they saw then, and read
// that it is old. Others see nothing.
func TestNowWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queued()
	o, member := s.in(registry.RoleOperator, ""), s.in(registry.RoleInstitutionalUser, "test.edu")
	o.sees("/", "6 items are due")
	member.sees("/queue", "4 due")
	own := ask[int](s, `SELECT pg_backend_pid()`)
	s.exec(`UPDATE pg_database SET datallowconn = false WHERE datname = current_database()`)
	t.Cleanup(func() { s.exec(`UPDATE pg_database SET datallowconn = true WHERE datname = current_database()`) })
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid NOT IN ($1, pg_backend_pid())`, own)

	page := o.open("/")
	page.shows(t, "The database does not answer.", "This page is old", "6 items are due", "4 items wait for a person")
	if page.status != http.StatusServiceUnavailable || page.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", page.status, page.header)
	}
	for who, path := range map[*browser]string{member: "/", o: "/queue"} {
		a := who.open(path)
		a.shows(t, "Farol cannot answer now")
		a.lacks(t, "6 items are due")
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := s.browser().open("/"); strings.Contains(a.text, "due") {
		t.Errorf("without a session: %d %s", a.status, wordsIn(a.text))
	}
	s.exec(`UPDATE pg_database SET datallowconn = true WHERE datname = current_database()`)
	testenv.Eventually(t, "the server to reach the database", func() bool { return o.open("/").status == http.StatusOK })
	o.sees("/", "6 items are due").lacks(t, "This page is old")
}
