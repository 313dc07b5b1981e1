package servers_test

import (
	"net/smtp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Mail to anyone becomes a file.
func TestMailIsCaught(t *testing.T) {
	t.Parallel()
	s := start(t, devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Mail}})
	if env := s.Env(); !slices.Contains(env, "FAROL_SMTP_URL=smtp://"+s.SMTPAddr) {
		t.Errorf("the settings are %v", env)
	}
	const text = "Subject: Hello\r\n\r\nText\r\n"
	must.Do(t, smtp.SendMail(s.SMTPAddr, nil, "farol@localhost", []string{"first@test.edu"}, []byte(text)))
	files, err := filepath.Glob(filepath.Join(s.MailDir, "*-first@test.edu.eml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if got, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(got), text) {
		t.Errorf("%q, %v", got, err)
	}
}
