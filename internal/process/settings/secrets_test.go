package settings

import (
	"os"
	"path/filepath"
	"testing"
)

// To replace a secret in its file, nothing is restarted. While the file is being replaced, the secret of
// before counts; one that was given itself stays.
func TestSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	const key, other = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	type all struct {
		Database Database
		Redis    Redis
		Mail     Mail
		Web      Web
		Read     Read
		Traces   Traces
	}
	values := map[string][2]string{
		"FAROL_DATABASE_URL":            {"postgres://u:one@h/farol", "postgres://u:two@h/farol"},
		"FAROL_DATABASE_DIRECT_URL":     {"postgres://v:one@h/farol", "postgres://v:two@h/farol"},
		"FAROL_REDIS_URL":               {"redis://:one@h", "redis://:two@h"},
		"FAROL_SMTP_PASSWORD":           {"one", "two"},
		"FAROL_READ_TOKEN":              {"sixteen letters 1", "sixteen letters 2"},
		"OTEL_EXPORTER_OTLP_HEADERS":    {"key=one", "key=two"},
		"FAROL_WEB_KEY":                 {key, other + "," + key},
		"FAROL_OIDC_TEST_CLIENT_SECRET": {"one of theirs", "two of theirs"},
	}
	dir := t.TempDir()
	given := map[string]string{
		"FAROL_SMTP_URL": "smtp://farol@mail.example.org", "FAROL_MAIL_FROM": "farol@example.org", "FAROL_WEB_URL": "https://farol.example.org",
		"FAROL_OIDC_TEST_ISSUER": "https://test.edu", "FAROL_OIDC_TEST_CLIENT_ID": "farol", "FAROL_OIDC_TEST_DOMAINS": "test.edu",
	}
	inFiles := map[string]string{}
	for name, value := range given {
		inFiles[name] = value
	}
	write := func(which int) {
		t.Helper()
		for name, value := range values {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(value[which]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0)
	for name, value := range values {
		given[name], inFiles[name+fileSuffix] = value[0], filepath.Join(dir, name)
	}
	load := func(environ map[string]string) all {
		t.Helper()
		c, err := Load(environ, all{})
		if err != nil {
			t.Fatal(err)
		}
		c.Web.providers = (&reader{environ: environ}).readProviders()
		return c
	}
	says := func(when string, c all, which int) {
		t.Helper()
		session := Session{c.Database}
		session.check(&reader{environ: inFiles})
		header, err := c.Traces.Header()
		if err != nil {
			t.Error(err)
		}
		now := map[string]string{
			"OTEL_EXPORTER_OTLP_HEADERS": "key=" + header.Get("Key"),
			"FAROL_DATABASE_URL":         c.Database.CurrentURL(), "FAROL_DATABASE_DIRECT_URL": c.Database.CurrentDirect(), "FAROL_REDIS_URL": c.Redis.CurrentURL(),
			"FAROL_SMTP_PASSWORD": c.Mail.CurrentPassword(), "FAROL_WEB_KEY": c.Web.CurrentKey(), "FAROL_READ_TOKEN": c.Read.CurrentToken(),
			"FAROL_OIDC_TEST_CLIENT_SECRET": c.Web.Providers()[0].CurrentSecret(),
		}
		for name, value := range values {
			if now[name] != value[which] {
				t.Errorf("%s, %s is %q, want %q", when, name, now[name], value[which])
			}
		}
		if got, want := session.CurrentURL(), values["FAROL_DATABASE_DIRECT_URL"][which]; got != want {
			t.Errorf("%s, who needs a session goes to %q, want %q", when, got, want)
		}
	}
	text, files := load(given), load(inFiles)
	says("at the start", files, 0)
	write(1)
	says("after the files were replaced", files, 1)
	says("with values that were given", text, 0)
	for name := range values {
		if err := os.Truncate(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	says("with empty files", files, 0)
}
