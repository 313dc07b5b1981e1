package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/fixity"
)

// due makes all copies in Standard-VA due, and claims them.
func (a *archive) due() []fixity.Copy {
	a.t.Helper()
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	return a.claims(fixity.Claim{Most: 100})
}

func (a *archive) rows(sql string) []string {
	a.t.Helper()
	rows, _ := a.db.Query(context.Background(), sql)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

const fixityEvents = `SELECT concat_ws(' | ', detail, outcome, outcome_detail, outcome_information, object, agent) FROM premis_events
	WHERE event_type = 'fixity check' AND outcome_information LIKE '% at %' ORDER BY id`

// What goes on record are the words of the system before, and of
// the file only when it was checked.
func TestResultsAreOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(3)
	a.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '50 days', updated_at = now() - interval '50 days'`)
	list := a.due()
	others := a.rows(`SELECT concat_ws(' ', to_jsonb(f) - 'last_fixity_check' - 'updated_at', to_jsonb(s) - 'last_fixity_at' - 'fixity_from' - 'fixity_since' - 'updated_at')
		FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id ORDER BY s.id`)
	good, altered, missing := matching(list[0]), matching(list[1]), matching(list[2])
	altered.Found, missing.Found = strings.Repeat("A", 64), ""
	before := a.counts()["premis_events"]
	for _, result := range []fixity.Result{good, altered, missing} {
		if ends := a.recorded(result); ends[0] != fixity.Recorded {
			t.Errorf("%+v is %s", result, ends[0])
		}
	}
	sha := list[0].SHA256
	want := []string{
		"Fixity check against registered hash | Success | sha256:" + sha + " | Fixity matches at " + list[0].URL + ": " + sha + " | Go language crypto/sha256 | http://golang.org/pkg/crypto/sha256/",
		"Fixity check against registered hash | Failure | sha256:" + strings.Repeat("a", 64) + " | Fixity did not match at " + list[1].URL + ". Expected " + sha + ", got " + strings.Repeat("a", 64) +
			" | Go language crypto/sha256 | http://golang.org/pkg/crypto/sha256/",
		"Fixity check against registered hash | Failure | not found | Fixity did not match at " + list[2].URL + ". Expected " + sha + ", and there is no such object | Go language crypto/sha256 | http://golang.org/pkg/crypto/sha256/",
	}
	if diff := cmp.Diff(want, a.rows(fixityEvents)); diff != "" || a.counts()["premis_events"] != before+3 {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(others, a.rows(`SELECT concat_ws(' ', to_jsonb(f) - 'last_fixity_check' - 'updated_at', to_jsonb(s) - 'last_fixity_at' - 'fixity_from' - 'fixity_since' - 'updated_at')
		FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id ORDER BY s.id`)); diff != "" {
		t.Errorf("something else changed:\n%s", diff)
	}
	for sql, want := range map[string]string{
		`SELECT count(*) FROM generic_files WHERE last_fixity_check > now() - interval '1 minute' AND updated_at > now() - interval '1 minute'`: "3",
		`SELECT count(*) FROM storage_records WHERE target = 'Standard-VA' AND last_fixity_at > now() - interval '1 minute'`:                    "3",
		`SELECT count(*) FROM fixity_checks`: "0",
		`SELECT string_agg(concat_ws(' ', checks, failures, wavered, bytes), ',') FROM (SELECT sum(checks) AS checks, sum(failures) AS failures, sum(wavered) AS wavered, sum(bytes) AS bytes FROM fixity_done) d`: "3 2 0 3",
		`SELECT count(*) FROM topic_messages WHERE topic = 'fixity_check'`: "5", // three begun, two bad
		`SELECT count(*) FROM premis_events WHERE generic_file_id IN (SELECT id FROM generic_files) AND event_type_uri LIKE '%/fix' AND institution_id = 1 AND intellectual_object_id = 1 AND date_time > now() - interval '1 minute'`: "3",
	} {
		if got := value[string](a, `SELECT (`+sql+`)::text`); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
}

// Readers that come upon a copy which is as bad as it was found before put nothing more on
// record, whoever found it first, and end no check that a person waits for.
func TestAFindingIsOnRecordOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(2)
	list := a.due()
	come := func(c fixity.Copy, found string, want fixity.End) {
		t.Helper()
		proof := matching(c)
		proof.Token, proof.Found = 0, found
		proof.StoredAt = value[time.Time](a, `SELECT stored_at FROM storage_records WHERE id = $1`, c.ID)
		if ends := a.recorded(proof); ends[0] != want {
			t.Errorf("%q of copy %d is %s, want %s", found, c.ID, ends[0], want)
		}
	}
	events := func(c fixity.Copy) int {
		return value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure' AND generic_file_id = $1`, c.FileID)
	}
	come(list[0], "", fixity.Recorded)
	a.exec(`UPDATE fixity_checks SET worker = '' WHERE storage_record_id = $1`, list[0].ID)
	come(list[0], "", fixity.FixityKnown)
	if n, waits := events(list[0]), value[int](a, `SELECT count(*) FROM fixity_checks WHERE storage_record_id = $1`, list[0].ID); n != 1 || waits != 1 {
		t.Errorf("%d events of one missing copy, %d checks wait", n, waits)
	}
	altered := strings.Repeat("b", 64)
	come(list[0], altered, fixity.Recorded) // another finding
	checked := matching(list[1])
	checked.Found = altered
	a.recorded(checked)
	come(list[1], altered, fixity.FixityKnown)
	if n, other := events(list[0]), events(list[1]); n != 2 || other != 1 {
		t.Errorf("%d and %d events", n, other)
	}
}

// A bad copy is reported once: to people, to readers of the topics, and to the repair.
func TestBadCopyIsReported(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(1)
	for try, found := range []string{strings.Repeat("b", 64), ""} {
		c := a.due()[0]
		a.exec(`DELETE FROM topic_messages`)
		bad := matching(c)
		bad.Found = found
		a.recorded(bad)
		if got := a.rows(`SELECT topic || ' ' || body FROM topic_messages`); len(got) != 1 || got[0] != fmt.Sprint("fixity_check ", c.FileID) {
			t.Errorf("try %d: topic log %q", try, got)
		}
	}
	alerts := a.rows(`SELECT concat_ws(' | ', institution_id, type, subject, content, generic_file_id) FROM alerts`)
	want := "1 | Failed Fixity Check | Failed fixity check: test.edu/bag/data/0 | The copy of test.edu/bag/data/0 in Standard-VA is not what was stored. " +
		"Fixity did not match at https://Standard-VA/"
	if len(alerts) != 1 || !strings.HasPrefix(alerts[0], want) || !strings.HasSuffix(alerts[0], ". | 1") {
		t.Errorf("alerts %q, want one: %s…", alerts, want)
	}
	list, err := fixity.In(a.Registry).BadCopies(t.Context(), "", 0, 0, 10)
	if err != nil || len(list) != 1 || list[0].Problem != "missing" || list[0].Found != "" || list[0].Target != "Standard-VA" || list[0].Provider != "AWS" ||
		list[0].File != "test.edu/bag/data/0" || list[0].Institution != "test.edu" || !list[0].SeenAt.After(list[0].FoundAt) {
		t.Errorf("bad copies %+v, %v", list, err)
	}
	a.recorded(matching(a.due()[0]))
	if got := value[string](a, `SELECT string_agg(state || (closed_at IS NOT NULL), ',') FROM fixity_failures`); got != "good againtrue" {
		t.Errorf("found good, it is %s", got)
	}
	// Bad once more, it is another failure.
	bad := matching(a.due()[0])
	bad.Found = strings.Repeat("c", 64)
	a.recorded(bad)
	if n := value[int](a, `SELECT count(*) FROM alerts`); n != 2 {
		t.Errorf("%d alerts, want 2", n)
	}
}

// goingSQL has a deletion begin to remove all copies.
const goingSQL = `INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, begun_at) SELECT 1, generic_file_id, target, bucket, key, url, now() FROM storage_records ON CONFLICT DO NOTHING;
	UPDATE generic_files SET deleted_by_item = 1`

// A result is about the bytes that were read. If the record has others by
// now, or none, the result is dropped.
func TestResultThatCameTooLateIsDropped(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(a *archive, c fixity.Copy){
		"ingested anew": func(a *archive, _ fixity.Copy) { a.ingested(etag2, fileRecord("data/0", 2)) },
		"other digest": func(a *archive, _ fixity.Copy) {
			a.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'sha256', repeat('9', 64), now() FROM generic_files`)
		},
		"deleted":       func(a *archive, _ fixity.Copy) { a.exec(`UPDATE generic_files SET state = 'D'`) },
		"being deleted": func(a *archive, _ fixity.Copy) { a.exec(goingSQL) },
		"copy is gone":  func(a *archive, c fixity.Copy) { a.exec(`DELETE FROM storage_records WHERE id = $1`, c.ID) },
		"another key": func(a *archive, c fixity.Copy) {
			a.exec(`UPDATE storage_records SET key = 'other' WHERE id = $1`, c.ID)
		},
		"given back": func(a *archive, c fixity.Copy) {
			must.Do(a.t, fixity.In(a.Registry).Release(context.Background(), hold(c)))
		},
		"recorded before": func(a *archive, c fixity.Copy) { a.recorded(matching(c)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.withCopies(1)
			c := a.due()[0]
			meanwhile(a, c)
			before := a.rows(`SELECT concat_ws(' ', f.last_fixity_check, s.last_fixity_at) FROM generic_files f LEFT JOIN storage_records s ON s.generic_file_id = f.id`)
			events := a.counts()["premis_events"]
			bad := matching(c)
			bad.Found = ""
			if ends := a.recorded(bad); ends[0] != fixity.Dropped {
				t.Errorf("it is %s", ends[0])
			}
			after := a.rows(`SELECT concat_ws(' ', f.last_fixity_check, s.last_fixity_at) FROM generic_files f LEFT JOIN storage_records s ON s.generic_file_id = f.id`)
			if diff := cmp.Diff(before, after); diff != "" || a.counts()["premis_events"] != events || value[int](a, `SELECT count(*) FROM fixity_failures`) > 0 {
				t.Errorf("something was written: %s", diff)
			}
		})
	}
}

// Ingested again with the same bytes, a result still holds.
func TestResultHoldsForTheSameBytes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(1)
	c := a.due()[0]
	a.ingested(etag2, fileRecord("data/0", 1))
	if ends := a.recorded(matching(c)); ends[0] != fixity.Recorded {
		t.Errorf("it is %s", ends[0])
	}
}

// Nobody waits for who is recording the file at the moment, and nothing is lost.
func TestResultOfABusyFileIsKeptForLater(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{`UPDATE generic_files SET mod_time = now()`, `UPDATE storage_records SET etag = 'e'`} {
		a := newArchive(t)
		a.withCopies(2)
		list := a.due()
		tx := must.Get(a.db.Begin(t.Context()))(t)
		must.Get(tx.Exec(t.Context(), sql+` WHERE id = (SELECT min(id) FROM generic_files)`))(t)
		if ends := a.recorded(matching(list[0]), matching(list[1])); ends[0] != fixity.Busy || ends[1] != fixity.Recorded {
			t.Errorf("%s: ends %v, want the first busy and the second recorded", sql, ends)
		}
		must.Do(t, tx.Commit(t.Context()))
		if ends := a.recorded(matching(list[0])); ends[0] != fixity.Recorded {
			t.Errorf("%s: then %v", sql, ends)
		}
	}
}

// A provider's own word has another source, and a date that may be older than the
// record.
func TestResultsOfAReport(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(4)
	at := value[time.Time](a, `SELECT now() - interval '3 days'`)
	keys := a.rows(`SELECT key FROM storage_records WHERE target = 'Standard-OR' ORDER BY id`)
	copies, err := fixity.In(a.Registry).CopiesByKey(t.Context(), "Standard-OR", append(keys, "unknown"))
	if err != nil || len(copies) != 4 || copies[0].Digests["md5"] != fileRecord("data/0", 1).MD5 || copies[0].Bucket != "bucket-of-Standard-OR" {
		t.Fatalf("CopiesByKey = %+v, %v", copies, err)
	}
	report := func(i int, algorithm, found string) fixity.Result {
		return fixity.Result{
			Hold: fixity.Hold{ID: copies[i].ID}, Key: copies[i].Key, Algorithm: algorithm, Expected: copies[i].Digests[algorithm],
			Found: found, At: at, Object: "S3 checksum report", Agent: "https://example.org",
		}
	}
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '10 days', stored_at = now() - interval '20 days' WHERE target = 'Standard-OR'`)
	a.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '1 day' WHERE identifier LIKE '%/0'`)
	a.exec(`UPDATE storage_records SET stored_at = now() - interval '2 days' WHERE id = $1`, copies[3].ID)
	results := []fixity.Result{
		report(0, "md5", copies[0].Digests["md5"]), report(1, "sha1", strings.Repeat("0", 40)), report(2, "sha256", ""), report(3, "md5", strings.Repeat("0", 32)),
	}
	for try, want := range []string{"[recorded recorded recorded dropped]", "[known known known dropped]"} {
		if got := fmt.Sprint(a.recorded(results...)); got != want {
			t.Errorf("try %d: %s, want %s", try, got, want)
		}
	}
	for sql, want := range map[string]string{
		`SELECT string_agg(DISTINCT object || date_time, ',') FROM premis_events WHERE object LIKE 'S3%'`:                                "S3 checksum report" + value[string](a, `SELECT $1::timestamptz::text`, at),
		`SELECT count(*) FROM premis_events WHERE object LIKE 'S3%' AND agent = 'https://example.org'`:                                   "3",
		`SELECT count(*) FROM storage_records WHERE last_fixity_at = (SELECT max(date_time) FROM premis_events WHERE object LIKE 'S3%')`: "3",
		`SELECT count(*) FROM generic_files WHERE last_fixity_check > now() - interval '25 hours'`:                                       "4",
		`SELECT count(*) FROM fixity_failures WHERE state = 'open' AND seen_at < noted_at`:                                               "2",
		`SELECT count(*) FROM fixity_done`: "0", // nothing was read
		`SELECT count(*) FROM alerts`:      "2",
	} {
		if got := value[string](a, `SELECT (`+sql+`)::text`); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	// A good word that is older than the failure says nothing about it.
	older := report(1, "md5", copies[1].Digests["md5"])
	older.At = at.Add(-time.Hour)
	a.recorded(older)
	newer := report(2, "md5", copies[2].Digests["md5"])
	newer.At = at.Add(time.Hour)
	a.recorded(newer)
	if got := a.rows(`SELECT problem || ' ' || state FROM fixity_failures ORDER BY id`); strings.Join(got, ", ") != "altered open, missing good again" {
		t.Errorf("failures: %v", got)
	}
}

// A report about a copy that is waiting to be read spares that; one about a copy that
// is being read does not end it.
func TestReportEndsChecksThatWait(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(2)
	list := a.due()
	must.Do(t, fixity.In(a.Registry).Release(t.Context(), hold(list[0])))
	for _, c := range list {
		result := matching(c)
		result.Token, result.At = 0, time.Now()
		a.recorded(result)
	}
	if got := a.rows(`SELECT storage_record_id::text FROM fixity_checks`); len(got) != 1 || got[0] != fmt.Sprint(list[1].ID) {
		t.Errorf("running checks: %v, want that of copy %d", got, list[1].ID)
	}
	if ends := a.recorded(matching(list[1])); ends[0] != fixity.Recorded {
		t.Errorf("the result of the reading is %s", ends[0])
	}
}
