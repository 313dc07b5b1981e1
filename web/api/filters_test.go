package api_test

import (
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// A bound of 0 bytes is a bound: it is how one finds what is empty.
func TestNothingIsLargerThanZeroBytes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	s.exec(`UPDATE generic_files SET size = 0 WHERE identifier = 'other.edu/bag/data/f'`)
	for path, want := range map[string]int{
		"files?identifier_prefix=test.edu/&size_max=0": 0, "files?identifier_prefix=other.edu/&size_max=0": 1, "files?identifier_prefix=test.edu/": 1, "items?size_max=0": 0,
		"items?size_max=1000000": 6, "items": 6,
	} {
		var found struct{ Items []any }
		if staff.reads(staff.wants(200, "GET", "/api/v1/"+path, nil), &found); len(found.Items) != want {
			t.Errorf("%s finds %d, want %d", path, len(found.Items), want)
		}
	}
	for _, path := range []string{"files?object=test.edu/bag&size_max=-1", "items?size_max=x"} {
		if a := staff.do("GET", "/api/v1/"+path, nil); a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A token for files shows no copies, digests and deletions: these have permissions of their own.
func TestTokensShowWhatTheyArePermitted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	ann := s.in("ann@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	ann.wants(201, "POST", "/api/v1/deletions", `{"identifiers": ["test.edu/bag"]}`, "Idempotency-Key", "k")
	file, object := ann.program("files.read"), ann.program("objects.read")
	shown := func(c *caller, path string) (v struct{ Digests, Copies, Failures, Receipts []any }) {
		c.reads(c.wants(200, "GET", path, nil), &v)
		return v
	}
	requests := func(c *caller, path string) []any {
		var v struct{ Deletion struct{ Requests []any } }
		c.reads(c.wants(200, "GET", path, nil), &v)
		return v.Deletion.Requests
	}
	const at, of = "/api/v1/files/by-identifier?identifier=test.edu/bag/data/f", "/api/v1/objects/by-identifier?identifier=test.edu/bag"
	if v := shown(ann, at); len(v.Digests) != 1 || len(v.Copies) != 1 {
		t.Errorf("an admin sees %+v", v)
	}
	if v := shown(file, at); v.Digests == nil || len(v.Digests)+len(v.Copies)+len(v.Failures)+len(v.Receipts) != 0 {
		t.Errorf("a token for files sees %+v", v)
	}
	if v := shown(file, at); v.Copies == nil || v.Failures == nil || v.Receipts == nil {
		t.Errorf("a token for files reads null: %+v", v)
	}
	if v := shown(ann.program("files.read", "copies.read", "checksums.read"), at); len(v.Digests) != 1 || len(v.Copies) != 1 {
		t.Errorf("a token for these sees %+v", v)
	}
	if list := requests(ann, of); len(list) != 1 {
		t.Errorf("an admin sees %+v", list)
	}
	if list := requests(object, of); list == nil || len(list) != 0 {
		t.Errorf("a token for objects sees %+v", list)
	}
}
