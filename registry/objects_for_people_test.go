package registry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
)

// Pages of objects fit together in both directions, and filters narrow them.
func TestObjectsInPages(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.other()
	a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 4))
	a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, storage_option, state)
		SELECT $1, 'test.edu/x' || n, 'X', 'x' || n, 'p', 'e', CASE n % 2 WHEN 0 THEN 'Glacier-OH' ELSE 'Standard' END, CASE n WHEN 3 THEN 'D' ELSE 'A' END
		FROM generate_series(1, 4) n`, a.in.ID)
	list := func(f browse.ObjectFilter, p browse.Page) (names []string) {
		t.Helper()
		if p.Limit == 0 {
			p.Limit = 100
		}
		objects, _, err := browse.In(a.Registry, registry.Everything()).Objects(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			names = append(names, fmt.Sprint(o.Identifier, " ", o.Files, " ", o.Bytes, " ", o.LastIngest != nil))
		}
		return names
	}
	all := list(browse.ObjectFilter{}, browse.Page{})
	want := []string{
		"test.edu/x4 0 0 false", "test.edu/x3 0 0 false", "test.edu/x2 0 0 false", "test.edu/x1 0 0 false", "test.edu/bag 2 5 true", "test.edu/other 1 1 true",
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Fatalf("all objects (-want +got):\n%s", diff)
	}
	third := value[int64](a, `SELECT id FROM intellectual_objects WHERE identifier = 'test.edu/x2'`)
	for what, tc := range map[string]struct {
		filter browse.ObjectFilter
		page   browse.Page
		want   []string
	}{
		"next page":      {browse.ObjectFilter{}, browse.Page{Limit: 2, After: browse.Key{ID: third}}, all[3:5]},
		"page before":    {browse.ObjectFilter{Newer: third}, browse.Page{Limit: 1}, all[1:2]},
		"both":           {browse.ObjectFilter{Newer: third - 1}, browse.Page{Limit: 1, After: browse.Key{ID: third + 1}}, all[2:3]},
		"deleted":        {browse.ObjectFilter{ObjectFilter: record.ObjectFilter{State: "D"}}, browse.Page{}, all[1:2]},
		"storage option": {browse.ObjectFilter{ObjectFilter: record.ObjectFilter{StorageOption: "Glacier-OH"}}, browse.Page{}, []string{all[0], all[2]}},
		"institution":    {browse.ObjectFilter{ObjectFilter: record.ObjectFilter{Institution: "nobody.edu"}}, browse.Page{}, nil},
	} {
		if diff := cmp.Diff(tc.want, list(tc.filter, tc.page)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// Files are listed by name, and each page begins where the last ended. Those of an
// object whose name begins alike are not among them.
func TestFilesInPages(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, object := a.ingested(etag1, fileRecord("data/b.txt", 1), fileRecord("data/a.txt", 1), fileRecord("bag-info.txt", 1))
	a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		VALUES ($1, 'test.edu/bag2', 'X', 'bag2', 'p', 'e')`, a.in.ID)
	a.exec(`UPDATE storage_records SET last_fixity_at = '2026-05-01Z' WHERE target = 'Standard-VA'`)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/bag-info.txt'`)
	var got []string
	for p := (browse.Page{Limit: 2}); ; {
		page, next, err := browse.In(a.Registry, registry.Everything()).Files(t.Context(), browse.FileFilter{FileFilter: record.FileFilter{Object: "test.edu/bag"}}, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page {
			got = append(got, fmt.Sprint(x.Identifier, " ", x.State, " ", x.Copies, " ", x.NeverRead, " ", x.Bad))
		}
		if next == (browse.Key{}) {
			break
		}
		p.After = next
	}
	want := []string{"test.edu/bag/bag-info.txt D 2 1 0", "test.edu/bag/data/a.txt A 2 1 0", "test.edu/bag/data/b.txt A 2 1 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	copies, err := a.ObjectCopies(t.Context(), object, true)
	two := int64(2)
	if diff := cmp.Diff(record.ObjectCopies{NeverRead: &two}, copies); diff != "" || err != nil {
		t.Errorf("copies (-want +got):\n%s%v", diff, err)
	}
}

// A page of a file has what was and what is: digests of every content, copies with
// what was seen of them, and failures also of copies that are gone.
func TestFileWithAllThatIsOnRecordOfIt(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at)
		SELECT id, generic_file_id, target, 'AWS', url, 'missing', 'md5', 'd', now(), now() FROM storage_records WHERE target = 'Standard-OR'`)
	second := fileRecord("data/a.txt", 2)
	a.ingested(etag2, second)
	a.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at)
		SELECT id, generic_file_id, target, 'AWS', url, 'altered', 'md5', 'd', 'e', now(), now() FROM storage_records WHERE target = 'Standard-VA'`)
	read := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	a.exec(`UPDATE storage_records SET last_fixity_at = $1 WHERE target = 'Standard-VA'`, read)

	f := must.Get(browse.In(a.Registry, registry.Everything()).FileByIdentifier(t.Context(), second.Identifier))(t)
	var digests []string
	for _, d := range f.Digests {
		digests = append(digests, fmt.Sprint(d.Present, " ", d.Algorithm, " ", d.Digest[:1]))
	}
	want := []string{"true md5 2", "true sha1 2", "true sha256 2", "true sha512 2", "false md5 1", "false sha1 1", "false sha256 1", "false sha512 1"}
	if diff := cmp.Diff(want, digests); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
	var copies []record.FileCopy
	for _, c := range []registry.Copy{second.Copies[1], second.Copies[0]} {
		copies = append(copies, record.FileCopy{
			Target: c.Target, Bucket: c.Bucket, Key: c.Key, URL: c.URL, ETag: c.ETag, StoredAt: c.StoredAt, VerifiedAt: c.VerifiedAt, VerifiedBy: "sha256",
		})
	}
	copies[1].Problem, copies[1].LastReadAt = "altered", &read
	if diff := cmp.Diff(copies, f.Copies); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
	failures, err := a.FileFailures(t.Context(), f.ID)
	if err != nil || len(failures) != 2 || failures[0].State != "open" || failures[1].State != "replaced" || failures[1].Problem != "missing" {
		t.Errorf("failures %+v, %v", failures, err)
	}
}

// What a deletion has done, does and is asked to do to an object.
func TestDeletionsOfAnObject(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item, object := a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 1), fileRecord("data/c.txt", 1))
	a.exec(`UPDATE generic_files SET state = 'D', deleted_by_item = 7 WHERE identifier LIKE '%/a.txt'`)
	a.exec(`UPDATE generic_files SET deleted_by_item = 8 WHERE identifier LIKE '%/b.txt'`)
	a.exec(`INSERT INTO users (email, name, institution_id, role) VALUES ('ann@test.edu', 'Ann', $1, 'institutional_admin')`, a.in.ID)
	a.scene(`INSERT INTO deletion_requests (institution_id, requested_by) SELECT institution_id, id FROM users, generate_series(1, 3);
		INSERT INTO deletion_requests_generic_files SELECT 1, id FROM generic_files;
		INSERT INTO deletion_requests_intellectual_objects SELECT 3, id FROM intellectual_objects`)
	d := must.Get(requests.In(a.Registry).ObjectDeletion(t.Context(), object, true))(t)
	var ids []int64
	for _, q := range d.Requests {
		ids = append(ids, q.ID)
	}
	if d.Item != nil || d.FilesDeleted == nil || *d.FilesDeleted != 1 || d.FilesGoing != 1 || !slices.Equal(ids, []int64{3, 1}) {
		t.Errorf("deletion %+v", d)
	}
	a.exec(`UPDATE intellectual_objects SET deleted_by_item = 9`)
	if d, err := requests.In(a.Registry).ObjectDeletion(t.Context(), object, false); err != nil || d.Item == nil || *d.Item != 9 || d.FilesGoing != 2 || d.FilesDeleted != nil {
		t.Errorf("deletion %+v, %v", d, err)
	}
	// Its items are those of the queue and of the archive.
	a.scene(`INSERT INTO work_items_archive SELECT * FROM work_items; DELETE FROM work_items`)
	live := a.started(etag2, 3)
	items, _, err := browse.In(a.Registry, registry.Everything()).Items(t.Context(), browse.ItemFilter{ItemFilter: record.ItemFilter{Object: "test.edu/bag"}}, browse.Page{Limit: 10})
	if err != nil || len(items) != 2 || items[0].ID != live || items[1].ID != item {
		t.Errorf("items %+v, %v", items, err)
	}
}

// An export has every file and event, and nothing that was recorded after it began.
func TestExportIsOfOneMoment(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.other()
	a.ingested(etag1, fileRecord("data/b.txt", 1), fileRecord("data/a.txt", 1))
	want := value[int](a, `SELECT count(*) FROM premis_events WHERE intellectual_object_id = (SELECT id FROM intellectual_objects WHERE bag_name = 'bag')`)
	err := a.Export(t.Context(), func(e *registry.Export) error {
		o, err := e.Object(context.Background(), "test.edu/bag")
		if err != nil {
			return err
		}
		a.ingested(etag2, fileRecord("data/a.txt", 2), fileRecord("data/c.txt", 1))
		var names, about []string
		for f, err := range e.Files(context.Background(), o) {
			if err != nil {
				return err
			}
			names = append(names, f.Identifier+" "+f.Copies[0].Key[36:])
		}
		n := 0
		for event, err := range e.ObjectEvents(context.Background(), o) {
			if err != nil {
				return err
			}
			n++
			if len(about) == 0 || about[len(about)-1] != event.About {
				about = append(about, event.About)
			}
		}
		if diff := cmp.Diff([]string{"test.edu/bag/data/a.txt ", "test.edu/bag/data/b.txt "}, names); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"test.edu/bag", "test.edu/bag/data/a.txt", "test.edu/bag/data/b.txt"}, about); diff != "" || n != want {
			t.Errorf("%d events, want %d, about (-want +got):\n%s", n, want, diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
