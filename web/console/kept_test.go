package console_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// A deletion that waits for a store says so, and until when, on every page that is about it; it can
// be stopped while it waits, and the receipt of a copy keeps the word.
func TestDeletionThatWaitsForAStoreSaysUntilWhen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keeps(s.test, "locked", "Standard", 7)
	s.exec(`UPDATE storage_options SET retention_days = 0 WHERE name = 'Standard'; UPDATE request_settings SET deletion_wait = '0'`)
	ann, ben, staff := s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleAdmin, "")
	form := ann.send("/deletions/check", url.Values{"identifiers": {"test.edu/locked"}}).form(t, "deletions.request")
	form.Set("identifiers", "test.edu/locked")
	page := ann.done("deletions.request", form).path
	ben.send("/do/deletions.approve", ben.open(page).form(t, "deletions.approve")).shows(t, "Done: approve a deletion")
	const kept = "kept by the store until 2098-07-06 05:04:03 UTC"
	item := ask[int64](s, `SELECT id FROM work_items WHERE action = 'Delete'`)
	s.scene(`UPDATE work_items SET error_code = 'kept-by-store', note = $2, run_at = now() + interval '1 day' WHERE id = $1`, item, "Copies are "+kept+": Standard-VA.")
	s.scene(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, seen_at, kept_by_store)
		SELECT $1, generic_file_id, target, bucket, key, url, now(), $2 FROM storage_records`, item, kept)
	at := fmt.Sprint("/items/", item)
	object := fmt.Sprint("/objects/", ask[int64](s, `SELECT id FROM intellectual_objects`))
	for _, path := range []string{page, object, at} {
		ann.sees(path, "Copies are "+kept+": Standard-VA.")
		staff.sees(path, "Copies are "+kept+": Standard-VA.")
	}
	ann.sees("/deletions", "waiting for a store")
	ann.sees(at, "Waits: kept by the store.", "Stop the deletion")
	ann.sees(page, "In work: 0 of 1 items are done.", "Stop this deletion").lacks(t, "was "+kept)
	if got := ann.sees(page, "What was done to each copy").text; strings.Count(got, kept) != 2 {
		t.Errorf("the page says %d times until when, want for the request and for the copy", strings.Count(got, kept))
	}
	ann.open(object).lacks(t, "A deletion is on its way")
	s.scene(`UPDATE deletion_receipts SET removed_at = now()`)
	ann.sees(page, "was "+kept)
}
