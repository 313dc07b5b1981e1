package memberapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// apt-cmd asks with a sort and 25 records, lists objects with a slash before the query, and
// escapes an identifier in a path.
func TestRequestsOfAptCmd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	u := s.ann
	a := u.gets("items?action__in=Ingest&action__in=Delete&date_processed__gteq=2026-02-27T00%3A00%3A00Z&object_identifier=&per_page=25&sort=id&status__in=Success&status__in=Cancelled")
	if len(a.results()) != 25 || a.body["count"] != 45.0 || a.results()[0]["id"] != 1.0 || a.results()[24]["id"] != 25.0 {
		t.Errorf("%v of %v: %v", len(a.results()), a.body["count"], a.each("id"))
	}
	if a := u.gets("items?name=bag+7.tar&per_page=25&sort=id"); fmt.Sprint(a.each("id")) != "[7 52 97]" {
		t.Errorf("items of a bag: %v", a.each("id"))
	}
	if a := u.gets("items/show/7"); a.body["name"] != "bag 7.tar" || a.body["object_identifier"] != "test.edu/bag 7" {
		t.Error(a.text)
	}
	a = u.gets("objects/?per_page=25&sort=id")
	if len(a.results()) != 25 || a.results()[0]["identifier"] != "test.edu/bag 1" || a.body["count"] != 45.0 {
		t.Errorf("%v", a.each("identifier"))
	}
	if want := "/member-api/v3/objects/?page=2&per_page=25&sort=id"; a.field("next") != want {
		t.Errorf("next is %q, want %q", a.field("next"), want)
	}
	byID, byName := u.gets("objects/show/7"), u.gets("objects/show/"+url.PathEscape("test.edu/bag 7"))
	if byID.text != byName.text || byID.body["identifier"] != "test.edu/bag 7" {
		t.Errorf("%s\nand\n%s", byID.text, byName.text)
	}
	a = u.gets("files?intellectual_object_id=2&per_page=25&sort=id")
	if ids := a.each("id"); len(ids) != 3 || !slices.IsSortedFunc(ids, func(a, b any) int { return int(a.(float64) - b.(float64)) }) {
		t.Errorf("files: %v", ids)
	}
	name := a.results()[0]["identifier"].(string)
	if byName := u.gets("files/show/" + url.PathEscape(name)); byName.body["identifier"] != name {
		t.Error(byName.text)
	}
}

// DART Runner tries its key out with one item, and takes 401 and 403 alone for a key that
// is wrong. It links to two pages.
func TestRequestsOfDARTRunner(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, headers := range map[string][]string{
		"another key": {"X-Pharos-Api-Key", "0123456789abcdef0123456789abcdef"}, "no key": {"X-Pharos-Api-Key", ""}, "no user": {"X-Pharos-Api-User", ""},
		"the key of another": {"X-Pharos-Api-User", "otto@other.edu"}, "an unknown user": {"X-Pharos-Api-User", "nobody@test.edu"},
		"a key with a space": {"X-Pharos-Api-Key", "a b"}, "a long key": {"X-Pharos-Api-Key", strings.Repeat("x", 1000)},
	} {
		a := s.ann.with(headers...).do("GET", "/member-api/v3/items?per_page=1")
		if a.status != http.StatusUnauthorized || a.body["StatusCode"] != 401.0 || a.field("Error") == "" || len(a.body) != 2 {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	a := s.key(s.ann.person, "objects.read").do("GET", "/member-api/v3/items?per_page=1")
	if a.status != http.StatusForbidden || !strings.Contains(a.field("error"), "items.read") || len(a.body) != 1 {
		t.Errorf("a token without the permission: %d %s", a.status, a.text)
	}
	if a := s.ann.gets("items?per_page=1"); len(a.results()) != 1 || a.body["count"] != 135.0 {
		t.Error(a.text)
	}
	items := s.ann.gets("items?per_page=30")
	if got := items.each("updated_at"); len(got) != 30 || !slices.IsSortedFunc(got, func(a, b any) int { return strings.Compare(b.(string), a.(string)) }) {
		t.Errorf("the latest update is not first: %v", got)
	}
	objects := s.ann.gets("objects/?per_page=30")
	if objects.results()[0]["identifier"] != "test.edu/bag 1" || len(objects.results()) != 30 {
		t.Errorf("objects: %v", objects.each("updated_at"))
	}
	for path, want := range map[string]string{
		"/work_items/show/7": "/items/7", "/objects/show/9": "/objects/9", "/files/show/11": "/files/11", "/objects/show/test.edu%2Fbag": "/objects/test.edu%2Fbag",
		"/objects/show/%2Fevil.example": "/objects/%2Fevil.example",
	} {
		if a := s.ann.do("GET", path); a.status != http.StatusFound || a.header.Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q", path, a.status, a.header.Get("Location"), want)
		}
	}
}

// PATSy glues next to the host until it is empty.
func TestRequestsOfPATSy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	objects := s.ann.gets("objects?per_page=1000")
	if len(objects.results()) != 45 || objects.field("next") != "" || objects.field("previous") != "" {
		t.Errorf("%v objects, next %q", len(objects.results()), objects.field("next"))
	}
	seen, pages := map[any]bool{}, 0
	for next := "/member-api/v3/files?intellectual_object_id=1&per_page=1000"; next != ""; pages++ {
		a := s.ann.do("GET", next)
		if a.status != http.StatusOK || a.body["count"] != 2500.0 || pages > 3 {
			t.Fatalf("%s: %d %.300s", next, a.status, a.text)
		}
		for _, f := range a.each("identifier") {
			if seen[f] {
				t.Errorf("%v comes twice", f)
			}
			seen[f] = true
		}
		next = a.field("next")
	}
	if len(seen) != 2500 || pages != 3 {
		t.Errorf("%d files on %d pages", len(seen), pages)
	}
}

// dark-blue asks for the latest item of an object since a time without a zone.
func TestRequestsOfDarkBlue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := func(object, since string) string {
		return "items?object_identifier=" + url.QueryEscape(object) + "&action=Ingest&date_processed__gteq=" + since + "&per_page=1&sort=date_processed__desc"
	}
	a := s.ann.gets(path("test.edu/bag 5", "2024-03-18T00:00:00.000000"))
	if len(a.results()) != 1 || a.body["count"] != 3.0 || a.results()[0]["id"] != 5.0 || a.results()[0]["status"] != "Success" || a.results()[0]["stage"] != "Cleanup" {
		t.Error(a.text)
	}
	if a := s.ann.gets(strings.Replace(path("test.edu/bag 5", "2024-03-18T00:00:00.000000"), "__desc", "__asc", 1)); a.results()[0]["id"] != 95.0 {
		t.Errorf("the earliest is %v", a.each("id"))
	}
	for _, path := range []string{path("test.edu/bag 5", "2027-03-18T00:00:00.000000"), path("test.edu/nothing", "2024-03-18T00:00:00.000000")} {
		if a := s.ann.gets(path); a.text != `{"count":0,"next":"","previous":"","results":null}`+"\n" {
			t.Errorf("%s: %s", path, a.text)
		}
	}
}
