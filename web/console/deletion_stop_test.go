package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// An approved deletion is named wherever it concerns, with the time until it begins, and has one
// button for those who may stop it. It needs no script.
func TestApprovedDeletionCanBeStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keeps(s.test, "old", "Standard", 7)
	s.exec(`UPDATE storage_options SET retention_days = 0 WHERE name = 'Standard'; UPDATE request_settings SET deletion_wait = '24 hours'`)
	ann, ben, cat := s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu")
	user := s.in(registry.RoleInstitutionalUser, "test.edu")
	form := ann.send("/deletions/check", url.Values{"identifiers": {"test.edu/old"}}).form(t, "deletions.request")
	form.Set("identifiers", "test.edu/old")
	page := ann.done("deletions.request", form).path
	id := strings.TrimPrefix(page, "/deletions/")
	ann.open(page).lacks(t, "Stop this deletion")
	ben.send("/do/deletions.approve", ben.open(page).form(t, "deletions.approve")).shows(t, "Done: approve a deletion")

	at := ask[string](s, `SELECT to_char(begins_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM deletion_requests`)
	countdown := fmt.Sprintf(`<time data-left datetime="%s"`, at)
	object := fmt.Sprint("/objects/", ask[int64](s, `SELECT id FROM intellectual_objects`))
	for _, path := range []string{page, "/deletions", "/", object} {
		if got := cat.sees(path, "in 23h59m"); !strings.Contains(got.text, countdown) {
			t.Errorf("%s has no countdown to %s", path, at)
		}
	}
	cat.sees(object, "which names it or files of it, is approved").lacks(t, "A deletion is on its way")
	item := fmt.Sprint("/items/", ask[int64](s, `SELECT id FROM work_items`))
	cat.sees(item, "Stop the deletion")
	user.sees(page, "in 23h59m").lacks(t, "Stop this deletion")
	user.open("/deletions").lacks(t, "Approved, and can be stopped")
	stop := cat.open(page).form(t, "deletions.cancel")
	if a := user.send("/do/deletions.cancel", stop); a.status != http.StatusForbidden {
		t.Errorf("a user stops a deletion: %d", a.status)
	}
	stop.Set("reason", "")
	cat.done("deletions.cancel", stop)
	ann.sees(page, "Stopped by "+cat.person.Email+". Nothing was deleted.").lacks(t, "Stop this deletion", "in 23h")
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE status = 'Cancelled' AND deletion_request_id = $1`, id); n != 1 {
		t.Errorf("%d items are cancelled", n)
	}
	ann.open("/deletions").lacks(t, "Approved, and can be stopped")
}
