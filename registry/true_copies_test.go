package registry_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// A copy that nobody has read has no last check, and is due when its days are over
// since it was verified. One that was read as it was verified has been.
func TestCopyIsUnreadUntilItIsRead(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	read := fileRecord("data/read", 1)
	for i := range read.Copies {
		read.Copies[i].VerifiedBy = "read"
	}
	a.ingested(etag1, fileRecord("data/unread", 1), read)
	const known = `SELECT f.identifier || ' ' || coalesce(s.last_fixity_at::date::text, 'never') || ' ' || s.fixity_from::date || ' ' || s.verified_by
		FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE s.target = 'Standard-VA' ORDER BY f.identifier`
	want := []string{"test.edu/bag/data/read 2026-01-01 2026-01-01 read", "test.edu/bag/data/unread never 2026-01-01 sha256"}
	if diff := cmp.Diff(want, a.rows(known)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	a.exec(`UPDATE storage_records SET verified_at = now() - interval '1 day'`)
	s := a.target(a.status(), "Standard-VA")
	if s.Copies != 2 || s.Unread != 1 || s.Overdue != 1 {
		t.Errorf("status = %+v", s)
	}

	// A person who sets the file's last check back makes its copies due, and does not
	// make them read.
	a.exec(`UPDATE generic_files SET last_fixity_check = '2025-06-01'`)
	if s := a.target(a.status(), "Standard-VA"); s.Overdue != 2 || s.Unread != 1 {
		t.Errorf("after the files were set back: %+v", s)
	}
	a.feed(10)
	for _, c := range a.claims(fixity.Claim{Most: 10, Targets: []string{"Standard-VA"}}) {
		a.recorded(matching(c))
	}
	if s := a.target(a.status(), "Standard-VA"); s.Overdue != 0 || s.Unread != 0 || *s.Compliance != 100 {
		t.Errorf("after they were read: %+v", s)
	}
}

// What is seen of a copy without a claim is on record if it is about the bytes
// that are on record now, whatever the clocks say.
func TestProofIsAboutTheBytesOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(2)
	a.exec(`UPDATE storage_records SET stored_at = now() + interval '1 hour'`)
	c := a.due()[0]
	stored := value[time.Time](a, `SELECT stored_at FROM storage_records WHERE id = $1`, c.ID)
	proof := fixity.Result{
		Hold: fixity.Hold{ID: c.ID}, Key: c.Key, Algorithm: "sha256", Expected: c.SHA256, Found: strings.Repeat("0", 64), StoredAt: stored,
	}
	replaced := proof
	replaced.StoredAt = stored.Add(-time.Second)
	if got := a.recorded(replaced); got[0] != fixity.Dropped {
		t.Errorf("of bytes that were replaced: %s, want dropped", got[0])
	}
	if got := a.recorded(proof); got[0] != fixity.Recorded {
		t.Errorf("of the bytes on record: %s, want recorded", got[0])
	}
	if got := value[string](a, `SELECT string_agg(concat_ws(' ', state, problem, storage_record_id = $1), ',') FROM fixity_failures`, c.ID); got != "open altered t" {
		t.Errorf("failures: %s", got)
	}
}

// A bad copy whose file is stored again is replaced, and events say what was where and
// what became of it. One whose file is deleted is deleted.
func TestReplacedCopiesAreAccountedFor(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 1))
	old := fileRecord("data/a.txt", 1)
	a.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at)
		SELECT id, generic_file_id, target, 'AWS', url, 'altered', 'sha256', 'x', 'y', now(), now() FROM storage_records WHERE target = 'Standard-VA'`)

	item, _ := a.ingested(etag2, fileRecord("data/a.txt", 2))
	if got := a.rows(`SELECT url || ' ' || state FROM fixity_failures ORDER BY url = '` + old.Copies[0].URL + `' DESC`); len(got) != 2 ||
		got[0] != old.Copies[0].URL+" replaced" || !strings.HasSuffix(got[1], " open") {
		t.Errorf("failures: %q", got)
	}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		must.Do(t, upkeep.In(a.Registry).RecordRetired(context.Background(), item, target, []string{old.Copies[0].Key}))
	}
	about := func(kind string) []string {
		return a.rows(`SELECT concat_ws(' | ', detail, outcome_detail, outcome_information, object) FROM premis_events
			WHERE event_type = '` + kind + `' AND detail LIKE '%eplaced%' ORDER BY outcome_detail DESC`)
	}
	digest := "sha256:" + old.SHA256
	wantDeleted := []string{
		"Deleted a replaced copy from preservation storage | " + old.Copies[0].URL + " | Work item 2 has replaced this copy. It was on record with " + digest +
			", and was known to be altered | Farol",
		"Deleted a replaced copy from preservation storage | " + old.Copies[1].URL + " | Work item 2 has replaced this copy. It was on record with " + digest + " | Farol",
	}
	if diff := cmp.Diff(wantDeleted, about("deletion")); diff != "" {
		t.Errorf("deletions (-want +got):\n%s", diff)
	}
	wantNew := []string{"Replaced a damaged copy by the bytes of a new deposit | " + fileRecord("data/a.txt", 2).Copies[0].URL +
		" | Work item 2 brought them. The altered copy was at " + old.Copies[0].URL + " | Farol"}
	if diff := cmp.Diff(wantNew, about("replication")); diff != "" {
		t.Errorf("replacement (-want +got):\n%s", diff)
	}
	if n := value[int](a, `SELECT count(*) FROM retired_copies`); n != 0 {
		t.Errorf("%d replaced copies are still to be deleted", n)
	}
}
