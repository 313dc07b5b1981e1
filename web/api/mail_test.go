package api_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A person chooses when mail comes; a token cannot silence alerts.
func TestOwnMail(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ann, bob := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("bob@test.edu", registry.RoleInstitutionalUser, "test.edu")
	var m record.MailSettings
	ann.reads(ann.wants(200, "GET", "/api/v1/me/mail", nil), &m)
	if m != (record.MailSettings{Deletions: "now", Restorations: "now", Fixity: "now", Problems: "now"}) {
		t.Errorf("%+v", m)
	}
	ann.wants(200, "PATCH", "/api/v1/me/mail", map[string]any{"fixity": "never"})
	ann.reads(ann.wants(200, "PATCH", "/api/v1/me/mail", map[string]any{"problems": "daily"}), &m)
	if m != (record.MailSettings{Deletions: "now", Restorations: "now", Fixity: "never", Problems: "daily"}) {
		t.Errorf("%+v", m)
	}
	bob.reads(bob.wants(200, "GET", "/api/v1/me/mail", nil), &m)
	if m.Fixity != "now" {
		t.Errorf("of another: %+v", m)
	}
	for _, wrong := range []map[string]any{{"fixity": "sometimes"}, {"account": "never"}, {"fixity": 1}} {
		if a := ann.do("PATCH", "/api/v1/me/mail", wrong); a.status != 400 {
			t.Errorf("%v: %d %s", wrong, a.status, a.body)
		}
	}
	if a := ann.program("items.read").do("PATCH", "/api/v1/me/mail", map[string]any{"fixity": "now"}); a.status != 403 {
		t.Errorf("a token changes it: %d %s", a.status, a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'me.set_mail' AND outcome = 'done' AND user_id = $1`, ann.person.ID); n != 2 {
		t.Errorf("%d changes are on record", n)
	}
}

// Nobody learns from a forgotten password who is registered; who is gets a mail, and loses
// nothing until its link is used.
func TestForgottenPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ann := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	gone := s.in("gone@test.edu", registry.RoleInstitutionalUser, "test.edu")
	closed := s.in("closed@other.edu", registry.RoleInstitutionalUser, "other.edu")
	s.exec(`UPDATE users SET deactivated_at = now() WHERE id = $1`, gone.person.ID)
	s.exec(`UPDATE institutions SET state = 'D' WHERE identifier = 'other.edu'`)
	visitor := s.browser()
	answers := map[string]bool{}
	for _, email := range []string{"Ann@test.edu ", "nobody@test.edu", "gone@test.edu", closed.person.Email, "", "ann@test.edu\x00", "ann@test.edu' OR 1=1 --"} {
		answers[visitor.wants(202, "POST", "/api/v1/forgotten-passwords", map[string]any{"email": email}).body] = true
	}
	if len(answers) != 1 {
		t.Errorf("the answers say who is registered: %v", answers)
	}
	if n := ask[int](s, `SELECT count(*) FROM mail_outbox WHERE kind = 'reset'`); n != 1 {
		t.Errorf("%d mails", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM mail_outbox WHERE kind = 'reset' AND user_id = $1 AND args = '{}'`, ann.person.ID); n != 1 {
		t.Error("ann gets no mail")
	}
	ann.wants(200, "GET", "/api/v1/me", nil)
	if n := ask[int](s, `SELECT count(*) FROM links WHERE kind = 'reset'`); n != 0 {
		t.Error("there is a link before its mail is sent")
	}
	// While a mail waits, another is none; after three in an hour there are no more.
	visitor.wants(202, "POST", "/api/v1/forgotten-passwords", map[string]any{"email": "ann@test.edu"})
	if n := ask[int](s, `SELECT count(*) FROM mail_outbox WHERE kind = 'reset'`); n != 1 {
		t.Errorf("%d mails wait", n)
	}
	for range 5 {
		s.exec(`UPDATE mail_outbox SET sent_at = now() WHERE sent_at IS NULL`)
		visitor.wants(202, "POST", "/api/v1/forgotten-passwords", map[string]any{"email": "ANN@test.edu"})
	}
	if n := ask[int](s, `SELECT count(*) FROM mail_outbox WHERE kind = 'reset'`); n != 2 {
		t.Errorf("%d mails in an hour", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'me.forgot_password' AND outcome = 'done' AND user_id IS NULL AND ip IS NOT NULL AND subject_id = $1::bigint::text`, ann.person.ID); n != 2 {
		t.Errorf("%d are on record", n)
	}
	var limited atomic.Int64
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			a := visitor.do("POST", "/api/v1/forgotten-passwords", map[string]any{"email": "x@test.edu"})
			if a.status == 429 && a.header.Get("Retry-After") != "" {
				limited.Add(1)
			}
		})
	}
	if all.Wait(); limited.Load() < 10 {
		t.Errorf("one address may ask as often as it likes: %d of 40 were refused", limited.Load())
	}
}
