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
