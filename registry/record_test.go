package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// started makes an ingest item that runs with a token, at Record.
func (a *archive) started(etag string, token int64) int64 {
	a.t.Helper()
	id := a.upload(etag, time.Now(), "bag.tar")[0]
	a.start(id, token, "Record")
	return id
}

// start lets a worker have an item at a stage, as its first attempt.
func (a *archive) start(id, token int64, stage string) {
	a.t.Helper()
	a.exec(`UPDATE work_items SET claim_token = $2, stage = $3, status = 'Started', run_at = now(), waits_for = NULL,
		stage_started_at = now(), lease_expires_at = now() + interval '1 minute', node = 'n', pid = 1, worker = 'w', attempt = 1
		WHERE id = $1`, id, token, stage)
	a.exec(`INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		VALUES ($1, $2, $3, 1, 'n', 1, 'w')`, id, token, stage)
}

func (a *archive) recording(item, token int64, files ...registry.FileRecord) registry.Recording {
	return registry.Recording{
		Item: item, Token: token,
		Object: record.Object{
			InstitutionID: a.in.ID, Identifier: "test.edu/bag", Title: "Bag", Access: "consortia", BagName: "bag",
			BagItProfileIdentifier: "profile", ETag: etag1, StorageOption: "Standard",
		},
		Validation: registry.Validation{
			By: "https://example.org/profile.json, BagIt 1.0", Software: "Farol 1.2.3", At: time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC),
		},
		Files: func(yield func(registry.FileRecord, error) bool) {
			for _, f := range files {
				if !yield(f, nil) {
					return
				}
			}
		},
	}
}

// fileRecord has a content of its own for each version.
func fileRecord(path string, version int) registry.FileRecord {
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(path)).String()
	key := id
	if version > 1 {
		key = fmt.Sprintf("%s.%d", id, version)
	}
	at := time.Date(2026, 1, version, 0, 0, 0, 0, time.UTC)
	digest := func(n int) string { return strings.Repeat(fmt.Sprintf("%x", version), n) }
	f := registry.FileRecord{
		Identifier: "test.edu/bag/" + path, UUID: id, Size: int64(version), ModTime: at,
		Format: registry.Format{
			MIME: "text/plain", PUID: "x-fmt/111", Name: "Plain Text File", Method: "signature", IdentifiedBy: "siegfried",
			SignatureVersion: "siegfried 1.2.3, DROID_SignatureFile_V120.xml; container-signature-20240715.xml", At: at.Add(time.Minute),
		},
		MD5: digest(32), SHA1: digest(40), SHA256: digest(64), SHA512: digest(128), DigestedAt: at,
	}
	if strings.HasPrefix(path, "data/") {
		f.Manifests = []string{"md5:" + f.MD5, "sha256:" + f.SHA256}
	}
	for i, target := range []string{"Standard-VA", "Standard-OR"} {
		stored := at.Add(time.Duration(i+1) * time.Hour)
		f.Copies = append(f.Copies, registry.Copy{
			Target: target, Bucket: "bucket-of-" + target, Key: key, URL: "https://" + target + "/" + key, ETag: f.MD5 + target,
			StoredAt: stored, VerifiedAt: stored.Add(12 * time.Hour), VerifiedBy: "sha256",
		})
	}
	return f
}

// ingested puts a version of the bag on record and ends its item.
func (a *archive) ingested(etag string, files ...registry.FileRecord) (item, object int64) {
	a.t.Helper()
	item = a.started(etag, 3)
	object = must.Get(a.Record(context.Background(), a.recording(item, 3, files...)))(a.t)
	a.exec(`UPDATE work_items SET claim_token = 9, stage = 'Cleanup', status = 'Success', retry = false, lease_expires_at = NULL,
		node = NULL, pid = NULL, worker = NULL, intellectual_object_id = $2 WHERE id = $1`, item, object)
	return item, object
}

func (a *archive) counts() map[string]int64 {
	a.t.Helper()
	counts := map[string]int64{}
	for _, table := range []string{"intellectual_objects", "generic_files", "checksums", "storage_records", "premis_events", "retired_copies"} {
		counts[table] = value[int64](a, `SELECT count(*) FROM `+table)
	}
	return counts
}

// One payload file in two manifests and one tag file, in two copies: 11 and 9
// events, and 5 of the object.
func TestRecordingWritesWhatIsExpectedOfIt(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item := a.started(etag1, 3)
	files := []registry.FileRecord{fileRecord("data/a.txt", 1), fileRecord("bag-info.txt", 1)}
	rec := a.recording(item, 3, files...)
	want := map[string]int64{
		"intellectual_objects": 1, "generic_files": 2, "checksums": 8, "storage_records": 4,
		"premis_events": 11 + 9 + 5, "retired_copies": 0,
	}
	for try := range 3 { // the first reply was lost, and the second too
		if try == 2 { // another worker, which reaches the same buckets by another name
			for i := range files {
				for k := range files[i].Copies {
					files[i].Copies[k].URL = strings.Replace(files[i].Copies[k].URL, "https://", "https://alias.", 1)
				}
			}
			rec = a.recording(item, 3, files...)
		}
		if _, err := a.Record(context.Background(), rec); err != nil {
			t.Fatalf("try %d: %v", try, err)
		}
		if diff := cmp.Diff(want, a.counts()); diff != "" {
			t.Errorf("try %d: rows (-want +got):\n%s", try, diff)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'ingestion' AND generic_file_id IS NULL AND outcome_detail = '2 files copied'`); n != 1 {
		t.Errorf("%d ingestion events of the object that count the files stored, want 1", n)
	}
	types := value[string](a, `SELECT string_agg(DISTINCT event_type, ', ' ORDER BY event_type) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id WHERE f.identifier LIKE '%a.txt'`)
	if want := "fixity check, format identification, identifier assignment, ingestion, message digest calculation, replication"; types != want {
		t.Errorf("events of a file: %s, want %s", types, want)
	}
}

// An address is given once: a worker that reaches the bucket by another name gives no other,
// whatever was requeued to whom. A copy that the same item stores again under another key has
// an address of its own, and each of its copies an event.
func TestCopyIsGivenItsAddressOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item := a.started(etag1, 3)
	file := fileRecord("data/a.txt", 1)
	again := fileRecord("data/a.txt", 1)
	by := func(worker string, f registry.FileRecord) registry.FileRecord {
		f.Copies = slices.Clone(f.Copies)
		for i := range f.Copies {
			f.Copies[i].URL = strings.Replace(f.Copies[i].URL, "https://", "https://"+worker, 1)
		}
		return f
	}
	for i := range again.Copies {
		again.Copies[i].Key += ".again"
		again.Copies[i].URL += ".again"
	}
	uuid := file.UUID
	for i, tc := range []struct {
		file      registry.FileRecord
		addresses string
	}{
		{file, "https://Standard-OR/" + uuid + " https://Standard-VA/" + uuid},
		{by("one.", file), "https://Standard-OR/" + uuid + " https://Standard-VA/" + uuid},
		{by("two.", file), "https://Standard-OR/" + uuid + " https://Standard-VA/" + uuid},
		{by("two.", again), "https://two.Standard-OR/" + uuid + ".again https://two.Standard-VA/" + uuid + ".again"},
		{by("one.", again), "https://two.Standard-OR/" + uuid + ".again https://two.Standard-VA/" + uuid + ".again"},
	} {
		must.Get(a.Record(context.Background(), a.recording(item, 3, tc.file)))(t)
		if got := value[string](a, `SELECT string_agg(url, ' ' ORDER BY url) FROM storage_records`); got != tc.addresses {
			t.Errorf("recording %d: the record names %s, want %s", i, got, tc.addresses)
		}
		if got := value[int](a, `SELECT count(*) FROM storage_records s WHERE 1 <> (SELECT count(*) FROM premis_events e WHERE e.generic_file_id = s.generic_file_id
			AND e.outcome_detail = s.url AND e.event_type = CASE target WHEN 'Standard-VA' THEN 'identifier assignment' ELSE 'replication' END)`); got != 0 {
			t.Errorf("recording %d: %d addresses have no event, or more than one", i, got)
		}
		said := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type IN ('identifier assignment', 'replication') AND generic_file_id IS NOT NULL`)
		if want := []int{3, 3, 3, 5, 5}[i]; said != want {
			t.Errorf("recording %d: %d events of addresses and the name, want %d", i, said, want)
		}
	}
}

func TestRecordingTwiceAtOnceIsRecordingOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item := a.started(etag1, 3)
	var files []registry.FileRecord
	for i := range 200 {
		f := fileRecord(fmt.Sprintf("data/%d.txt", i), 1)
		f.Virus = registry.VirusCheck{Scanner: "ClamAV 1.4.3/27812", At: f.DigestedAt}
		files = append(files, f)
	}
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() {
			for range 5 { // a deadlock or serialization failure is tried again, as the stage would
				if _, err := a.Record(context.Background(), a.recording(item, 3, files...)); err == nil {
					return
				}
			}
			t.Error("no try succeeded")
		})
	}
	both.Wait()
	want := map[string]int64{
		"intellectual_objects": 1, "generic_files": 200, "checksums": 800, "storage_records": 400,
		"premis_events": 200*12 + 5, "retired_copies": 0,
	}
	if diff := cmp.Diff(want, a.counts()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// The record switches to the new bytes and remembers the old ones for deletion,
// in one transaction; digests and events of before stay.
func TestReingestSwitchesChangedFiles(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 1))
	second := a.started(etag2, 4)
	for range 2 {
		must.Get(a.Record(context.Background(), a.recording(second, 4, fileRecord("data/a.txt", 2))))(t)
	}
	want := map[string]int64{
		"intellectual_objects": 1, "generic_files": 2, "checksums": 12, "storage_records": 4,
		"premis_events": 22 + 5 + 10 + 3, "retired_copies": 2,
	}
	if diff := cmp.Diff(want, a.counts()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	retired, err := upkeep.In(a.Registry).RetiredCopies(context.Background(), second)
	if err != nil || len(retired) != 2 || retired[0].Key != fileRecord("data/a.txt", 1).UUID {
		t.Errorf("retired copies = %v, %v; want the two of version 1", retired, err)
	}
	keys := value[string](a, `SELECT string_agg(DISTINCT key, ' ') FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%a.txt'`)
	if keys != fileRecord("data/a.txt", 2).Copies[0].Key {
		t.Errorf("the record names %s", keys)
	}
}

// Nothing of a recording that is refused is left behind.
func TestRefusedRecordingLeavesNothing(t *testing.T) {
	t.Parallel()
	cut := errors.New("the inventory broke off")
	for name, tc := range map[string]struct {
		change func(*archive, *registry.Recording)
		want   error
	}{
		"the claim moved on": {func(_ *archive, r *registry.Recording) { r.Token-- }, registry.ErrLost},
		"the claim moves on meanwhile": {func(a *archive, r *registry.Recording) {
			files := r.Files
			r.Files = func(yield func(registry.FileRecord, error) bool) {
				a.exec(`SELECT release(id) FROM work_items`)
				files(yield)
			}
		}, registry.ErrLost},
		"a file of another uuid": {func(a *archive, _ *registry.Recording) {
			a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
				VALUES ($1, 'test.edu/bag', 'T', 'bag', 'p', 'e')`, a.in.ID)
			a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
				SELECT $1, id, 'test.edu/bag/data/a.txt', gen_random_uuid(), 'x/y', 1, 'Standard', now() FROM intellectual_objects`, a.in.ID)
		}, registry.ErrMoved},
		"a file of another object": {func(a *archive, _ *registry.Recording) {
			a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
				VALUES ($1, 'test.edu/other', 'T', 'other', 'p', 'e')`, a.in.ID)
			a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
				SELECT $1, id, 'test.edu/bag/data/a.txt', $2, 'x/y', 1, 'Standard', now() FROM intellectual_objects`,
				a.in.ID, fileRecord("data/a.txt", 1).UUID)
		}, registry.ErrMoved},
		"an object in another option": {func(a *archive, _ *registry.Recording) {
			a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, storage_option)
				VALUES ($1, 'test.edu/bag', 'T', 'bag', 'p', 'e', 'Glacier-VA')`, a.in.ID)
		}, registry.ErrMoved},
		"an object of another institution": {func(a *archive, _ *registry.Recording) {
			a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
				VALUES ($1, 'test.edu/bag', 'T', 'bag', 'p', 'e')`, a.institution("other.edu").ID)
		}, registry.ErrMoved},
		"files that break off": {func(_ *archive, r *registry.Recording) {
			files := r.Files
			r.Files = iter.Seq2[registry.FileRecord, error](func(yield func(registry.FileRecord, error) bool) {
				for f := range files {
					yield(f, nil)
					break
				}
				yield(registry.FileRecord{}, cut)
			})
		}, cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			rec := a.recording(a.started(etag1, 3), 3, fileRecord("data/a.txt", 1))
			tc.change(a, &rec)
			before := a.counts()
			if _, err := a.Record(context.Background(), rec); !errors.Is(err, tc.want) {
				t.Errorf("Record = %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, a.counts()); diff != "" {
				t.Errorf("rows changed (-before +after):\n%s", diff)
			}
		})
	}
}

// A claim that moves on while the recording looks at it for the last time is
// waited for, and then refuses it.
func TestRecordingWaitsForAClaimThatIsMovingOn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	rec := a.recording(a.started(etag1, 3), 3, fileRecord("data/a.txt", 1))
	tx := must.Get(a.db.Begin(ctx))(t)
	defer tx.Rollback(ctx) //nolint:errcheck // it was committed, or the test has failed
	must.Get(tx.Exec(ctx, `SELECT release(id) FROM work_items`))(t)

	recorded := make(chan error, 1)
	go func() {
		_, err := a.Record(ctx, rec)
		recorded <- err
	}()
	testenv.Eventually(t, "the recording to end, or to stand behind the claim", func() bool {
		return len(recorded) == 1 || value[bool](a, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	must.Do(t, tx.Commit(ctx))
	if err := <-recorded; !errors.Is(err, registry.ErrLost) {
		t.Errorf("Record = %v, want ErrLost", err)
	}
	if n := a.counts()["intellectual_objects"]; n != 0 {
		t.Errorf("%d objects on record, want none", n)
	}
}

// BenchmarkRecord puts 100,000 files on record, and then has PostgreSQL take in the
// same rows by COPY, into tables with the same indexes and checks: what nobody can
// do without.
func BenchmarkRecord(b *testing.B) {
	a := newArchive(b)
	item := a.started(etag1, 3)
	files := make([]registry.FileRecord, 100_000)
	tables := []string{"generic_files", "file_digests", "storage_records", "event_records"}
	b.Run("record", func(b *testing.B) {
		rows := 0
		for n := 0; b.Loop(); n++ {
			for i := range files {
				files[i] = fileRecord(fmt.Sprintf("data/%d/%d.txt", n, i), 1)
			}
			must.Get(a.Record(context.Background(), a.recording(item, 3, files...)))(b)
			if n == 0 {
				for _, table := range tables {
					rows += value[int](a, `SELECT count(*) FROM `+table)
				}
			}
		}
		b.ReportMetric(float64(b.N*len(files))/b.Elapsed().Seconds(), "files/s")
		b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("COPY", func(b *testing.B) {
		contents, columns := map[string]*bytes.Buffer{}, map[string]string{}
		rows := 0
		for _, table := range tables {
			a.exec(fmt.Sprintf(`CREATE TABLE peer_%[1]s (LIKE %[1]s INCLUDING ALL)`, table))
			contents[table] = &bytes.Buffer{}
			columns[table] = value[string](a, `SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table)
			rows += a.copy(contents[table], nil, `COPY (SELECT `+columns[table]+` FROM `+table+` ORDER BY id LIMIT `+
				fmt.Sprint(value[int](a, `SELECT count(*) * 100000 / (SELECT count(*) FROM generic_files) FROM `+table))+`) TO STDOUT (FORMAT binary)`)
		}
		for b.Loop() {
			for _, table := range tables {
				b.StopTimer()
				a.exec(`TRUNCATE peer_` + table)
				b.StartTimer()
				a.copy(nil, bytes.NewReader(contents[table].Bytes()), `COPY peer_`+table+` (`+columns[table]+`) FROM STDIN (FORMAT binary)`)
			}
		}
		b.ReportMetric(float64(b.N*len(files))/b.Elapsed().Seconds(), "files/s")
		b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
	})
}

// copy runs a COPY in either direction, and returns how many rows it was of.
func (a *archive) copy(to io.Writer, from io.Reader, sql string) int {
	a.t.Helper()
	c, err := a.db.Acquire(context.Background())
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Release()
	var tag pgconn.CommandTag
	if from != nil {
		tag, err = c.Conn().PgConn().CopyFrom(context.Background(), from, sql)
	} else {
		tag, err = c.Conn().PgConn().CopyTo(context.Background(), to, sql)
	}
	if err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return int(tag.RowsAffected())
}

// The digest that was recorded last is the current one, whatever the clocks said: two
// versions may come within a second, and an earlier one may come again.
func TestLastDigestIsTheCurrentOne(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, version := range []int{1, 2, 3, 1} {
		item := a.started(fmt.Sprintf("%032x", i+1), 1)
		f := fileRecord("data/a.txt", version)
		f.DigestedAt = at.Add(-time.Duration(i/2) * time.Hour)
		for range 2 { // recording it again changes nothing
			must.Get(a.Record(t.Context(), a.recording(item, 1, f)))(t)
			current := value[string](a, `SELECT digest FROM checksums WHERE algorithm = 'sha256' ORDER BY datetime DESC LIMIT 1`)
			if current != f.SHA256 {
				t.Errorf("after version %d the current digest is %.4s…", version, current)
			}
		}
		a.exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Cleanup', status = 'Success', retry = false, lease_expires_at = NULL,
			node = NULL, pid = NULL, worker = NULL WHERE id = $1`, item)
	}
	if n := value[int](a, `SELECT count(*) FROM checksums WHERE algorithm = 'sha256'`); n != 3 {
		t.Errorf("%d digests are on record, want 3", n)
	}
}
