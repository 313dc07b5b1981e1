package main

import (
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/handlers"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/storage/setup"
	"github.com/farol-preservation/farol/web/api"
)

// A receiving bucket lets pages of the server upload when its institution is registered, or
// when that is asked for; what is missing is reported. The server signs for the address that
// browsers reach.
func TestBrowsersAreAllowedToUpload(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const origin = "https://farol.example.org"
	s.settings["FAROL_WEB_URL"] = origin + "/"
	prefix := s.s3.Prefix
	s.farol("institution", "add", "new.edu", "--name", "New", "--create-buckets", "--receiving-bucket", prefix+"new-in", "--restore-bucket", prefix+"new-out")
	allows := func(bucket string) bool {
		t.Helper()
		ok := must.Get(setup.AllowsUploads(t.Context(), s.created(bucket).Conn(), origin))(t)
		return ok
	}
	if !allows(prefix+"new-in") || allows(prefix+"new-out") {
		t.Error("a new institution: its receiving bucket, and no other, should let pages of the server upload")
	}
	out, _ := s.exitOf("check", "--json")
	if !strings.Contains(out, "pages of "+origin+" may not upload to it") || !strings.Contains(out, "farol institution cors test.edu") || strings.Contains(out, "farol institution cors new.edu") {
		t.Errorf("check:\n%s", out)
	}
	s.farol("institution", "cors", "test.edu")
	if out, _ := s.exitOf("check", "--json"); strings.Contains(out, "institution cors") {
		t.Errorf("check:\n%s", out)
	}

	_, secret, err := s.registry.AddToken(t.Context(), record.Token{Name: "uploader", Institution: "test.edu", Permissions: []string{"deposits.make"}})
	if err != nil {
		t.Fatal(err)
	}
	with := maps.Clone(s.settings)
	with["FAROL_DATABASE_URL"] = testenv.WebURL(t, s.settings["FAROL_DATABASE_URL"])
	with["FAROL_WEB_ADDR"], with["FAROL_WEB_KEY"] = "127.0.0.1:0", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	delete(with, "FAROL_WEB_URL") // requests come under another name
	get := s.servedWeb(with, secret)
	if status, text := get("/api/v1/deposits"); status != http.StatusOK || !strings.Contains(text, `"items":[]`) {
		t.Errorf("deposits: %d %s", status, text)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"} {
		delete(with, name)
	}
	get = s.servedWeb(with, secret)
	if status, text := get("/api/v1/deposits"); status != http.StatusServiceUnavailable || !strings.Contains(text, "no connection to the receiving buckets") {
		t.Errorf("deposits without S3: %d %s", status, text)
	}
}

// What is signed is for the name that browsers know, and the page may send there.
func TestServerSignsForTheAddressOfBrowsers(t *testing.T) {
	s := newSite(t)
	for name, value := range s.settings {
		t.Setenv(name, value)
	}
	deposits := func(endpoint string) api.Deposits {
		config := settings.API{Web: settings.Web{S3Endpoint: endpoint}}
		return handlers.Of(t.Context(), &connect.Services{}, config, slog.New(slog.DiscardHandler), handlers.Deposits).Deposits
	}
	d := deposits("https://s3.example.org:8443/sub")
	if d.Endpoint != "https://s3.example.org:8443" {
		t.Errorf("the page may send to %q", d.Endpoint)
	}
	b, err := d.Public("bucket")
	if err != nil || !strings.HasPrefix(b.URL("k"), "https://s3.example.org:8443/sub/bucket/") {
		t.Errorf("%v, %v", b, err)
	}
	if d := deposits(""); d.Endpoint != s.settings["FAROL_S3_ENDPOINT"] {
		t.Errorf("without the setting, the page may send to %q", d.Endpoint)
	}
}
