package api_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
)

// hidden is where the numbers of records begin that the institution hidden.edu has.
const hidden = 9_000_000_000

var (
	ofHidden = regexp.MustCompile(`hidden|900000\d{4}\b`)
	repeated = regexp.MustCompile(`(before|after_identifier)=[^&"\\]*`) // in next, as the request had it
)

// twoWorlds is a site with three institutions. People of the first ask for lists
// with values of the last.
type twoWorlds struct {
	*site
	r       *rand.Rand
	own     []*caller
	theirs  []*caller
	values  map[string][]string // by the name of a parameter; "": of the others
	numbers map[string][]string // by the kind of a record
	tags    []string            // of records of hidden.edu
}

// fill gives an institution records of every kind that people list, with the same names as
// in other institutions where names may be the same.
func (s *site) fill(in record.Institution) (callers []*caller) {
	s.t.Helper()
	s.parked(in, 12)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT o.institution_id, o.id, o.identifier || '/data/' || n, gen_random_uuid(), 'text/plain', n, 'Standard', now()
		FROM intellectual_objects o, generate_series(1, 5) n WHERE institution_id = $1`, in.ID)
	s.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, generic_file_id, identifier, event_type, date_time, detail, outcome, outcome_detail,
		outcome_information, object, agent) SELECT institution_id, intellectual_object_id, id, gen_random_uuid(), 'fixity check', now(), 'd', 'Failure', 'x', 'i', 'o', 'a'
		FROM generic_files WHERE institution_id = $1`, in.ID)
	for _, role := range []string{registry.RoleInstitutionalAdmin, registry.RoleInstitutionalUser, registry.RoleAuditor} {
		callers = append(callers, s.in(role+"@"+in.Identifier, role, in.Identifier))
		s.alert(in.Identifier, in, 0)
		s.alert(in.Identifier+" "+role, in, callers[len(callers)-1].person.ID)
	}
	admin := callers[0]
	for i, path := range []string{"deletions", "restorations"} {
		body := []string{`{"identifiers": ["%s/bag/data/1", "%[1]s/bag/data/2"]}`, `{"file": "%s/bag/data/f"}`}[i]
		admin.wants(http.StatusCreated, "POST", "/api/v1/"+path, fmt.Sprintf(body, in.Identifier), "Idempotency-Key", path)
	}
	admin.wants(http.StatusCreated, "POST", "/api/v1/exports", `{"kind": "inventory"}`)
	second := s.in("second@"+in.Identifier, registry.RoleInstitutionalAdmin, in.Identifier)
	id := ask[int64](s, `SELECT max(id) FROM deletion_requests`)
	second.wants(http.StatusOK, "POST", fmt.Sprintf("/api/v1/deletions/%d/approve", id), nil)
	s.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url)
		SELECT id, generic_file_id, t, 'b', 'k', 'u' FROM work_items, unnest('{A,B,C}'::text[]) t WHERE deletion_request_id = $1 AND generic_file_id IS NOT NULL`, id)
	return callers
}

func newTwoWorlds(t *testing.T) *twoWorlds {
	t.Helper()
	s := newSite(t)
	w := &twoWorlds{site: s, numbers: map[string][]string{}, r: rand.New(rand.NewPCG(23, 11))}
	s.stock()
	s.old()
	w.own = s.fill(s.test)
	s.spoiled(s.test)
	s.exec(`SELECT setval(quote_ident(schemaname) || '.' || quote_ident(sequencename), 9000000000) FROM pg_sequences WHERE schemaname = 'public' AND data_type = 'bigint'::regtype`)
	in := s.institution("hidden.edu")
	s.stockOf(in)
	w.theirs = s.fill(in)
	s.spoiled(in)
	list := func(sql string) []string {
		return ask[[]string](s, `SELECT coalesce(array_agg(DISTINCT v), '{}') FROM (`+sql+`) x (v) WHERE v <> ''`)
	}
	identifiers := list(`SELECT identifier FROM intellectual_objects UNION SELECT identifier FROM generic_files`)
	uuids := list(`SELECT uuid::text FROM generic_files UNION SELECT identifier::text FROM premis_events`)
	prefixes := append([]string{"", "test.edu/", "hidden.edu/", "h", "t"}, identifiers...)
	w.values = map[string][]string{
		"institution": {"test.edu", "hidden.edu", "hidden.edu", "other.edu", "none.edu"}, "identifier": append(identifiers, uuids...), "identifier_prefix": prefixes, "after_identifier": identifiers, "alt_identifier_prefix": prefixes,
		"uuid": uuids, "digest": list(`SELECT digest FROM checksums`), "name": list(`SELECT name FROM work_items`), "object": identifiers,
		"actor": list(`SELECT email FROM users`), "subject_type": list(`SELECT subject_type FROM actions`), "subject_id": list(`SELECT subject_id FROM actions`), "operation": list(`SELECT operation FROM actions`),
		"outcome": {"done", "refused"}, "stage": {"Receive", "Store", "Requested"}, "action": {"Ingest", "Delete", "Restore File"}, "error_code": {"timeout"},
		"storage_option": {"Standard"}, "type": {"ingestion", "fixity check", "Item Failed"}, "state": {"A", "D", "ready", "approved", "requested", "open", "waiting", "Pending", "Failed"}, "format": {"text/plain"},
		"role": {registry.RoleAuditor, registry.RoleInstitutionalUser}, "status": {"Pending", "Failed"},
	}
	tables := map[string]string{
		"items": "work_items", "objects": "intellectual_objects", "files": "generic_files", "deletions": "deletion_requests", "users": "users", "institutions": "institutions",
		"exports": "exports",
	}
	for kind, table := range tables {
		w.numbers[kind] = list(`SELECT id::text FROM ` + table)
		w.tags = append(w.tags, w.theirs[0].do("GET", fmt.Sprint("/api/v1/", kind, "/", w.numbers[kind][len(w.numbers[kind])-1]), nil).header.Get("ETag"))
	}
	w.numbers["restorations"] = list(`SELECT id::text FROM work_items WHERE action LIKE 'Restore%'`)
	w.numbers["object"], w.numbers["file"], w.numbers["deletion"] = w.numbers["objects"], w.numbers["files"], w.numbers["deletions"]
	return w
}

func oneOf[T any](r *rand.Rand, list []T) (v T) {
	if len(list) > 0 {
		v = list[r.IntN(len(list))]
	}
	return v
}

// value is a plausible value of a parameter of the document.
func (w *twoWorlds) value(kind, name string, schema map[string]any) string {
	if items, is := schema["items"].(map[string]any); is {
		schema = items
	}
	if enum, is := schema["enum"].([]any); is && w.r.IntN(10) > 0 {
		return fmt.Sprint(oneOf(w.r, enum))
	}
	switch {
	case name == "limit":
		return fmt.Sprint(1 + w.r.IntN(4))
	case name == "size_min" || name == "size_max":
		return fmt.Sprint(w.r.IntN(15))
	case name == "id", name == "before" && schema["type"] == "integer":
		return oneOf(w.r, append(w.numbers[kind], "1"))
	case schema["type"] == "integer":
		return oneOf(w.r, append(w.numbers[name], "1"))
	case schema["type"] == "boolean":
		return oneOf(w.r, []string{"true", "false"})
	case schema["format"] == "date-time" && strings.HasSuffix(name, "before"):
		return oneOf(w.r, []string{"2026-01-01T00:00:00Z", "2100-01-01T00:00:00Z"})
	case schema["format"] == "date-time":
		return oneOf(w.r, []string{"2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"})
	}
	return oneOf(w.r, w.values[name])
}

// query is a random request for a list or a record, with some of the parameters that the
// document has for it.
func (w *twoWorlds) query(o ops.Row) string {
	q := url.Values{}
	path := o.Path
	kind, _, _ := strings.Cut(o.ID, ".")
	seldom := oneOf(w.r, []int{4, 10, 1000})
	parameters, _ := theSpec.at("paths", o.Path, strings.ToLower(o.Method))["parameters"].([]any)
	for _, p := range parameters {
		p, _ := p.(map[string]any)
		name, _ := p["name"].(string)
		schema, _ := p["schema"].(map[string]any)
		switch {
		case p["in"] == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(w.value(kind, name, schema)))
		case name == "after" || p["in"] != "query":
		case name == "limit" || name == "count" || p["required"] == true || w.r.IntN(seldom) == 0 || name == "institution" && w.r.IntN(4) == 0:
			q.Set(name, w.value(kind, name, schema))
		}
	}
	if o.ID == "events.list" && w.r.IntN(2) == 0 { // or else nearly all are too broad
		now := ask[string](w.site, `SELECT to_char(now() - interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' ' || to_char(now() + interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`)
		from, to, _ := strings.Cut(now, " ")
		q.Set("recorded_after", from)
		q.Set("recorded_before", to)
	}
	return path + "?" + q.Encode()
}

// asked is a request and what it was answered.
type asked struct {
	who  *caller
	path string
	tag  string
	answer
}

func (a asked) again() asked {
	a.answer = a.who.do("GET", a.path, nil, "If-None-Match", a.tag)
	return a
}

// leak is what an answer shows of hidden.edu; "": nothing. What a refusal repeats of the
// request is nothing.
func (a asked) leak() string {
	sent, err := url.QueryUnescape(a.path)
	if err != nil {
		return err.Error()
	}
	texts := []string{repeated.ReplaceAllString(a.body, ""), a.header.Get("ETag")}
	if next := a.text("next"); next != "" {
		u, err := url.Parse(next)
		if err != nil {
			return err.Error()
		}
		cursor, err := base64.RawURLEncoding.DecodeString(u.Query().Get("after"))
		if err != nil {
			return err.Error()
		}
		texts = append(texts, string(cursor))
	}
	for _, text := range texts {
		for _, found := range ofHidden.FindAllString(text, -1) {
			if a.status == http.StatusOK || !strings.Contains(sent, found) {
				return found
			}
		}
	}
	return ""
}

// Of another institution nothing is shown, by whatever filters, numbers, cursors and ETags:
// random requests for lists and records are answered as they are without that institution,
// to the byte. Files of an item are in Redis, and uploads in S3: TestUploadsOfOthersDoNotExist
// asks for those.
func TestListsShowNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := newTwoWorlds(t)
	lists := slices.DeleteFunc(w.table.Rows(), func(o ops.Row) bool {
		byID := strings.HasSuffix(o.Path, "{id}") || strings.HasSuffix(o.Path, "by-identifier") || o.ID == "items.history" || o.ID == "items.explain"
		return o.Method != http.MethodGet || o.ID == "items.files" || o.ID == "deposits.show" || theSpec.parameter(o, "limit") == nil && !byID
	})
	n := testenv.Soak(60_000)
	var all []asked
	rows, cursors := map[string]int{}, 0
	for range n {
		o := oneOf(w.r, lists)
		q := asked{who: oneOf(w.r, w.own), path: w.query(o), tag: oneOf(w.r, append(w.tags, `"1"`))}
		if w.r.IntN(3) == 0 {
			theirs := asked{who: oneOf(w.r, w.theirs), path: q.path}.again()
			if strings.Contains(theirs.body, "test.edu") && theirs.status == http.StatusOK {
				t.Errorf("%s %s shows them test.edu: %s", o.ID, q.path, theirs.body)
			}
			if next := theirs.text("next"); next != "" {
				q.path, cursors = next, cursors+1
			}
		}
		q = q.again()
		if found := q.leak(); found != "" {
			t.Fatalf("%s %s shows %s: %d %s", o.ID, q.path, found, q.status, q.body)
		}
		if q.status == http.StatusNotModified {
			t.Fatalf("%s %s is what has the tag %s of another institution", o.ID, q.path, q.tag)
		}
		if q.status == http.StatusOK && !strings.Contains(q.body, `"items":[]`) {
			rows[o.ID]++
		}
		all = append(all, q)
	}
	w.remove()
	for _, q := range all {
		if now := q.again(); now.status != q.status || now.body != q.body || now.header.Get("ETag") != q.header.Get("ETag") {
			t.Fatalf("%s: with another institution there: %d %s\nwithout it: %d %s", q.path, q.status, q.body, now.status, now.body)
		}
	}
	for _, o := range lists {
		if rows[o.ID] == 0 && !strings.HasPrefix(o.ID, "plans.") && o.ID != "items.next" { // which they may not see
			t.Errorf("%s has shown nothing in %d requests: this test does not test it", o.ID, n/len(lists))
		}
	}
	testenv.Soaked(t, 2*n, "requests for lists and records, with and without another institution")
	if cursors < n/50 {
		t.Errorf("only %d cursors of another institution", cursors)
	}
	t.Logf("%d requests to %d operations, %d with a cursor of another institution; with rows: %v", n, len(lists), cursors, rows)
}

// remove removes hidden.edu with all that it has, without the rules of the database: so
// there never was such an institution.
func (w *twoWorlds) remove() {
	w.t.Helper()
	statements := ask[string](w.site, `SELECT string_agg(format('DELETE FROM %I WHERE %I >= %s', table_name, column_name, $1::bigint), '; ')
		FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type = 'bigint' AND (column_name = 'id' OR column_name LIKE '%\_id')`, int64(hidden))
	w.exec(`SET session_replication_role = replica; ` + statements + `; RESET session_replication_role`)
}

// parameter is one of an operation in the document; nil: it has no such parameter.
func (s *spec) parameter(o ops.Row, name string) map[string]any {
	parameters, _ := s.at("paths", o.Path, strings.ToLower(o.Method))["parameters"].([]any)
	for _, p := range parameters {
		if p, is := p.(map[string]any); is && p["name"] == name {
			return p
		}
	}
	return nil
}
