package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// servedWeb starts a server for people, and returns what asks it with a token.
func (s *site) servedWeb(settings map[string]string, token string) func(path string) (int, string) {
	s.t.Helper()
	p := startProcess(s.t, s.binary, s.t.TempDir(), settings, "serve", "--web")
	where := regexp.MustCompile(`msg=serving api="the REST API" addr=(\S+)`)
	p.eventually("the address", func() bool { return where.MatchString(p.said()) })
	at := "http://" + where.FindStringSubmatch(p.said())[1]
	return func(path string) (int, string) {
		s.t.Helper()
		r := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, at+path, nil))(s.t)
		r.Header.Set("Authorization", "Bearer "+token)
		client := http.Client{Timeout: testenv.Patience}
		response, err := client.Do(r)
		if err != nil {
			s.t.Fatal(err)
		}
		defer response.Body.Close()
		text := must.Get(io.ReadAll(response.Body))(s.t)
		return response.StatusCode, string(text)
	}
}

// A server shows how far items are, and what has become of their files, if it has the
// settings of Redis and S3; without them it serves the rest.
func TestServerShowsItemsInProgress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.farol("pause", "Store")
	id := s.depositSample()
	worker := s.worker()
	worker.eventually("the item to wait at Store", func() bool { i := s.item(id); return i.Stage == registry.Store && i.Status == registry.Pending })
	s.terminate(worker)
	_, secret, err := s.registry.AddToken(t.Context(), record.Token{Name: "dashboard", Permissions: []string{"items.read", "fixity.read"}})
	if err != nil {
		t.Fatal(err)
	}
	with := maps.Clone(s.settings)
	with["FAROL_DATABASE_URL"] = testenv.WebURL(t, s.settings["FAROL_DATABASE_URL"])
	with["FAROL_WEB_ADDR"], with["FAROL_WEB_KEY"], with["FAROL_FIXITY_DAYS"] = "127.0.0.1:0", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "33"
	get := s.servedWeb(with, secret)
	at := fmt.Sprint("/api/v1/items/", id)
	if status, text := get(at + "/files?limit=500"); status != http.StatusOK || strings.Count(text, `"state":"identified"`) != sampleFiles || !strings.Contains(text, `"known":true`) {
		t.Errorf("files: %d %s", status, text)
	}
	if status, text := get(at + "/progress"); status != http.StatusOK || !strings.Contains(text, `"stage":"Store","number":6`) {
		t.Errorf("progress: %d %s", status, text)
	}
	if status, text := get("/api/v1/fixity"); status != http.StatusOK || !strings.Contains(text, `"days":33`) {
		t.Errorf("fixity: %d %s", status, text)
	}

	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"} {
		delete(with, name)
	}
	get = s.servedWeb(with, secret)
	if status, text := get(at + "/files"); status != http.StatusServiceUnavailable || !strings.Contains(text, "does not read the staging bucket") {
		t.Errorf("files without S3: %d %s", status, text)
	}
	delete(with, "FAROL_REDIS_URL")
	get = s.servedWeb(with, secret)
	for _, path := range []string{"/files", "/progress"} {
		if status, text := get(at + path); status != http.StatusServiceUnavailable || !strings.Contains(text, "no connection to Redis") {
			t.Errorf("%s without Redis: %d %s", path, status, text)
		}
	}
	if status, text := get("/api/v1/health"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, text)
	}
}
