package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
)

// A worker that is killed in the midst of a large export, while it makes pieces and while it
// puts them together, is followed by one that ends it: with what a command writes.
func TestKillDuringExport(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.requests()
	const files = 50_000 // more than fifty megabytes in the export
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		SELECT id, identifier || '/records', 'Records', 'records', 'p', 'e' FROM institutions`)
	s.exec(fmt.Sprintf(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT o.institution_id, o.id, o.identifier || '/data/' || to_char(n, 'FM000000') || repeat('x', 900), gen_random_uuid(), 'text/plain', n, 'Standard', now()
		FROM intellectual_objects o CROSS JOIN generate_series(1, %d) n`, files))
	records := exports.In(s.registry, registry.Only(s.in))
	of := must.Get(records.Find(t.Context(), exports.Inventory, "test.edu", ""))(t)
	id, err := records.Make(t.Context(), of)
	if err == nil {
		err = records.Queue(t.Context(), id, of, files)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy := s.s3Proxy()
	for _, megabytes := range []int64{20, 80} { // after the first piece, and when they are put together
		before := proxy.Bytes()
		if megabytes == 80 {
			before -= 30 << 20 // that were staged already
		}
		w := s.worker()
		w.eventually("the middle of the export", func() bool {
			return proxy.Bytes()-before > megabytes<<20
		})
		w.kill()
		if n := ask[int](t, s.db, `SELECT count(*) FROM work_items WHERE status = 'Started'`); n != 1 {
			t.Logf("the export was over before it was killed")
		}
	}
	w := s.worker()
	s.atRest(w)
	w.kill()
	r, _, err := records.Show(t.Context(), id, exports.Kinds())
	if err != nil || r.SHA256 == nil || r.Records == nil || *r.Records != files {
		t.Fatalf("%+v, %v: %s", r, err, s.newest("Export").Note)
	}
	sum := sha256.Sum256(s.content(s.in.RestoreBucket, *r.Key))
	if hex.EncodeToString(sum[:]) != *r.SHA256 {
		t.Errorf("the bucket has another digest than the record: %+v", r)
	}
	if said := s.farol("export", "inventory", "--institution", "test.edu", "--output", filepath.Join(t.TempDir(), "inventory.csv")); !strings.HasSuffix(said, *r.SHA256+"\n") {
		t.Errorf("a command writes another: %s, want %s", said, *r.SHA256)
	}
	for object, err := range s.staging.List(t.Context(), "", "") {
		t.Errorf("left in staging: %s, %v", object.Key, err)
	}
	if n := ask[int](t, s.db, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'killed'`); n < 1 {
		t.Errorf("the ledger has %d killed workers", n)
	}
}
