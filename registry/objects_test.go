package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// known returns what the registry knows of an object's files, by identifier.
func (a *archive) known(object int64) map[string]registry.KnownFile {
	a.t.Helper()
	known := map[string]registry.KnownFile{}
	for f, err := range a.KnownFiles(context.Background(), object) {
		if err != nil {
			a.t.Fatal(err)
		}
		known[f.Identifier] = f
	}
	return known
}

// other puts another object with one file on record.
func (a *archive) other() {
	a.t.Helper()
	item := a.upload(etag1, time.Now(), "other.tar")[0]
	a.exec(`UPDATE work_items SET claim_token = 3, stage = 'Record', status = 'Started', lease_expires_at = now() + interval '1 minute',
		node = 'n', pid = 1, worker = 'w', attempt = 1 WHERE id = $1`, item)
	f := fileRecord("data/other.txt", 1)
	f.Identifier = "test.edu/other/data/other.txt"
	rec := a.recording(item, 3, f)
	rec.Object.Identifier, rec.Object.BagName = "test.edu/other", "other"
	must.Get(a.Record(context.Background(), rec))(a.t)
}

// A version describes the object and its files again, and brings back what was
// deleted; nothing of the last one is left.
func TestNewVersionReplacesTheDescription(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.exec(`UPDATE intellectual_objects SET state = 'D'`)
	a.exec(`UPDATE generic_files SET state = 'D'`)
	file := fileRecord("data/a.txt", 2)
	file.Format.MIME, file.Format.PUID, file.Format.IdentifiedBy = "application/pdf", "fmt/276", "siegfried"
	rec := a.recording(a.started(etag2, 3), 3, file)
	rec.Object = record.Object{
		InstitutionID: a.in.ID, Identifier: "test.edu/bag", Title: "Second", Description: "It has changed.", Access: "restricted",
		AltIdentifier: "alt", BagName: "bag.b01.of01", BagGroupIdentifier: "group", BagItProfileIdentifier: "btr",
		SourceOrganization: "Library", InternalSenderIdentifier: "sender", InternalSenderDescription: "a sender",
		ETag: etag2, StorageOption: "Standard", State: "A", TagEncoding: "ISO-8859-1",
	}
	must.Get(a.Record(context.Background(), rec))(t)

	object := must.Get(a.Object(context.Background(), "test.edu/bag"))(t)
	if diff := cmp.Diff(rec.Object, object, cmpopts.IgnoreFields(record.Object{}, "ID")); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	type row struct {
		Format, PUID, IdentifiedBy, State, Option string
		Size                                      int64
		ModTime, LastFixityCheck                  time.Time
	}
	rows, _ := a.db.Query(context.Background(), `
		SELECT file_format, format_puid, format_identified_by, state, storage_option, size, mod_time, last_fixity_check FROM generic_files`)
	got := must.Get(pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row]))(t)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	if diff := cmp.Diff(row{"application/pdf", "fmt/276", "siegfried", "A", "Standard", 2, day, day}, got); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	rows, _ = a.db.Query(context.Background(), `SELECT target, bucket, key, url, etag, stored_at, verified_at, verified_by FROM storage_records ORDER BY id`)
	copies := must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[registry.Copy]))(t)
	if diff := cmp.Diff(file.Copies, copies); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}

// A tar need not say when a file was last changed.
func TestUnknownModificationTimeIsNone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	file := fileRecord("data/a.txt", 1)
	file.ModTime = time.Time{}
	a.ingested(etag1, file)
	if at := value[*time.Time](a, `SELECT mod_time FROM generic_files`); at != nil {
		t.Errorf("mod_time = %v, want none", at)
	}
}

// The next version of a bag is compared with these digests: the current ones
// are those of the last version, also where an earlier one had the same.
func TestDigestsOfTheLastVersionAreTheCurrentOnes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	again := fileRecord("data/again.txt", 1)
	again.DigestedAt = time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	a.other()
	_, object := a.ingested(etag1, fileRecord("data/again.txt", 1), fileRecord("data/a.txt", 1))
	a.ingested(etag2, fileRecord("data/again.txt", 2), fileRecord("data/a.txt", 2))
	a.ingested("33333333333333333333333333333333", again)

	known := a.known(object)
	want := map[string]registry.KnownFile{}
	for _, f := range []registry.FileRecord{again, fileRecord("data/a.txt", 2)} {
		want[f.Identifier] = registry.KnownFile{
			ID: known[f.Identifier].ID, Identifier: f.Identifier, UUID: f.UUID, State: "A", StorageOption: "Standard", SHA256: f.SHA256, MD5: f.MD5,
			Targets: []string{f.Copies[0].Target, f.Copies[1].Target}, Keys: []string{f.Copies[0].Key, f.Copies[1].Key},
		}
	}
	if diff := cmp.Diff(want, known); diff != "" {
		t.Errorf("known files (-want +got):\n%s", diff)
	}
}

// A copy that was checked again is on record with its last check, and an item
// that comes late does not set it back.
func TestCopyIsOnRecordWithItsLastCheck(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item := a.started(etag1, 3)
	later := fileRecord("data/a.txt", 1)
	for i := range later.Copies {
		later.Copies[i].VerifiedAt = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	}
	for _, f := range []registry.FileRecord{fileRecord("data/a.txt", 1), later, fileRecord("data/a.txt", 1)} {
		must.Get(a.Record(context.Background(), a.recording(item, 3, f)))(t)
	}
	if at := value[time.Time](a, `SELECT min(verified_at) FROM storage_records`); !at.Equal(later.Copies[0].VerifiedAt) {
		t.Errorf("verified at %v, want %v", at, later.Copies[0].VerifiedAt)
	}
}

// A service that goes by a new host name keeps the bytes: they have not been
// replaced.
func TestCopyWithANewURLIsNotRetired(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	moved := fileRecord("data/a.txt", 1)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	for i := range moved.Copies {
		moved.Copies[i].URL = "https://new." + moved.Copies[i].Target + "/" + moved.Copies[i].Key
	}
	a.ingested(etag2, moved)
	if c := a.counts(); c["retired_copies"] != 0 || c["storage_records"] != 2 {
		t.Errorf("%d copies retired, %d on record; want 0 and 2", c["retired_copies"], c["storage_records"])
	}
}

// Cleanup deletes what its own item has replaced, and never what a record names.
func TestRetiredCopiesAreThoseOfOneItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	second, _ := a.ingested(etag2, fileRecord("data/a.txt", 2))
	third, _ := a.ingested("33333333333333333333333333333333", fileRecord("data/a.txt", 3))
	named := fileRecord("data/a.txt", 3).Copies[0]
	a.exec(`INSERT INTO retired_copies (work_item_id, target, bucket, key) VALUES ($1, $2, $3, $4)`, third, named.Target, named.Bucket, named.Key)

	retired := func(item int64) map[upkeep.RetiredCopy]bool {
		list := must.Get(upkeep.In(a.Registry).RetiredCopies(ctx, item))(t)
		set := map[upkeep.RetiredCopy]bool{}
		for _, c := range list {
			set[c] = true
		}
		return set
	}
	want := map[upkeep.RetiredCopy]bool{}
	for _, c := range fileRecord("data/a.txt", 2).Copies {
		want[upkeep.RetiredCopy{Target: c.Target, Bucket: c.Bucket, Key: c.Key}] = true
	}
	if diff := cmp.Diff(want, retired(third)); diff != "" {
		t.Errorf("copies that the third version replaced (-want +got):\n%s", diff)
	}
	must.Do(t, upkeep.In(a.Registry).ForgetRetiredCopies(ctx, second))
	if n, m := len(retired(second)), len(retired(third)); n != 0 || m != 2 {
		t.Errorf("%d and %d copies are left, want 0 and 2", n, m)
	}
}

// Deleted files and other objects do not count; what happened to a deleted file
// has happened all the same.
func TestSummaryCountsWhatIsKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.other()
	_, object := a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 1))
	a.ingested(etag2, fileRecord("data/a.txt", 7))
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier = 'test.edu/bag/data/b.txt'`)
	got := must.Get(a.Summary(context.Background(), object))(t)
	// Each of the three files that were put on record has 2, 4, 1, 1, 1 and 1 events,
	// and the two that were new 1 more; the object has 5 and 3.
	copies := int64(2)
	want := record.ObjectSummary{Files: 1, Bytes: 7, Counted: true, Copies: &copies, Events: map[string]int64{
		"fixity check": 6, "message digest calculation": 12, "ingestion": 3 + 2, "replication": 3,
		"identifier assignment": 3 + 2 + 1, "creation": 1, "access assignment": 2,
		"format identification": 3, "validation": 2,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// Of an object with very many files, only these are counted: the page of it is to come at once.
func TestLargeObjectIsNotCounted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, object := a.ingested(etag1, fileRecord("data/a.txt", 1))
	more := func(n int) {
		a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, state, storage_option, last_fixity_check)
			SELECT f.institution_id, f.intellectual_object_id, f.identifier || gen_random_uuid(), gen_random_uuid(), 'text/plain', 1, 'D', f.storage_option, now()
			FROM generic_files f, generate_series(1, $1) WHERE f.identifier LIKE '%/a.txt'`, n)
	}
	for _, counted := range []bool{true, false} {
		more(map[bool]int{true: 9_999, false: 1}[counted])
		s, err := a.Summary(t.Context(), object)
		if err != nil || s.Files != 1 || s.Bytes == 0 || s.Counted != counted || (s.Copies != nil) != counted || (s.Events != nil) != counted {
			t.Errorf("%+v, %v; counted: %t", s, err, counted)
		}
		c, err := a.ObjectCopies(t.Context(), object, s.Counted)
		if err != nil || (c.NeverRead != nil) != counted {
			t.Errorf("%+v, %v; counted: %t", c, err, counted)
		}
		d, err := requests.In(a.Registry).ObjectDeletion(t.Context(), object, s.Counted)
		if err != nil || (d.FilesDeleted != nil) != counted {
			t.Errorf("%+v, %v; counted: %t", d, err, counted)
		}
	}
}
