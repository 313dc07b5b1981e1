package lease

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/request"
)

// spec is the OpenAPI document, and which of its answers were seen.
type spec struct {
	doc    map[string]any
	schema *jsonschema.Compiler

	mu   sync.Mutex
	seen map[string]bool // "POST /v1/claim 200"
}

const specURL = "https://farol.test/openapi.json"

func readSpec(t *testing.T) *spec {
	t.Helper()
	doc := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(openAPI)))(t)
	s := &spec{schema: jsonschema.NewCompiler(), seen: map[string]bool{}}
	s.schema.DefaultDraft(jsonschema.Draft2020)
	s.schema.AssertFormat()
	must.Do(t, s.schema.AddResource(specURL, doc))
	s.doc, _ = doc.(map[string]any)
	return s
}

// at follows a path of names through the document, and references on the way.
func (s *spec) at(names ...string) map[string]any {
	here := s.doc
	for _, name := range names {
		here, _ = here[name].(map[string]any)
		if to, ok := here["$ref"].(string); ok {
			here = s.at(strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
		}
	}
	return here
}

var itemPath = regexp.MustCompile(`^/v1/items/.*`)

// check fails the test unless the document describes such an answer to the call.
func (s *spec) check(t *testing.T, method, path string, answer *http.Response, body []byte) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	path = itemPath.ReplaceAllString(path, "/v1/items/{id}")
	call, status := strings.ToLower(method), fmt.Sprint(answer.StatusCode)
	response := s.at("paths", path, call, "responses", status)
	if response == nil {
		t.Errorf("%s %s answers %s, which is not in the document: %s", method, path, status, body)
		return
	}
	s.seen[method+" "+path+" "+status] = true
	content, _ := response["content"].(map[string]any)
	if len(content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s %s %s has a body: %s", method, path, status, body)
		}
		return
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	media, _ := content[kind].(map[string]any)
	schema, _ := media["schema"].(map[string]any)
	name, _ := schema["$ref"].(string)
	if media == nil {
		t.Errorf("%s %s %s is %q, want one of %v", method, path, status, kind, slices.Collect(maps.Keys(content)))
	} else if name != "" {
		s.fits(t, specURL+name, body)
	}
}

// fits fails the test unless a schema describes the value.
func (s *spec) fits(t *testing.T, schema string, value []byte) {
	t.Helper()
	compiled := must.Get(s.schema.Compile(schema))(t)
	v := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(value)))(t)
	if err := compiled.Validate(v); err != nil {
		t.Errorf("%s: %v", value, err)
	}
}

// All that the document describes happens, and what happens is in the document:
// call compares each answer with it.
func TestEveryAnswerIsDocumented(t *testing.T) {
	t.Parallel()
	who := access.Caller{}
	var denied error
	l := newLeases(t, func(o *Options) {
		o.Caller = func(*http.Request) (access.Caller, error) { return who, denied }
		o.MaxWaiting = -1
	})
	const reason = `, "code": "c", "reason": "r"`
	ends := map[string]string{"heartbeat": "", "finish": "", "release": "", "retry": reason, "fail": reason}
	try := func(status int, method, path, body string, header ...string) {
		t.Helper()
		got, answer := l.call(method, path, body, header...)
		if got != status {
			t.Errorf("%s %s %s: %d %v, want %d", method, path, body, got, answer, status)
		}
	}
	try(200, "GET", "/v1/openapi.json", "")
	try(204, "POST", "/v1/claim", scans)
	for _, body := range []string{
		`{`, `{} {}`, `{"worker": "a", "stages": ["Virus Scan"], "limit": 1}`, `{"worker": "", "stages": ["Virus Scan"]}`, `{"worker": "a"}`,
		`{"worker": "a\u0000", "stages": ["Virus Scan"]}`, `{"worker": "a", "stages": ["Stroe"]}`, `{"worker": "a", "stages": ["Virus Scan"], "max": 101}`,
		`{"worker": "a", "stages": ["Virus Scan"], "wait": 301}`, `{"worker": "a", "stages": ["Virus Scan"], "min_size": 5, "max_size": 5}`,
		`{"worker": "a", "stages": ["Virus Scan"], "institution": "nowhere.edu"}`, `{"worker": "a", "stages": ["Virus Scan"], "storage_options": ["standard"]}`,
		`{"worker": "a", "stages": ["Virus Scan"], "processing_timeout": -1}`, `{"worker": "a", "stages": ["Virus Scan"], "min_age": -1}`, `{"worker": "a", "stages": ["Virus Scan"], "pid": -1}`,
	} {
		try(400, "POST", "/v1/claim", body)
	}
	try(403, "POST", "/v1/claim", `{"worker": "a", "stages": ["Store"]}`)
	try(503, "POST", "/v1/claim", `{"worker": "a", "stages": ["Virus Scan"], "wait": 1}`) // nobody may wait here
	huge := `{"worker": "` + strings.Repeat("a", request.SmallBody) + `"}`
	try(413, "POST", "/v1/claim", huge)
	try(204, "POST", "/v1/claim", scans, "Content-Type", "application/x-www-form-urlencoded") // as curl has it
	for end, more := range ends {
		path := "/v1/" + end
		l.put("test.edu", 10)
		item := l.claimed(scans)
		try(400, "POST", path, `{"id": 1, "token": 0}`)
		try(404, "POST", path, `{"id": 999, "token": 1`+more+`}`)
		try(409, "POST", path, fmt.Sprintf(`{"id": %v, "token": 99%s}`, item["id"], more))
		try(413, "POST", path, huge)
		who = access.Caller{Stages: []registry.Stage{"OCR"}}
		try(403, "POST", path, ref(item, more))
		who, denied = access.Caller{}, &access.Error{Status: 401, Reason: "who is it?"}
		try(401, "POST", path, ref(item, more))
		denied = nil
		try(200, "POST", path, ref(item, more))
		testenv.Exec(t, l.db, `SELECT cancel(id) FROM work_items WHERE status <> 'Cancelled'`)
	}
	for _, body := range []string{`, "reason": ""`, `, "code": "Bad Code", "reason": "r"`, `, "code": "c", "reason": "` + strings.Repeat("r", 4001) + `"`} {
		try(400, "POST", "/v1/retry", `{"id": 1, "token": 1`+body+`}`)
		try(400, "POST", "/v1/fail", `{"id": 1, "token": 1`+body+`}`)
	}
	try(200, "GET", "/v1/items/1", "")
	try(400, "GET", "/v1/items/one", "")
	try(404, "GET", "/v1/items/999", "")
	who = access.Caller{Rights: []string{"pull"}}
	try(403, "GET", "/v1/items/1", "")
	who, denied = access.Caller{}, &access.Error{Status: 401, Reason: "who is it?"}
	try(401, "GET", "/v1/items/1", "")
	try(401, "POST", "/v1/claim", scans)
	denied = nil
	l.api.budget = request.NewBudget(request.Limits{MostBody: request.SmallBody, Grace: time.Millisecond})
	for _, path := range []string{"claim", "heartbeat", "finish", "retry", "fail", "release"} {
		never, _ := io.Pipe() // the transport closes it after the answer
		if status, answer := l.callWith("POST", "/v1/"+path, never); status != http.StatusRequestTimeout {
			t.Errorf("/v1/%s without its body: %d %v", path, status, answer)
		}
	}
	l.db.Close()
	try(503, "GET", "/v1/items/1", "")
	for end, more := range ends {
		try(503, "POST", "/v1/"+end, `{"id": 1, "token": 1`+more+`}`)
	}
	l.spec.allSeen(t)
}

// allSeen fails the test for each answer of the document that never came.
func (s *spec) allSeen(t *testing.T) {
	t.Helper()
	n := 0
	for path, calls := range s.at("paths") {
		for call := range calls.(map[string]any) { //nolint:forcetypeassert // or the document is none
			for status := range s.at("paths", path, call, "responses") {
				n++
				if key := strings.ToUpper(call) + " " + path + " " + status; !s.seen[key] {
					t.Errorf("never seen: %s", key)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d answers are in the document", n)
	}
}

// Requests as workers send them are those of the document.
func TestRequestsFitTheDocument(t *testing.T) {
	t.Parallel()
	s := readSpec(t)
	for name, body := range map[string]string{
		"ClaimRequest":     `{"worker": "anna", "node": "attic", "pid": 7, "stages": ["Virus Scan"], "max": 1, "min_size": 0, "max_size": 0, "institution": "test.edu", "storage_options": ["Standard"], "wait": 20.0, "min_age": 0.5, "processing_timeout": 0, "heartbeats": true}`,
		"HeartbeatRequest": `{"id": 1, "token": 2, "file": "data/a"}`, "FinishRequest": `{"id": 1, "token": 2, "note": "Clean."}`,
		"RetryRequest": `{"id": 1, "token": 2, "reason": "Away."}`, "FailRequest": `{"id": 1, "token": 2, "code": "virus-found", "reason": "Eicar."}`,
		"ReleaseRequest": `{"id": 1, "token": 2}`,
	} {
		s.fits(t, specURL+"#/components/schemas/"+name, []byte(body))
	}
}
