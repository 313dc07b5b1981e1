package api_test

import (
	"bytes"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// spec is the OpenAPI document of the server, with which every answer in the tests of this
// package is compared, and which of its answers were seen.
type spec struct {
	doc    map[string]any
	schema *jsonschema.Compiler
	routes *http.ServeMux // finds the operation of a request as the server does

	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
	seen     map[string]bool // "GET /api/v1/items 200"
}

const specURL = "https://farol.test/openapi.json"

// theSpec is made once: the document does not depend on the site.
var theSpec struct { //nolint:gochecknoglobals // the tests of the package share it
	sync.Once
	*spec
}

// specOf reads the document of a server.
func specOf(t *testing.T, server http.Handler) *spec {
	t.Helper()
	theSpec.Do(func() {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/v1/openapi.json", nil))
		doc, err := jsonschema.UnmarshalJSON(w.Body)
		if err != nil || w.Code != http.StatusOK {
			t.Fatal(w.Code, err)
		}
		s := &spec{schema: jsonschema.NewCompiler(), routes: http.NewServeMux(), compiled: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
		s.schema.DefaultDraft(jsonschema.Draft2020)
		s.schema.AssertFormat()
		must.Do(t, s.schema.AddResource(specURL, doc))
		s.doc, _ = doc.(map[string]any)
		for path, item := range s.at("paths") {
			for method := range item.(map[string]any) { //nolint:forcetypeassert // huma made it
				s.routes.Handle(strings.ToUpper(method)+" "+path, http.NotFoundHandler())
			}
		}
		theSpec.spec = s
	})
	if theSpec.spec == nil {
		t.Fatal("the document of the API cannot be read: see the test that failed first")
	}
	return theSpec.spec
}

// at follows a path of names through the document.
func (s *spec) at(names ...string) map[string]any {
	here := s.doc
	for _, name := range names {
		here, _ = here[name].(map[string]any)
	}
	return here
}

// watch has a test fail for each answer that the document does not describe.
func (s *spec) watch(t *testing.T, server http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &seenAnswer{ResponseWriter: w, status: http.StatusOK}
		_, route := s.routes.Handler(r)
		server.ServeHTTP(seen, r)
		if method, path, is := strings.Cut(route, " "); is {
			if err := s.compare(method, path, r.Method == http.MethodHead, seen); err != nil {
				t.Errorf("%s %s: %v: %.2000s", r.Method, r.URL, err, seen.body.String())
			}
		}
	})
}

// seenAnswer is an answer that is written and kept.
type seenAnswer struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

func (a *seenAnswer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *seenAnswer) Write(p []byte) (int, error) {
	a.body.Write(p)
	return a.ResponseWriter.Write(p) //nolint:wrapcheck // as it is
}

func (a *seenAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// compare returns how an answer is not as the document describes it.
func (s *spec) compare(method, path string, head bool, a *seenAnswer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := fmt.Sprint(a.status)
	response := s.at("paths", path, strings.ToLower(method), "responses", status)
	if response == nil {
		return fmt.Errorf("%s is not in the document", status)
	}
	s.seen[method+" "+path+" "+status] = true
	content, _ := response["content"].(map[string]any)
	switch {
	case head:
		return nil
	case len(content) == 0 && a.body.Len() > 0:
		return fmt.Errorf("%s has a body", status)
	case len(content) == 0:
		return nil
	}
	kind, _, _ := mime.ParseMediaType(a.Header().Get("Content-Type")) //nolint:errcheck // "" is none of them
	if content["*/*"] != nil {
		return nil
	}
	if content[kind] == nil {
		return fmt.Errorf("%s is %q, want one of %v", status, kind, slices.Sorted(maps.Keys(content)))
	}
	if !strings.HasSuffix(kind, "json") {
		return nil
	}
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace
	return s.fits(fmt.Sprintf("%s#/paths/%s/%s/responses/%s/content/%s/schema", specURL, escaped(path), strings.ToLower(method), status, escaped(kind)), a.body.Bytes())
}

// fits returns how a value is not as a schema describes it.
func (s *spec) fits(schema string, value []byte) error {
	if s.compiled[schema] == nil {
		compiled, err := s.schema.Compile(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(schema))
		if err != nil {
			return err //nolint:wrapcheck // it names the schema
		}
		s.compiled[schema] = compiled
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err //nolint:wrapcheck // it says that this is no JSON
	}
	return s.compiled[schema].Validate(v) //nolint:wrapcheck // it says what is wrong
}
