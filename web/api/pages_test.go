package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// walk reads a list from a path on, page by page, as far as it goes.
func (c *caller) walk(path string) (ids []int64) {
	c.s.t.Helper()
	for path != "" {
		var page struct {
			Items []struct{ ID int64 }
			Next  *string
		}
		c.reads(c.wants(http.StatusOK, "GET", path, nil), &page)
		for _, v := range page.Items {
			ids = append(ids, v.ID)
		}
		path = ""
		if page.Next != nil {
			path = *page.Next
		}
	}
	return ids
}

// A list begins behind a record that the caller names, and goes on from there.
func TestListsBeginBehindARecord(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		SELECT $1, 'test.edu/b' || n, 'A bag', 'institution', 'b' || n, 'e', 'Standard', 'p' FROM generate_series(1, 5) n`, s.test.ID)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/' || n, gen_random_uuid(), 'text/plain', 7, 'Standard', now() FROM intellectual_objects, generate_series(1, 5) n
		WHERE identifier = 'test.edu/b1'`)
	s.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'md5', md5('same'), now() FROM generic_files WHERE identifier LIKE 'test.edu/b1/%'`)
	s.exec(`INSERT INTO exports (kind, institution_id) SELECT 'inventory', $1 FROM generate_series(1, 5)`, s.test.ID)
	s.exec(`INSERT INTO plans (action, condition) SELECT 'requeue', 'true' FROM generate_series(1, 5)`)
	c := s.in("staff@archive.org", registry.RoleAdmin, "")
	admin := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	s.exec(`INSERT INTO deletion_requests (institution_id, requested_by) SELECT $1, $2 FROM generate_series(1, 5)`, s.test.ID, admin.person.ID)
	md5 := ask[string](s, `SELECT md5('same')`)
	for path, filter := range map[string]string{"items": "", "objects": "institution=test.edu", "files": "digest=" + md5, "deletions": "", "plans": "", "exports": "institution=test.edu"} {
		path = "/api/v1/" + path + "?limit=2&" + filter
		all := c.walk(path)
		if len(all) < 5 || !slices.IsSortedFunc(all, func(x, y int64) int { return int(y - x) }) {
			t.Fatalf("%s: %v", path, all)
		}
		if got := c.walk(fmt.Sprintf("%s&before=%d", path, all[1])); !slices.Equal(got, all[2:]) {
			t.Errorf("%s before %d: %v, want %v", path, all[1], got, all[2:])
		}
		c.wants(http.StatusBadRequest, "GET", path+"&before=0", nil)
	}
	for path, behind := range map[string]string{"objects?identifier_prefix=test.edu/b": "test.edu/b2", "files?object=test.edu/b1": "test.edu/b1/data/2"} {
		all := c.walk("/api/v1/" + path + "&limit=2")
		got := c.walk("/api/v1/" + path + "&limit=2&after_identifier=" + url.QueryEscape(behind))
		if len(got) < 3 || !slices.Equal(got, all[len(all)-len(got):]) || len(got) == len(all) {
			t.Errorf("%s behind %s: %v, of %v", path, behind, got, all)
		}
	}
	for _, path := range []string{
		"objects?before=7&identifier_prefix=test.edu", "objects?before=7&updated_after=2026-01-01T00:00:00Z", "objects?after_identifier=x", "files?object=test.edu/bag&before=7",
		"files?digest=" + md5 + "&after_identifier=x",
	} {
		if a := c.wants(http.StatusBadRequest, "GET", "/api/v1/"+path, nil); a.code() != "bad-request" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
