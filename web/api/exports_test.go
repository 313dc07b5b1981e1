package api_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// made is an export as it is answered.
type made struct {
	ID             int64
	Kind, Content  string
	Bytes, Records *int64
	SHA256         *string
	RequestedBy    string  `json:"requested_by"`
	Institution    string  `json:"institution_identifier"`
	CompletedAt    *string `json:"completed_at"`
	TakenAt        *string `json:"taken_at"`
}

func (c *caller) exports(kind, institution, object string) (m made) {
	c.s.t.Helper()
	c.reads(c.wants(http.StatusCreated, "POST", "/api/v1/exports", exportOf(kind, institution, object)), &m)
	return m
}

func exportOf(kind, institution, object string) map[string]any {
	scope := map[string]string{}
	if institution != "" {
		scope["institution"] = institution
	}
	if object != "" {
		scope["object"] = object
	}
	return map[string]any{"kind": kind, "scope": scope}
}

// An export is made, downloaded with its digest in the trailer, and on record with the same.
func TestExportIsDownloaded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	admin := s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	for kind, has := range map[string]string{"inventory": "test.edu/bag/data/f,test.edu/bag,data/f,", "events": `{"about":"test.edu/bag",`, "premis": "</premis>", "manifest": "", "evidence": "premis.xml"} {
		object := ""
		if kind == "evidence" {
			object = "test.edu/bag"
		}
		m := admin.exports(kind, "", object)
		if m.Kind != kind || m.Institution != "test.edu" || m.RequestedBy != "a@test.edu" || m.SHA256 != nil || m.Content != fmt.Sprintf("/api/v1/exports/%d/content", m.ID) {
			t.Errorf("%s: %+v", kind, m)
		}
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+m.Content, nil))(t)
		got, err := admin.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(got.Body)
		got.Body.Close() //nolint:errcheck // it was read
		sum := sha256.Sum256(content)
		if err != nil || got.StatusCode != http.StatusOK || !strings.Contains(string(content), has) || strings.Contains(string(content), "other.edu") ||
			got.Trailer.Get("Repr-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" || !strings.HasPrefix(got.Header.Get("Content-Disposition"), "attachment; filename=") {
			t.Errorf("%s: %d %v %v %v: %s", kind, got.StatusCode, err, got.Header, got.Trailer, content)
		}
		var after made
		admin.reads(admin.wants(http.StatusOK, "GET", fmt.Sprintf("/api/v1/exports/%d", m.ID), nil), &after)
		if after.SHA256 == nil || *after.SHA256 != hex.EncodeToString(sum[:]) || *after.Bytes != int64(len(content)) || after.CompletedAt == nil || after.TakenAt == nil {
			t.Errorf("%s: on record: %+v", kind, after)
		}
	}
	// Of a download by another person at another time, both digests stay on record.
	m, second := admin.exports("inventory", "", ""), s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	admin.wants(http.StatusOK, "GET", m.Content, nil)
	first := admin.wants(http.StatusOK, "GET", fmt.Sprintf("/api/v1/exports/%d", m.ID), nil).text("sha256")
	s.exec(`UPDATE generic_files SET size = size + 1`)
	second.wants(http.StatusOK, "GET", m.Content, nil)
	last := admin.wants(http.StatusOK, "GET", fmt.Sprintf("/api/v1/exports/%d", m.ID), nil).text("sha256")
	if got := ask[string](s, `SELECT coalesce(string_agg(actor || ' ' || (detail->>'sha256'), ', ' ORDER BY id), '') FROM actions
		WHERE operation = 'exports.content' AND subject_id = $1 AND institution_id = $2`, fmt.Sprint(m.ID), s.test.ID); first == last || got != "a@test.edu "+first+", second@test.edu "+last {
		t.Errorf("downloads on record: %s; first %s, last %s", got, first, last)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'exports.make' AND outcome = 'done' AND actor = 'a@test.edu' AND institution_id = $1 AND subject_id <> ''`, s.test.ID); n != 6 {
		t.Errorf("%d actions", n)
	}
}

// Who may export what: a member the own records, an institutional_user no events, and staff
// those of whom they name. What is another's is as if it were not, to the byte.
func TestExportsAreOfTheScope(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	staff, auditor := s.in("s@archive.org", registry.RoleAdmin, ""), s.in("r@other.edu", registry.RoleAuditor, "other.edu")
	user, admin := s.in("u@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	user.exports("inventory", "", "")
	user.exports("manifest", "", "test.edu/bag")
	auditor.exports("events", "other.edu", "")
	evidence := admin.exports("evidence", "", "test.edu/bag")
	theirs := staff.exports("inventory", "other.edu", "")
	for _, kind := range []string{"events", "premis", "evidence"} {
		if a := user.wants(http.StatusConflict, "POST", "/api/v1/exports", exportOf(kind, "", "test.edu/bag")); a.code() != "refused" {
			t.Errorf("%s: %s", kind, a.body)
		}
	}
	for _, path := range []string{"/api/v1/exports/%d", "/api/v1/exports/%d/content"} {
		absent := admin.wants(http.StatusNotFound, "GET", fmt.Sprintf(path, 999999), nil)
		if a := admin.wants(http.StatusNotFound, "GET", fmt.Sprintf(path, theirs.ID), nil); a.body != absent.body {
			t.Errorf("another's: %s, none: %s", a.body, absent.body)
		}
		if a := user.wants(http.StatusNotFound, "GET", fmt.Sprintf(path, evidence.ID), nil); a.body != absent.body {
			t.Errorf("an evidence pack for a user: %s", a.body)
		}
	}
	absent := admin.wants(http.StatusNotFound, "POST", "/api/v1/exports", exportOf("inventory", "nobody.edu", ""))
	for _, of := range [][2]string{{"other.edu", ""}, {"", "other.edu/bag"}, {"", "other.edu/nothing"}} {
		if a := admin.wants(http.StatusNotFound, "POST", "/api/v1/exports", exportOf("inventory", of[0], of[1])); a.body != absent.body {
			t.Errorf("%q: %s, none: %s", of, a.body, absent.body)
		}
	}
	staff.wants(http.StatusNotFound, "POST", "/api/v1/exports", exportOf("inventory", "", "")) // nobody has said whose
	for _, wrong := range []any{exportOf("everything", "", ""), exportOf("", "", ""), map[string]any{"kind": "inventory", "scope": map[string]any{"all": true}}} {
		admin.wants(http.StatusBadRequest, "POST", "/api/v1/exports", wrong)
	}
	if a := admin.wants(http.StatusConflict, "POST", "/api/v1/exports", exportOf("evidence", "", "")); !strings.Contains(a.body, "one object") {
		t.Errorf("an evidence pack of everything: %s", a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'exports.make' AND outcome = 'refused' AND actor = 'u@test.edu'`); n != 3 {
		t.Errorf("%d refusals are on record", n)
	}
}

// many gives the object of test.edu files enough that the beginning of an export fits into no
// buffer on the way.
func (s *site) many(n int) {
	s.t.Helper()
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/' || n || repeat('x', 900), gen_random_uuid(), 'text/plain', 7, 'Standard', now()
		FROM intellectual_objects CROSS JOIN generate_series(1, $1) n WHERE identifier = 'test.edu/bag'`, n)
}

// begun starts to download an export, and reads its first line.
func (c *caller) begun(m made) (body *bufio.Reader, end func()) {
	c.s.t.Helper()
	conn := must.Get((&net.Dialer{}).DialContext(c.s.t.Context(), "tcp", strings.TrimPrefix(c.s.url, "http://")))(c.s.t)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", m.Content, strings.TrimPrefix(c.s.url, "http://"), c.token)
	body = bufio.NewReader(conn)
	if line, err := body.ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
		c.s.t.Fatalf("%q, %v", line, err)
	}
	return body, func() { conn.Close() } //nolint:errcheck // the test is done with it
}

// A caller downloads two exports at once, and has to wait with the third. One who is gone
// makes place.
func TestTwoDownloadsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.many(20_000)
	program := s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu").program("exports.make")
	m := program.exports("inventory", "", "")
	_, end := program.begun(m)
	_, endOther := program.begun(m)
	defer endOther()
	a := program.wants(http.StatusTooManyRequests, "GET", m.Content, nil)
	if a.code() != "rate-limited" || a.header.Get("Retry-After") == "" {
		t.Errorf("the third: %v %s", a.header, a.body)
	}
	end()
	for program.do("GET", m.Content, nil).status == http.StatusTooManyRequests {
		if t.Context().Err() != nil {
			t.Fatal("the place is never free")
		}
	}
}

// Content that breaks off breaks the connection: its beginning is not taken for the whole,
// and no digest is on record.
func TestBrokenDownloadLooksBroken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.many(20_000)
	program := s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu").program("exports.make")
	m := program.exports("inventory", "", "")
	body, end := program.begun(m)
	defer end()
	for killed := 0; killed == 0; {
		killed = ask[int](s, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND xact_start IS NOT NULL AND query LIKE '%f.identifier, o.identifier AS object%' AND pid <> pg_backend_pid()`)
	}
	content, err := io.ReadAll(body)
	if strings.HasSuffix(string(content), "\r\n0\r\n\r\n") || strings.Contains(string(content), "Repr-Digest: sha-256") {
		t.Errorf("it looks whole: %d bytes, %v", len(content), err)
	}
	if n := ask[int](s, `SELECT count(*) FROM exports WHERE completed_at IS NOT NULL`); n != 0 {
		t.Error("it is on record as complete")
	}
}

// An export that is too large to be sent in time becomes a work item of the institution, and
// its content is in the restoration bucket.
func TestLargeExportIsAnItem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.many(10)
	s.api.Streamed = 10
	admin, other := s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("a@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	var m struct {
		ID          int64
		Content     *string
		Item        int64 `json:"work_item_id"`
		Bucket, Key string
	}
	admin.reads(admin.wants(http.StatusCreated, "POST", "/api/v1/exports", exportOf("premis", "", "")), &m)
	if m.Content != nil || m.Item == 0 || m.Bucket != "out.test.edu" || m.Key != fmt.Sprintf("test.edu/exports/%d/test.edu-premis.xml", m.ID) {
		t.Errorf("%+v", m)
	}
	item := fmt.Sprintf("/api/v1/items/%d", m.Item)
	if a := admin.wants(http.StatusOK, "GET", item, nil); a.text("action") != "Export" || a.text("user") != "a@test.edu" || a.text("status") != "Pending" {
		t.Error(a.body)
	}
	other.wants(http.StatusNotFound, "GET", item, nil)
	if a := admin.wants(http.StatusConflict, "GET", fmt.Sprintf("/api/v1/exports/%d/content", m.ID), nil); a.code() != "refused" {
		t.Error(a.body)
	}
	if a := admin.wants(http.StatusOK, "GET", "/api/v1/items?institution=test.edu&action=Export", nil); !strings.Contains(a.body, fmt.Sprintf(`"id":%d,`, m.Item)) {
		t.Error(a.body)
	}
	if a := admin.wants(http.StatusConflict, "POST", "/api/v1/exports", exportOf("evidence", "", "test.edu/bag")); !strings.Contains(a.body, "more than 10 files") {
		t.Error(a.body)
	}
	if m := other.exports("inventory", "", ""); m.Content == "" {
		t.Errorf("a small one: %+v", m)
	}
	// The object itself waits for nothing.
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE waits_for IS NOT NULL`); n != 0 {
		t.Errorf("%d items wait", n)
	}
}

// Exports are listed within the scope, and those that an institutional_user could not make
// are none of that person's.
func TestExportsAreListed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO exports (kind, institution_id) VALUES ('inventory', $1), ('events', $1), ('inventory', $2)`, s.test.ID, s.other.ID)
	ids := ask[[]int64](s, `SELECT array_agg(id ORDER BY id DESC) FROM exports`)
	for c, want := range map[*caller][]int64{
		s.in("s@archive.org", registry.RoleAdmin, ""):                         ids,
		s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu"):       ids[1:],
		s.in("u@test.edu", registry.RoleInstitutionalUser, "test.edu"):        ids[2:],
		s.in("other@other.edu", registry.RoleInstitutionalAdmin, "other.edu"): ids[:1],
	} {
		if got := c.walk("/api/v1/exports?limit=1"); !slices.Equal(got, want) {
			t.Errorf("%s lists %v, want %v", c.person.Email, got, want)
		}
		if got := c.walk("/api/v1/exports?institution=other.edu"); len(got) != len(want) && len(got) > 1 || slices.Contains(got, ids[1]) {
			t.Errorf("%s lists %v of other.edu", c.person.Email, got)
		}
	}
}
