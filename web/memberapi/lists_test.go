package memberapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// What another institution has is what does not exist: no row, no count, and the same words.
func TestInstitutionsSeeTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, own := range map[string]float64{
		"items": 135, "objects": 45, "files": 2500 + 44*3, "events?outcome=Failure": 1, "deletions": 2, "alerts": 3,
		"items?sort=id": 135, "objects?sort=identifier": 45, "files?sort=id": 2500 + 44*3,
	} {
		for _, u := range []tool{s.ann, s.other} {
			want, a := own, u.gets(path)
			if strings.HasPrefix(path, "files") && u.person.ID == s.other.person.ID {
				want = 45 * 3
			}
			if a.body["count"] != want {
				t.Errorf("%s has %v %s, want %v", u.person.Email, a.body["count"], path, want)
			}
			for _, id := range a.each("institution_id") {
				if id != float64(u.person.InstitutionID) {
					t.Errorf("%s reads %s of %v", u.person.Email, path, id)
				}
			}
		}
	}
	for _, path := range []string{
		"items/show/%v", "objects/show/%v", "files/show/%v", "deletions/show/%v", "alerts/show/%v/1", "events/show/00000000-0000-4000-8000-%012v?generic_file_id=1",
		"checksums/show/%v?generic_file_id=2600",
	} {
		others, nothing := s.ann.do("GET", "/member-api/v3/"+fmt.Sprintf(path, 0)), s.ann.do("GET", "/member-api/v3/"+fmt.Sprintf(path, 987654))
		if others.status != 404 || nothing.status != 404 || others.text != nothing.text || others.body["StatusCode"] != 404.0 {
			t.Errorf("%s: %d %s and %d %s", path, others.status, others.text, nothing.status, nothing.text)
		}
	}
	nothing := s.ann.do("GET", "/member-api/v3/objects/show/987654").text
	for _, path := range []string{
		"items/show/136", "objects/show/46", "objects/show/other.edu%2Fbag%201", "files/show/2640", "deletions/show/3", "alerts/show/4/1", "alerts/show/1/2",
		"checksums/show/1?generic_file_id=2640", "items/show/x", "items/show/-1", "objects/show/%00", "objects/show/%ff", "objects/show/",
	} {
		if a := s.ann.do("GET", "/member-api/v3/"+path); a.status != 404 || a.text != nothing {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	for _, path := range []string{
		"items?institution_id=2", "objects?institution_id=2", "files?institution_id=2", "files?intellectual_object_id=46", "items?object_identifier=other.edu/bag+1",
		"objects?identifier=other.edu/bag+1", "events?intellectual_object_identifier=other.edu/bag+1", "checksums?generic_file_id=2640", "alerts?user_id=2",
		"deletions?institution_id=2", "alerts?institution_id=2", "items?institution_id=99", "items?generic_file_id=0", "objects?institution_parent_id=-1",
	} {
		if a := s.ann.gets(path); a.text != `{"count":0,"next":"","previous":"","results":null}`+"\n" {
			t.Errorf("%s: %s", path, a.text)
		}
	}
	if a := s.staff.gets("items?institution_id=2&per_page=1000"); a.body["count"] != 135.0 || a.results()[0]["institution_identifier"] != "other.edu" {
		t.Errorf("the staff reads %v items of one institution", a.body["count"])
	}
	if a := s.staff.gets("items"); a.body["count"] != 270.0 {
		t.Errorf("the staff reads %v items", a.body["count"])
	}
}

// Each filter finds what it names.
func TestFilters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, want := range map[string]int{
		"items?action=Ingest": 135, "items?action=Delete": 0, "items?status=Success": 45, "items?status__in=Success&status__in=Pending": 90, "items?stage__in=Receive": 45,
		"items?alt_identifier=alt3": 2, "items?bag_group_identifier=group1": 30, "items?bagit_profile_identifier=x": 0, "items?bucket=receiving": 135, "items?etag=2e7": 1,
		"items?bag_date__gteq=2026-01-01": 135, "items?bag_date__lteq=2026-01-01T00:00:00": 135, "items?bag_date__lteq=2025-12-31T23:59:59.999999Z": 0,
		"items?bag_date__gteq=2026-01-01T01:00:00%2B01:00": 135, "items?bag_date__gteq=2026-01-01T00:00:00+00:00": 135, "items?bag_date__gteq=2026-01-01T00:00:00.000001": 0,
		"items?generic_file_id=1": 0, "items?generic_file_id__is_null=true": 135, "items?generic_file_id__is_null=false": 0, "items?generic_file_id__not_null=true": 0,
		"items?intellectual_object_id=3": 2, "items?intellectual_object_id__is_null=true": 45, "items?intellectual_object_id__not_null=true": 90,
		"items?intellectual_object_id__is_null=true&intellectual_object_id__not_null=true": 0, "items?generic_file_identifier=x": 0, "items?name=bag+3.tar": 3,
		"items?needs_admin_review=false": 135, "items?needs_admin_review=true": 0, "items?node__not_null=true": 0, "items?node__is_null=true": 135, "items?queued_at__is_null=true": 135,
		"items?retry=true": 45, "items?retry=false": 90, "items?size__gteq=40": 18, "items?size__lteq=2&size__gteq=2": 3, "items?storage_option=Standard": 90,
		"items?user=system@aptrust.org": 135, "items?date_processed__lteq=2026-02-26T23:59:00": 90, "items?date_processed__lteq=2026-02-26T23:58:59.999999Z": 89,

		"objects?access=institution": 45, "objects?access=consortia": 0, "objects?alt_identifier=alt4": 1, "objects?alt_identifier__starts_with=alt4": 7,
		"objects?bag_group_identifier=group1": 15, "objects?bag_group_identifier__starts_with=group": 45, "objects?bag_name=bag+9": 1, "objects?bagit_profile_identifier=x": 0,
		"objects?created_at__gteq=2026-01-02T00:00:00": 22, "objects?created_at__lteq=2026-01-01T02:00:00": 2, "objects?updated_at__lteq=2026-01-31T00:00:00": 22, "objects?etag=e4": 1,
		"objects?identifier=test.edu/bag+4": 1, "objects?identifier__starts_with=test.edu/bag+4": 7, "objects?internal_sender_identifier=x": 0, "objects?institution_parent_id=1": 0,
		"objects?internal_sender_description=x": 0, "objects?source_organization=Source": 45, "objects?state=A": 45, "objects?state=D": 0, "objects?storage_option=Standard": 45,

		"files?identifier=test.edu/bag+1/data/7": 1, "files?uuid=00000000-0000-4000-8000-000000000000": 0, "files?intellectual_object_id=2&state=A": 3, "files?state=D": 0,
		"files?storage_option__in=Standard&storage_option__in=Wasabi-VA": 2632, "files?size__gteq=2500": 1, "files?size__lteq=1": 45, "files?created_at__gteq=2026-01-02": 2632,
		"files?created_at__lteq=2026-01-01": 0, "files?updated_at__gteq=2026-01-03T00:41:40": 1, "files?last_fixity_check__lteq=2026-01-05": 2632, "files?last_fixity_check__gteq=2026-01-06": 0,

		"events?intellectual_object_id=1": 2, "events?intellectual_object_identifier=test.edu/bag+1": 2, "events?generic_file_id=1": 2, "events?generic_file_identifier=test.edu/bag+1/data/7": 2,
		"events?generic_file_id=1&intellectual_object_id=1": 2, "events?generic_file_id=1&intellectual_object_id=2": 0, "events?outcome=Failure": 1,
		"events?generic_file_id=1&outcome=Success": 1, "events?generic_file_id=1&event_type=fixity+check": 1, "events?event_type=deletion": 0,
		"events?generic_file_id=1&date_time__gteq=2025-12-29": 1, "events?generic_file_id=1&date_time__lteq=2025-12-28": 1, "events?outcome=Failure&generic_file_id__is_null=true": 0,
		"events?created_at__gteq=2026-01-01&created_at__lteq=2026-01-20": 4, "events?created_at__gteq=2025-12-20&created_at__lteq=2026-01-20": 4,

		"checksums?generic_file_id=1": 6, "checksums?generic_file_id=1&algorithm=md5": 2, "checksums?generic_file_id=2&state=A": 3, "checksums?generic_file_id=1&datetime=2026-01-03": 3,
		"checksums?generic_file_id=1&intellectual_object_id=2": 0, "checksums?digest=" + strings.Repeat("0", 32): 0,
		"deletions?requested_at__gteq=2026-01-03": 1, "alerts?type=Failed+Fixity+Check": 3, "alerts?user_id=1": 3, "alerts?created_at__gteq=2026-01-03": 2, "alerts?institution_id=1": 3,
	} {
		if a := s.ann.gets(path + andSize(path)); a.body["count"] != float64(want) || len(a.results()) != min(want, 1000) {
			t.Errorf("%s finds %v, want %d", path, a.body["count"], want)
		}
	}
}

func andSize(path string) string {
	if strings.Contains(path, "?") {
		return "&per_page=1000"
	}
	return "?per_page=1000"
}

// What a list cannot do is refused with a sentence, and never answered as if it had not
// been asked for.
func TestWrongQueries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, want := range map[string]string{
		"items?per_page=0": "per_page", "items?per_page=-1": "per_page", "items?page=0": "page", "items?page=-1": "page", "items?page=x": "page", "items?page=1.5": "page",
		"items?page=99999999999999999999": "page", "items?page=2502": "50000", "items?per_page=1000&page=52": "50000", "items?sort=note": "note", "items?sort=id__up": "__asc",
		"items?sort=id;drop": "not well-formed", "items?sort=id%3Bdrop": "sorted", "items?name__contains=x": "index", "objects?title=x": "index", "objects?title__contains=x": "index",
		"objects?file_count__gteq=1": "index", "objects?size__lteq=1": "index", "items?nonsense=1": "nonsense", "items?name__ne=x": "name__ne", "items?id=1": "id is no filter",
		"items?date_processed__gteq=yesterday": "date_processed__gteq", "items?date_processed__gteq=2024-13-01": "date_processed__gteq", "items?size__gteq=big": "size__gteq",
		"items?retry=perhaps": "true or false", "items?institution_id=x": "institution_id", "items?name=a&name=b": "more than once", "items?action=Ingest&action__in=Delete": "not both",
		"items?name=%00": "UTF-8", "items?name=%ff": "UTF-8", "items?cursor=x": "cursor", "items?cursor=e30": "cursor", "items?%zz": "not well-formed",
		"events": "too broad", "events?date_time__gteq=2026-01-01": "too broad", "events?identifier=x&generic_file_id=1": "UUID", "checksums": "too broad", "checksums?digest=xyz": "hexadecimal",
		"files?uuid=x": "UUID", "events?identifier=00000000-0000-4000-8000-000000000000&outcome=Failure": "object or file", "items?status__in=" + strings.Repeat("x&status__in=", 101): "values",
	} {
		a := s.ann.do("GET", "/member-api/v3/"+path)
		if a.status != http.StatusBadRequest || a.body["StatusCode"] != 400.0 || !strings.Contains(a.field("Error"), want) || len(a.body) != 2 {
			t.Errorf("%.80s: %d %s, want %q", path, a.status, a.text, want)
		}
	}
	if a := s.staff.do("GET", "/member-api/v3/files"); a.status != 400 || !strings.Contains(a.field("Error"), "too broad") {
		t.Errorf("all files of all institutions: %d %s", a.status, a.text)
	}
	for _, path := range []string{"items?per_page=1001", "items?per_page=all", "items?per_page=", "items"} {
		if a := s.ann.gets(path); len(a.results()) != 20 {
			t.Errorf("%s has %d records, want 20", path, len(a.results()))
		}
	}
}

// Pages follow each other without a gap, and their links lead back.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.ann.gets("objects/?per_page=20&page=1&sort=identifier__desc&state=A")
	second := s.ann.do("GET", first.field("next"))
	third := s.ann.do("GET", second.field("next"))
	if first.field("previous") != "" || second.field("previous") != "/member-api/v3/objects/?page=1&per_page=20&sort=identifier__desc&state=A" || third.field("next") != "" ||
		len(first.results()) != 20 || len(second.results()) != 20 || len(third.results()) != 5 {
		t.Errorf("%.200s\n%.200s\n%.200s", first.text, second.text, third.text)
	}
	seen := map[any]bool{}
	for _, a := range []answer{first, second, third} {
		for _, name := range a.each("identifier") {
			seen[name] = true
		}
	}
	if len(seen) != 45 {
		t.Errorf("%d objects on three pages", len(seen))
	}
	if a := s.ann.gets("objects?page=4&per_page=20"); a.body["results"] != nil || a.body["count"] != 45.0 || a.field("next") != "" {
		t.Errorf("after the last page: %s", a.text)
	}
	if a := s.ann.gets("objects?page=3&per_page=15"); len(a.results()) != 15 || a.field("next") != "" {
		t.Errorf("the last page, which is full, has next %q", a.field("next"))
	}
	if a := s.ann.gets("items?page=2501&per_page=20"); a.body["results"] != nil {
		t.Errorf("row 50,001: %s", a.text)
	}
}

// Beyond row 50,000 a list goes on by a cursor, and in its own order.
func TestPagesBeyondTheBound(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	testenv.Scene(t, s.db, `
		CREATE TEMPORARY TABLE more (LIKE work_items INCLUDING DEFAULTS);
		INSERT INTO more (id, institution_id, size, bag_date, retry, action, stage, status, name, etag, bucket, object_identifier)
		SELECT 1000 + n, 1, n, now(), false, 'Ingest', 'Cleanup', 'Success', 'more ' || n, 'e' || n, 'b', 'test.edu/more ' || n FROM generate_series(1, 101000) n;
		INSERT INTO work_items_archive SELECT * FROM more; ANALYZE work_items_archive`)
	a := s.ann.gets("items?page=51&per_page=1000&sort=id&status=Success")
	// A busy database does not count them in time, and then the list has as many as were shown.
	counted := a.body["count"] == 100_000.0 || a.body["count"] == 51_001.0
	if a.header.Get("X-Farol-Count") != "estimate" || a.header.Get("X-Farol-Sort") != "id__desc" || !counted || a.results()[0]["id"] != 52000.0 {
		t.Errorf("%v %v: %v", a.header, a.body["count"], a.results()[0]["id"])
	}
	if !strings.Contains(a.field("next"), "cursor=") || strings.Contains(a.field("next"), "page=5") || a.field("previous") == "" {
		t.Errorf("next is %q, previous %q", a.field("next"), a.field("previous"))
	}
	last, pages := 51001.0, 0
	for next := a.field("next"); next != "" && pages < 4; pages++ {
		a := s.ann.do("GET", next)
		if a.status != http.StatusOK || a.field("previous") != "" || a.header.Get("X-Farol-Sort") != "id__desc" {
			t.Fatalf("%s: %d %.200s", next, a.status, a.text)
		}
		for _, id := range a.each("id") {
			if last--; id != last {
				t.Fatalf("%v where %v should be", id, last)
			}
		}
		next = a.field("next")
	}
	if pages != 4 {
		t.Errorf("the list ends %d pages after the bound", pages)
	}
	end := s.ann.gets("items?status=Success&per_page=1000&sort=id&cursor=" + base64.RawURLEncoding.EncodeToString([]byte(`{"id":1100}`)))
	if len(end.results()) != 99+45 || end.field("next") != "" {
		t.Errorf("the last page has %d records, next %q", len(end.results()), end.field("next"))
	}
	if a := s.other.gets("items?cursor=" + base64.RawURLEncoding.EncodeToString([]byte(`{"id":90000}`))); a.body["count"] != 135.0 || a.results()[0]["institution_id"] != 2.0 {
		t.Errorf("the cursor of another: %.300s", a.text)
	}
	if a := s.ann.gets("items?size__gteq=100900&sort=id&per_page=1"); a.results()[0]["id"] != 101900.0 || a.header.Get("X-Farol-Count") != "" || a.body["count"] != 101.0 {
		t.Errorf("a part of a large list: %v of %v", a.each("id"), a.body["count"])
	}
}

// Nothing but reading is served, to nobody but who sends a key or a token.
func TestRequestsThatAreNotServed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	head := s.ann.do("HEAD", "/member-api/v3/items?per_page=1")
	if head.status != http.StatusOK || head.text != "" || head.header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %q", head.status, head.text)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		for _, path := range []string{"items", "items/show/1", "objects/", "nothing"} {
			if a := s.ann.do(method, "/member-api/v3/"+path); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" || a.field("error") == "" {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.text)
			}
		}
	}
	for path, want := range map[string]string{
		"/member-api/v3/institutions": "nothing at this path", "/member-api/v2/items": "nothing at this path", "/member-api/v3/items/7": "nothing at this path",
		"/member-api/v3/alerts/show/1": "nothing at this path", "/member-api/": "nothing at this path",
		"/admin-api/v3/items": "/api/v1", "/admin-api/": "/api/v1",
	} {
		if a := s.ann.do("GET", path); a.status != 404 || !strings.Contains(a.field("error"), want) || len(a.body) != 1 {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	if a := s.ann.do("POST", "/admin-api/v3/items/create/1"); a.status != 404 || !strings.Contains(a.field("error"), "/api/v1") {
		t.Errorf("POST to the admin API: %d %s", a.status, a.text)
	}
	cookie := s.session(s.ann.person)
	if a := (tool{s: s, header: http.Header{"Cookie": {cookie}}}).do("GET", "/api/v1/me"); a.status != http.StatusOK {
		t.Errorf("the cookie is not valid: %d %s", a.status, a.text)
	}
	if a := (tool{s: s, header: http.Header{"Cookie": {cookie}}}).do("GET", "/member-api/v3/items"); a.status != http.StatusUnauthorized || a.body["StatusCode"] != 401.0 {
		t.Errorf("a cookie: %d %s", a.status, a.text)
	}
	if a := s.ann.with("Origin", "https://evil.example").do("GET", "/member-api/v3/items"); a.status != http.StatusForbidden {
		t.Errorf("another origin: %d %s", a.status, a.text)
	}
}

// The e-mail counts in any case; Authorization counts alone where it is sent.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key := s.ann.header.Get("X-Pharos-Api-Key")
	bearer := tool{s: s, header: http.Header{"Authorization": {"Bearer " + key}}}
	for _, u := range []tool{s.ann.with("X-Pharos-Api-User", "aNN@TEST.edu"), bearer, bearer.with("X-Pharos-Api-User", "nobody@test.edu", "X-Pharos-Api-Key", "x")} {
		if a := u.gets("items?per_page=1"); a.body["count"] != 135.0 {
			t.Error(a.text)
		}
	}
	if a := s.ann.with("Authorization", "Bearer x").do("GET", "/member-api/v3/items"); a.status != http.StatusUnauthorized || a.body["StatusCode"] != 401.0 {
		t.Errorf("a wrong bearer with a right key: %d %s", a.status, a.text)
	}
	for path, needs := range map[string]string{
		"items": "items", "items/show/1": "items", "objects/": "objects", "objects/show/1": "objects", "files": "files", "files/show/1": "files", "events?outcome=Failure": "events",
		"events/show/x": "events", "checksums": "checksums", "checksums/show/1": "checksums", "deletions": "deletions", "deletions/show/1": "deletions", "alerts": "alerts", "alerts/show/1/1": "alerts",
	} {
		other := "items.read"
		if needs == "items" {
			other = "objects.read"
		}
		if a := s.key(s.ann.person, other).do("GET", "/member-api/v3/"+path); a.status != http.StatusForbidden || !strings.Contains(a.field("error"), needs+".read") {
			t.Errorf("%s without the permission: %d %s", path, a.status, a.text)
		}
		if a := (tool{s: s, header: http.Header{}}).do("GET", "/member-api/v3/"+path); a.status != http.StatusUnauthorized || a.header.Get("X-Content-Type-Options") == "" {
			t.Errorf("%s without a key: %d %s", path, a.status, a.text)
		}
	}
	whole := s.key(s.ann.person, "files.read").gets("files/show/1")
	if fmt.Sprint(whole.body["premis_events"], whole.body["checksums"], whole.body["storage_records"]) != "[] [] []" {
		t.Errorf("a token for files only reads %s", whole.text)
	}
	must.Get(s.db.Exec(t.Context(), `UPDATE users SET deactivated_at = now() WHERE id = 2`))(t)
	if a := s.other.do("GET", "/member-api/v3/items"); a.status != http.StatusUnauthorized {
		t.Errorf("a person who was deactivated: %d %s", a.status, a.text)
	}
}

// The limit is that of the server: requests to both APIs count, and those without a key too.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	s := newSiteAt(t, 1)
	bearer := tool{s: s, header: http.Header{"Authorization": {"Bearer " + s.ann.header.Get("X-Pharos-Api-Key")}}}
	for name, ask := range map[string]func() answer{
		"a tool": func() answer {
			bearer.do("GET", "/api/v1/me")
			return s.ann.do("GET", "/member-api/v3/items?per_page=1")
		},
		"without a key": func() answer { return tool{s: s, header: http.Header{}}.do("GET", "/member-api/v3/items") },
	} {
		var a answer
		for range 10 {
			if a = ask(); a.status == http.StatusTooManyRequests {
				break
			}
		}
		if a.status != http.StatusTooManyRequests || a.body["StatusCode"] != 429.0 || a.field("Error") == "" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s %v", name, a.status, a.text, a.header)
		}
	}
}
