package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMailServersAreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]SMTPServer{
		"smtps://farol@mail.example.org":          {"mail.example.org", 465, true, "farol"},
		"smtp://farol@mail.example.org":           {"mail.example.org", 587, false, "farol"},
		"smtp://farol%40example.org@[::1]:25":     {"::1", 25, false, "farol@example.org"},
		"smtps://farol@mail.example.org:10465/":   {"mail.example.org", 10465, true, "farol"},
		"smtp://farol@mail-relay.example.org:587": {"mail-relay.example.org", 587, false, "farol"},
	} {
		c, err := Load(map[string]string{"FAROL_SMTP_URL": url, "FAROL_SMTP_PASSWORD_FILE": file, "FAROL_MAIL_FROM": "Farol <farol@example.org>"}, Mail{})
		if server, ok := c.Server(); err != nil || !ok || server != want || c.Password != "geheim" {
			t.Errorf("%s: %+v, %v", url, server, err)
		}
	}
	if c, err := Load(map[string]string{"FAROL_SMTP_URL": "smtp://127.0.0.1:1025", "FAROL_MAIL_FROM": "farol@example.org", "FAROL_WEB_URL": "http://127.0.0.1:4181"}, Mail{}); err != nil || c.server.User != "" {
		t.Errorf("a server on this machine: %+v, %v", c.server, err)
	}
	if c, err := Load(nil, Mail{}); err != nil || c.server.Host != "" {
		t.Errorf("no server: %+v, %v", c.server, err)
	}
}

// Each mistake names its setting and what it must be, and no password is shown.
func TestWrongMailSettingsAreRefused(t *testing.T) {
	t.Parallel()
	right := map[string]string{"FAROL_SMTP_URL": "smtp://mail.example.org", "FAROL_MAIL_FROM": "farol@example.org"}
	for _, c := range []struct {
		name, value, says string
	}{
		{"FAROL_SMTP_URL", "mail.example.org:25", "FAROL_SMTP_URL "},
		{"FAROL_SMTP_URL", "http://mail.example.org", "FAROL_SMTP_URL does not begin with"},
		{"FAROL_SMTP_URL", "smtp://mail.example.org?tls=off", "cannot be switched off"},
		{"FAROL_SMTP_URL", "smtp://mail.example.org:0", "FAROL_SMTP_URL has no port"},
		{"FAROL_SMTP_URL", "smtp://", "FAROL_SMTP_URL names no host"},
		{"FAROL_SMTP_URL", "smtps://farol:geheim@mail.example.org", "FAROL_SMTP_URL contains a password, which belongs into FAROL_SMTP_PASSWORD_FILE"},
		{"FAROL_SMTP_URL", "smtps://farol@mail.example.org", "FAROL_SMTP_PASSWORD_FILE is not set"},
		{"FAROL_SMTP_URL", "", ""},
		{"FAROL_SMTP_PASSWORD", "geheim", "FAROL_SMTP_URL names no user"},
		{"FAROL_MAIL_FROM", "", "FAROL_MAIL_FROM is not set, although FAROL_SMTP_URL is; it must be an e-mail address"},
		{"FAROL_MAIL_FROM", "farol", "FAROL_MAIL_FROM is"},
		{"FAROL_MAIL_FROM", "farol@example.org\r\nBcc: all@example.org", "FAROL_MAIL_FROM is"},
		{"FAROL_WEB_URL", "http://farol.example.org", "FAROL_WEB_URL is \"http://farol.example.org\", which is not encrypted; it must be an https URL"},
		{"FAROL_WEB_URL", "https://farol.example.org/?next=x", "FAROL_WEB_URL is"},
		{"FAROL_WEB_URL", "farol.example.org", "FAROL_WEB_URL is"},
		{"FAROL_MAIL_INTERVAL", "-1s", "FAROL_MAIL_INTERVAL"},
	} {
		environ := map[string]string{c.name: c.value}
		for name, value := range right {
			if name != c.name {
				environ[name] = value
			}
		}
		_, err := Load(environ, Mail{})
		switch {
		case c.says == "":
			if err != nil {
				t.Errorf("%s=%s: %v", c.name, c.value, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "geheim"):
			t.Errorf("%s=%s: %v, want %q", c.name, c.value, err, c.says)
		}
	}
	if _, err := Load(map[string]string{}, Mailer{}); err == nil || !strings.Contains(err.Error(), "FAROL_SMTP_URL is not set; it must be a URL") {
		t.Errorf("a command that needs a server: %v", err)
	}
}
