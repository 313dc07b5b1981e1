package registry_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// before are statements of testdata/events_before.sql.
func before(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/events_before.sql"))(t)
	_, sql, found := strings.Cut(string(text), "-- name: "+name+"\n")
	if !found {
		t.Fatalf("there is no statement %q", name)
	}
	sql, _, _ = strings.Cut(sql, "\n-- name: ")
	return sql
}

// plain creates the tables as they were before events had a dictionary.
func (a *archive) plain(t *testing.T) {
	t.Helper()
	for _, table := range []string{"table", "table of checksums", "table of files"} {
		a.exec(before(t, table))
	}
}

// recordPlain does what a recording did before, after the recording: with the files as they
// are on record.
func (a *archive) recordPlain(t *testing.T, rec registry.Recording, object int64, known map[string]bool) {
	t.Helper()
	a.exec(`TRUNCATE recording`)
	n := 0
	for f := range rec.Files {
		n++
		var urls, by []string
		var stored []time.Time
		for _, c := range f.Copies {
			urls, by, stored = append(urls, c.URL), append(by, c.VerifiedBy), append(stored, c.StoredAt)
		}
		var scanner *string
		if f.Virus.Scanner != "" {
			scanner = &f.Virus.Scanner
		}
		a.exec(`INSERT INTO recording SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, id, $23
			FROM generic_files WHERE identifier = $1`,
			f.Identifier, f.UUID, f.Format.MIME, f.Format.PUID, f.Format.IdentifiedBy, f.Format.Name, f.Format.Method, f.Format.SignatureVersion,
			f.Format.Reason, registry.TimeOrNull(f.Format.At), scanner, f.Virus.Unchecked, registry.TimeOrNull(f.Virus.At),
			f.MD5, f.SHA1, f.SHA256, f.SHA512, f.DigestedAt, f.Manifests, urls, stored, by, !known[f.Identifier])
		known[f.Identifier] = true
	}
	args := a.EventArgs()
	for name, v := range map[string]any{
		"item": rec.Item, "object_id": object, "institution_id": a.in.ID, "identifier": rec.Object.Identifier, "access": rec.Object.Access,
		"is_new": !known[""], "validated_by": rec.Validation.By, "validator": rec.Validation.Software, "warnings": rec.Validation.Warnings,
		"found": rec.Validation.Found, "validated_at": rec.Validation.At,
	} {
		args[name] = v
	}
	known[""] = true
	for _, name := range []string{"checksums", "file events", "object events"} {
		a.exec(before(t, name), args)
	}
}

// same compares what the views show with what the tables have, but for the numbers of rows
// and the time of the transaction.
func (a *archive) same(t *testing.T, what string) {
	t.Helper()
	for view, table := range map[string]string{"premis_events": "plain_events", "checksums": "plain_checksums"} {
		sql := `SELECT (to_jsonb(e) - 'id' - 'created_at' - 'updated_at' ||
				jsonb_build_object('date_time', CASE WHEN to_jsonb(e) ->> 'date_time' = to_jsonb(e) ->> 'created_at' THEN 'now' ELSE to_jsonb(e) ->> 'date_time' END))::text
			FROM %s e ORDER BY 1`
		if diff := cmp.Diff(a.rows(fmt.Sprintf(sql, table)), a.rows(fmt.Sprintf(sql, view))); diff != "" {
			t.Fatalf("%s: %s (-before +now):\n%s", what, view, diff)
		}
	}
}

// hostile are texts that a dictionary of sentences with places might mistake for something
// else, and those of other writings.
func hostile() []string {
	return []string{
		"", "%", "%%", "%1", "%f", "%u", "%p", "%h01", "%t01%t02", "100 %p", `\x00`, `\`, `'"`, "\n", "a\r\nb\t", "\x1f", "{0}", "NULL", "[]",
		"Größe %s", "\u202eabc", "😀%h99", "md5:" + strings.Repeat("a", 32), "sha256:" + strings.Repeat("A", 64), "md5:abc", "sha1:", "https://%u/", "Fixity matches at ",
		"a plain sentence", strings.Repeat("x ", 300), "12345", "who@test.edu", "test.edu/bag/data/a.txt", " leading", "trailing ",
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// hostileFile is a file whose texts are drawn from hostile ones.
func hostileFile(r *rand.Rand, path string, version int) registry.FileRecord {
	text := func() string { return pick(r, hostile()...) }
	f := fileRecord(path, version)
	f.Identifier = "test.edu/bag/" + path
	f.Format = registry.Format{
		MIME: "x/" + text(), PUID: text(), Name: text(), Method: pick(r, "", "signature", "extension"), IdentifiedBy: text(), SignatureVersion: text(),
		Reason: pick(r, "", "unknown", "crashed: "+text(), "refused:"+text(), text()), At: pick(r, time.Time{}, f.DigestedAt, f.DigestedAt.Add(time.Second)),
	}
	if r.IntN(2) == 0 {
		f.Virus = registry.VirusCheck{Scanner: "ClamAV " + text(), Unchecked: text(), At: f.DigestedAt}
	}
	f.Manifests = pick(r, nil, []string{"md5:" + f.MD5}, []string{"sha512:" + f.SHA512, "crc32:" + text(), "md5:" + strings.Repeat("F", 32), text() + "1"})
	for i := range f.Copies {
		c := &f.Copies[i]
		c.URL = pick(r, c.URL, c.URL+text()+".x", "https://"+text()+"/"+f.UUID+"/"+f.UUID, "https://h%20/"+text()+"%", "https://host/"+f.UUID+"."+strings.Repeat("0", 16)) + "?" + fmt.Sprint(i)
		c.Key = f.UUID + fmt.Sprint(version, i)
		c.VerifiedBy = pick(r, "sha256", "etag", "read", "")
	}
	return f
}

// The events and checksums of recordings are, byte for byte, those that the statements of before
// wrote: of new files, of repeated recordings that say something else, and of new versions.
// Seven files go by the way of small bags, 107 by that of large ones.
func TestEventsAreThoseOfBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ files, seed int }{{7, 1}, {7, 2}, {7, 3}, {107, 4}} {
		t.Run(fmt.Sprint(tc.files, " files, seed ", tc.seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(tc.seed), 7))
			a := newArchive(t)
			a.Registry = a.Signed(pick(r, registry.APTrust(), registry.Farol("100%", "%f library")))
			a.plain(t)
			known := map[string]bool{}
			for version := 1; version <= 3; version++ {
				item := a.started(fmt.Sprintf("%032x", version), 1)
				for try := range 3 { // the second says the same, the third something else
					var files []registry.FileRecord
					for i := range tc.files {
						path := fmt.Sprintf("data/%d%s", i, strings.ReplaceAll(hostile()[i%len(hostile())], "\x1f", ""))
						f := hostileFile(rand.New(rand.NewPCG(uint64(1000*version+i+try/2*500), uint64(tc.seed))), path, version)
						files = append(files, f)
					}
					rec := a.recording(item, 1, files[:len(files)-version+1]...)
					rec.Validation = registry.Validation{
						By: pick(r, hostile()...), Software: "Farol %p", Warnings: r.IntN(2), Found: pick(r, hostile()...), At: time.Unix(1e9, 1000),
					}
					object := must.Get(a.Record(t.Context(), rec))(t)
					a.recordPlain(t, rec, object, known)
					a.same(t, fmt.Sprint("version ", version, ", try ", try))
				}
				a.exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Cleanup', status = 'Success', retry = false, lease_expires_at = NULL,
					node = NULL, pid = NULL, worker = NULL WHERE id = $1`, item)
			}
		})
	}
}

// What is written to the view by hand reads as the table would have it, also after changes
// and deletions of events of an ingest; writing it twice changes nothing.
func TestEventsByHandReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, object := a.ingested(etag1, fileRecord("data/%f.txt", 1), fileRecord("data/b.txt", 1))
	a.plain(t)
	a.exec(`INSERT INTO plain_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome,
		outcome_detail, outcome_information, object, agent, created_at, updated_at)
		SELECT identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome,
		outcome_detail, outcome_information, object, agent, created_at, updated_at FROM premis_events`)
	a.exec(`INSERT INTO plain_checksums (generic_file_id, algorithm, digest, datetime) SELECT generic_file_id, algorithm, digest, datetime FROM checksums`)
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string { return pick(r, hostile()...) }
	const columns = ` (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome,
		outcome_detail, outcome_information, object, agent) SELECT $1::uuid, $2::bigint, $3::bigint, (SELECT id FROM generic_files WHERE identifier = $4), $5, $6::timestamptz, $7, $8, $9, $10, $11, $12`
	for range 150 {
		uuidOf := value[string](a, `SELECT uuid::text FROM generic_files ORDER BY id LIMIT 1`)
		file := pick(r, "", "test.edu/bag/data/%f.txt", "test.edu/bag/data/b.txt")
		digest := strings.Repeat("ab", 32)
		args := []any{
			uuid.New().String(), a.in.ID, object, file, pick(r, "fixity check", "format identification", "deletion", "replication"),
			time.Unix(r.Int64N(2e9), 1000*r.Int64N(1e6)), "d" + text() + pick(r, "", uuidOf), pick(r, "Success", "Failure"),
			pick(r, text(), "sha256:"+digest, "https://host%/"+uuidOf, "test.edu/bag/data/%f.txt"),
			pick(r, text(), "Fixity matches at https://h%/"+uuidOf+": "+digest, "Fixity matches at https://h%/"+uuidOf+": "+text()), text(), text(),
		}
		for range 2 {
			a.exec(`INSERT INTO premis_events`+columns, args...)
			a.exec(`INSERT INTO plain_events`+columns+` ON CONFLICT (identifier) DO NOTHING`, args...)
		}
	}
	a.same(t, "written by hand")
	rows, _ := a.db.Query(t.Context(), `SELECT identifier::text FROM premis_events ORDER BY identifier`)
	identifiers := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	for i, identifier := range identifiers {
		for _, table := range []string{"premis_events", "plain_events"} {
			switch i % 3 {
			case 0:
				a.exec(`UPDATE `+table+` SET outcome_information = $2, detail = $3, outcome = 'Failure' WHERE identifier = $1`, identifier, hostile()[i%len(hostile())], "x"+hostile()[i*7%len(hostile())])
			case 1:
				a.exec(`DELETE FROM `+table+` WHERE identifier = $1`, identifier)
			}
		}
	}
	a.same(t, "changed by hand")
	a.exec(`UPDATE generic_files SET identifier = identifier || '.away', uuid = gen_random_uuid()`)
	a.same(t, "after its file was renamed")
	if n := value[int](a, `SELECT count(*) - count(DISTINCT id) FROM premis_events`); n != 0 {
		t.Errorf("%d events have the number of another", n)
	}
}

// A recording whose answer was lost may be repeated after events were changed by hand, which
// gives each a row: it writes none of them again.
func TestRecordingIsRepeatedAfterEventsWereChanged(t *testing.T) {
	t.Parallel()
	for _, files := range []int{2, 102} {
		a := newArchive(t)
		item := a.started(etag1, 3)
		var list []registry.FileRecord
		for i := range files {
			list = append(list, fileRecord(fmt.Sprintf("data/%d", i), 1))
		}
		rec := a.recording(item, 3, list...)
		must.Get(a.Record(t.Context(), rec))(t)
		a.exec(`UPDATE premis_events SET updated_at = updated_at`)
		if n := value[int](a, `SELECT count(*) FROM event_records WHERE item IS NOT NULL`); n != 0 {
			t.Fatalf("%d rows are of more than one event", n)
		}
		before := a.rows(`SELECT e::text FROM premis_events e ORDER BY id`)
		must.Get(a.Record(t.Context(), rec))(t)
		if diff := cmp.Diff(before, a.rows(`SELECT e::text FROM premis_events e ORDER BY id`)); diff != "" {
			t.Errorf("%d files: events (-before +now):\n%s", files, diff)
		}
	}
}
