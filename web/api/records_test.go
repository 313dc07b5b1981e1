package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// stock has an object with a file, its copy and checksum, events, and items live and ended,
// in each institution.
func (s *site) stock() {
	s.t.Helper()
	s.stockOf(s.test)
	s.stockOf(s.other)
	s.exec(`UPDATE work_items SET status = 'Cancelled' WHERE name = '3.tar'`)
}

// stockOf has these records in one institution.
func (s *site) stockOf(in record.Institution) {
	s.t.Helper()
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', n || '.tar', 'in', 'e' || n, 7, now() FROM generate_series(1, 3) n`, in.ID)
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		VALUES ($1, $2 || '/bag', 'A bag', 'institution', 'bag', 'e', 'Standard', 'p')`, in.ID, in.Identifier)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', 7, 'Standard', now() FROM intellectual_objects WHERE institution_id = $1`, in.ID)
	s.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'https://x/' || uuid, 'Standard-VA', 'b', uuid, now(), now() FROM generic_files WHERE institution_id = $1`, in.ID)
	s.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime)
		SELECT id, 'md5', md5(identifier), now() FROM generic_files WHERE institution_id = $1`, in.ID)
	s.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, identifier, event_type, date_time, detail, outcome, outcome_detail,
		outcome_information, object, agent) SELECT institution_id, id, gen_random_uuid(), 'ingestion', now(), 'd', 'Success', 'x', 'i', 'o', 'a'
		FROM intellectual_objects WHERE institution_id = $1`, in.ID)
}

// ids are those of a kind of record in an institution.
func (s *site) ids(in record.Institution) map[string]int64 {
	return map[string]int64{
		"items":   ask[int64](s, `SELECT min(id) FROM work_items WHERE institution_id = $1`, in.ID),
		"objects": ask[int64](s, `SELECT min(id) FROM intellectual_objects WHERE institution_id = $1`, in.ID),
		"files":   ask[int64](s, `SELECT min(id) FROM generic_files WHERE institution_id = $1`, in.ID),
	}
}

// Of each list and each record, people see what is of their institution; what is another's
// is as if it were not, to the byte.
func TestRecordsOfOthersAreAsIfTheyWereNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	own, others := s.ids(s.test), s.ids(s.other)
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	for _, role := range []string{registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin, registry.RoleAuditor} {
		c := s.in(role+"@test.edu", role, "test.edu")
		for _, o := range s.table.Rows() {
			kind, _, _ := strings.Cut(o.ID, ".")
			if o.Method != "GET" || own[kind] == 0 && kind != "events" || o.ID == "items.estimates" || // which has a test of its own
				!slices.Contains(permission.Of(role, true), o.Needs) { // what is not for these people is refused before anything is looked up
				continue
			}
			at := func(id int64, identifier string) answer {
				path := strings.ReplaceAll(o.Path, "{id}", fmt.Sprint(id))
				if strings.HasSuffix(path, "by-identifier") {
					path += "?identifier=" + identifier + map[string]string{"objects": "/bag", "files": "/bag/data/f"}[kind]
				} else if kind == "events" || kind == "files" && !strings.Contains(o.Path, "{id}") {
					path += "?institution=" + identifier
				}
				if kind == "events" {
					path += "&recorded_after=" + ask[string](s, `SELECT to_char(now() - interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
						|| '&recorded_before=' || to_char(now() + interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`)
				}
				return c.do("GET", path, nil)
			}
			mine, theirs, absent := at(own[kind], "test.edu"), at(others[kind], "other.edu"), at(987654321, "nothing.edu")
			without := slices.Contains([]string{"items.history", "items.groups", "items.progress", "items.files", "objects.holdings"}, o.ID) // what names no institution
			if mine.status != 200 && (!without || mine.status != 503) || !strings.Contains(mine.body, "test.edu") && kind != "files" && !without {
				t.Errorf("%s: the own: %d %s", o.ID, mine.status, mine.body)
			}
			if strings.Contains(o.Path, "{id}") || strings.Contains(o.Path, "by-identifier") {
				if theirs.status != 404 || theirs.body != absent.body {
					t.Errorf("%s: of another: %d %s, of nothing: %d %s", o.ID, theirs.status, theirs.body, absent.status, absent.body)
				}
			} else if strings.Contains(mine.body+theirs.body, "other.edu") {
				t.Errorf("%s shows another institution: %s %s", o.ID, mine.body, theirs.body)
			}
		}
	}
	for _, kind := range []string{"items", "objects", "files"} {
		for _, id := range []int64{own[kind], others[kind]} {
			staff.wants(200, "GET", fmt.Sprintf("/api/v1/%s/%d", kind, id), nil)
		}
	}
}

// Hosts and processes are for those who look after them.
func TestDepositorsSeeNoHosts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	id := s.ids(s.test)["items"]
	s.exec(`UPDATE work_items SET claim_token = claim_token + 1, status = 'Started', node = 'secret-host', pid = 7, worker = 'secret-worker', lease_expires_at = now() + interval '1 minute',
		stage_started_at = now(), attempt = 1, run_at = now() WHERE id = $1`, id)
	s.exec(`INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		SELECT id, claim_token, stage, 1, 'secret-host', 7, 'secret-worker' FROM work_items WHERE id = $1`, id)
	c, o := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("operator@archive.org", registry.RoleOperator, "")
	for _, path := range []string{"/api/v1/items", "/api/v1/items/%d", "/api/v1/items/%d/history", "/api/v1/items/%d/explain"} {
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, id)
		}
		if a := c.wants(200, "GET", path, nil); strings.Contains(a.body, "secret") {
			t.Errorf("%s: %s", path, a.body)
		}
		if a := o.wants(200, "GET", path, nil); !strings.Contains(a.body, "secret") {
			t.Errorf("an operator does not see the host at %s: %s", path, a.body)
		}
	}
	if a := c.do("GET", "/api/v1/items?worker=secret-worker", nil); a.status != 403 {
		t.Errorf("the filter worker: %d", a.status)
	}
	if a := o.do("GET", "/api/v1/objects", nil); a.status != 403 {
		t.Errorf("an operator sees records: %d", a.status)
	}
	for _, path := range []string{"/api/v1/institutions", fmt.Sprint("/api/v1/institutions/", s.test.ID)} {
		if a := o.wants(200, "GET", path, nil); strings.Contains(a.body, s.test.ReceivingBucket) || strings.Contains(a.body, s.test.RestoreBucket) || !strings.Contains(a.body, s.test.Name) {
			t.Errorf("an operator sees of institutions: %s", a.body)
		}
	}
}

// Decisions about items are those of the database's functions, with who decided.
func TestDecisionsAboutItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	id := s.ids(s.test)["items"]
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	at := fmt.Sprint("/api/v1/items/", id)
	tag := o.wants(200, "GET", at, nil).header.Get("ETag")
	decision, _, two := strings.Cut(strings.Trim(tag, `"`), "/")
	if !two {
		t.Errorf("the tag is %s", tag)
	}
	if a := o.do("PATCH", at, `{"priority": -5}`, "If-Match", `"9`+decision+`/`); a.status != 412 {
		t.Errorf("with the tag of another decision: %d %s", a.status, a.body)
	}
	// What is shown may change without what a decision depends on.
	a := o.wants(200, "PATCH", at, `{"priority": -5}`, "If-Match", `"`+decision+`/other"`)
	if a.header.Get("ETag") == tag || !strings.Contains(a.body, `"priority":-5`) {
		t.Errorf("tag %s, %s", a.header.Get("ETag"), a.body)
	}
	if a := o.do("POST", at+"/cancel", `{"reason": "too late"}`, "If-Match", tag); a.status != 412 || a.code() != "changed" {
		t.Errorf("with an old tag: %d %s", a.status, a.body)
	}
	if a := o.do("POST", at+"/release", nil); a.status != 409 || a.code() != "refused" || strings.Contains(a.body, "SQLSTATE") {
		t.Errorf("to release what does not run: %d %s", a.status, a.body)
	}
	if a := o.do("POST", at+"/requeue", `{"stage": "Nowhere"}`); a.status != 404 && a.status != 409 {
		t.Errorf("to requeue to nowhere: %d %s", a.status, a.body)
	}
	a = o.wants(200, "POST", at+"/requeue", `{"stage": "Receive"}`, "Idempotency-Key", "k")
	if again := o.wants(200, "POST", at+"/requeue", `{"stage": "Receive"}`, "Idempotency-Key", "k"); a.text("status") != "Pending" || again.body != a.body ||
		again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("ETag") != a.header.Get("ETag") || a.header.Get("ETag") == "" {
		t.Errorf("requeued: %v %s; sent again: %v %s", a.header, a.body, again.header, again.body)
	}
	if a := o.wants(200, "POST", at+"/cancel", `{"reason": "wrong bag"}`); a.text("status") != "Cancelled" || a.text("note") != "wrong bag" {
		t.Error(a.body)
	}
	if got := ask[string](s, `SELECT string_agg(DISTINCT actor, ' ') FROM work_item_audit WHERE work_item_id = $1`, id); got != "operator@archive.org" {
		t.Errorf("on record is %s", got)
	}
	got := ask[string](s, `SELECT string_agg(operation || ' ' || outcome, ', ' ORDER BY id) FROM actions WHERE subject_id = $1 AND subject_type = 'item'`, fmt.Sprint(id))
	if want := "items.set done, items.release refused, items.requeue refused, items.requeue done, items.cancel done"; got != want {
		t.Errorf("on record: %s, want %s", got, want)
	}
}

// Objects come by their last update if that is asked for, page by page, and the lists of an
// object and a file have what belongs to them.
func TestListsOfObjects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		SELECT institution_id, identifier || n, 'T', bag_name || n, 'p', 'e' FROM intellectual_objects, generate_series(1, 4) n WHERE institution_id = $1`, s.test.ID)
	s.exec(`UPDATE intellectual_objects SET updated_at = now() - (id * 7 % 5) * interval '1 hour'`)
	c := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	type page struct {
		Items []struct{ Identifier string }
		Next  string
	}
	var got []string
	for at := "/api/v1/objects?sort=-updated_at&limit=2"; at != ""; {
		var p page
		c.reads(c.wants(200, "GET", at, nil), &p)
		for _, o := range p.Items {
			got = append(got, o.Identifier)
		}
		at = p.Next
	}
	want := ask[[]string](s, `SELECT array_agg(identifier ORDER BY updated_at DESC, id DESC) FROM intellectual_objects WHERE institution_id = $1`, s.test.ID)
	if !slices.Equal(got, want) {
		t.Errorf("by the last update: %v, want %v", got, want)
	}
	if a := c.do("GET", "/api/v1/objects?sort=-updated_at&before=7", nil); a.status != 400 {
		t.Errorf("a beginning that the order does not have: %d %s", a.status, a.body)
	}
	ids := s.ids(s.test)
	for path, want := range map[string]int{
		fmt.Sprint("/api/v1/objects/", ids["objects"], "/files"):  ask[int](s, `SELECT count(*) FROM generic_files WHERE intellectual_object_id = $1`, ids["objects"]),
		fmt.Sprint("/api/v1/objects/", ids["objects"], "/events"): ask[int](s, `SELECT count(*) FROM premis_events WHERE intellectual_object_id = $1 AND generic_file_id IS NULL`, ids["objects"]),
		fmt.Sprint("/api/v1/files/", ids["files"], "/events"):     ask[int](s, `SELECT count(*) FROM premis_events WHERE generic_file_id = $1`, ids["files"]),
	} {
		var p page
		c.reads(c.wants(200, "GET", path, nil), &p)
		if len(p.Items) != want || want == 0 && strings.Contains(path, "objects") {
			t.Errorf("%s has %d, want %d", path, len(p.Items), want)
		}
	}
	theirs := s.ids(s.other)
	for _, path := range []string{fmt.Sprint("objects/", theirs["objects"], "/files"), fmt.Sprint("objects/", theirs["objects"], "/events"), fmt.Sprint("files/", theirs["files"], "/events")} {
		if a := c.do("GET", "/api/v1/"+path, nil); a.status != 404 {
			t.Errorf("%s of another: %d %s", path, a.status, a.body)
		}
	}
}

// A list that would read a large table says which filter to add; values of filters are
// never SQL.
func TestListsThatAreTooBroad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	c := s.in("staff@archive.org", registry.RoleAdmin, "")
	for _, path := range []string{"/api/v1/files", "/api/v1/events"} {
		if a := c.do("GET", path, nil); a.status != 400 || a.code() != "too-broad" || !strings.Contains(a.text("detail"), "add ") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := c.wants(200, "GET", "/api/v1/items?count=true&limit=2&status=Pending&status=Cancelled", nil); !strings.Contains(a.body, `"count":{"value":6,"exact":true}`) {
		t.Error(a.body)
	}
	for _, hostile := range []string{"' OR 1=1 --", "%00", "\\", "%F0%9F%92%A9", "$1", "@institution", "%27%3B+DROP+TABLE+users%3B--"} {
		hostile = strings.ReplaceAll(strings.ReplaceAll(hostile, " ", "+"), "\\", "%5C")
		for _, query := range []string{
			"items?name=", "items?object=", "items?institution=", "items?error_code=", "items?stage=", "objects?identifier=", "objects?identifier_prefix=",
			"objects?alt_identifier_prefix=", "files?object=", "files?digest=", "files?uuid=", "files?identifier_prefix=", "events?file=1&type=", "events?file=1&identifier=",
		} {
			if a := c.do("GET", "/api/v1/"+query+hostile, nil); a.status != 400 && a.status != 409 && (a.status != 200 || !strings.Contains(a.body, `"items":[]`)) || strings.Contains(a.body, "SQLSTATE") {
				t.Errorf("%s%s: %d %s", query, hostile, a.status, a.body)
			}
		}
	}
}
