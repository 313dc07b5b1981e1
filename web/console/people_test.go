package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// People look after their own account: the colors follow to another browser, a token is shown
// once, and a session of another browser ends.
func TestOwnAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ann := s.in(registry.RoleInstitutionalUser, "test.edu")
	if a := s.browser().open("/account/mail"); a.path != "/sign-in" {
		t.Errorf("without signing in: %s", a.path)
	}
	a := ann.sees("/account", ann.person.Email, "linked to no other sign-in", "This one", "You have no tokens")
	form := a.form(t, "me.set")
	form.Set("name", `Ann <b>"Bee"</b>`)
	form.Set("time_zone", "Europe/Lisbon")
	form.Set("color_scheme", "dark")
	a = ann.send("/do/me.set", form)
	a.shows(t, "Done: change your name", `Ann <b>"Bee"</b>`)
	if !strings.Contains(a.text, `data-scheme="dark"`) || strings.Contains(a.text, "<b>") {
		t.Error(a.text)
	}
	form.Set("time_zone", "Mars/Olympus")
	a = ann.send("/do/me.set", form)
	a.shows(t, "Not done", "Mars/Olympus")
	if got := ask[string](s, `SELECT time_zone || ' ' || color_scheme FROM users WHERE id = $1`, ann.person.ID); got != "Europe/Lisbon dark" || !strings.Contains(a.text, `value="Mars/Olympus"`) {
		t.Errorf("%s\n%s", got, a.text)
	}

	form = ann.open("/account").form(t, "me.add_token")
	form.Set("name", "laptop")
	form["permissions"] = []string{"items.read"}
	made := ann.send("/do/me.add_token", form)
	made.shows(t, "cannot be shown again", "laptop", "farol_")
	again := ann.sees("/account", "laptop", "items.read")
	again.lacks(t, "farol_")
	form = again.form(t, "me.remove_token")
	ann.send("/do/me.remove_token", form).shows(t, "Done: revoke a personal token: laptop", "You have no tokens")

	secret := must.Get(s.people.MakeLink(t.Context(), ann.person.ID, people.SignIn))(t)
	other := s.browser()
	other.send(people.LinkPath(people.SignIn, secret), nil)
	other.sees("/account", "This one")
	ann.send("/do/me.end_session", ann.open("/account").form(t, "me.end_session"))
	if a := other.open("/account"); a.path != "/sign-in" {
		t.Errorf("the session has not ended: %s", a.path)
	}

	form = ann.sees("/account/mail", "Europe/Lisbon", "Deletions").form(t, "me.set_mail")
	for name, value := range map[string]string{"deletions": "now", "restorations": "daily", "fixity": "never", "problems": "now"} {
		form.Set(name, value)
	}
	if a := ann.send("/do/me.set_mail", form); !strings.Contains(a.text, "<option selected>daily") || !strings.Contains(a.text, "<option selected>never") {
		t.Error(a.text)
	}
	m, err := s.people.Mail(t.Context(), ann.person.ID)
	if err != nil || m != (record.MailSettings{Deletions: "now", Restorations: "daily", Fixity: "never", Problems: "now"}) {
		t.Errorf("%+v, %v", m, err)
	}
	form.Set("fixity", "sometimes")
	ann.send("/do/me.set_mail", form).shows(t, "Not done")
}

// A decision that needs a fresh proof keeps its form; a wrong one changes nothing.
func TestFreshProofKeepsTheForm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin := s.in(registry.RoleAdmin, "")
	form := admin.sees("/users", "Register a person").form(t, "users.add")
	form.Set("email", "new@test.edu")
	form.Set("name", "New Person")
	form.Set("role", "institutional_user")
	form.Set("institution_identifier", "test.edu")
	s.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes'`)
	a := admin.send("/do/users.add", form)
	a.shows(t, "Prove once more who you are")
	if !strings.Contains(a.text, `value="new@test.edu"`) || ask[int](s, `SELECT count(*) FROM users WHERE email = 'new@test.edu'`) != 0 {
		t.Error(a.text)
	}
	s.exec(`UPDATE sessions SET strong_at = now()`)
	a = admin.send("/do/users.add", form)
	a.shows(t, "New Person", "Invite", "institutional_user")
	a = admin.send("/do/users.invite", a.form(t, "users.invite"))
	a.shows(t, s.url+"/password/")
	for _, role := range []string{registry.RoleOperator, registry.RoleInstitutionalUser} {
		in := "test.edu"
		if role == registry.RoleOperator {
			in = ""
		}
		if a := s.in(role, in).open("/users"); a.status != http.StatusForbidden {
			t.Errorf("%s opens /users: %d", role, a.status)
		}
	}
	home := s.in(registry.RoleInstitutionalAdmin, "other.edu")
	home.sees("/users", "other.edu").lacks(t, "new@test.edu", admin.person.Email)
	home.sees("/users", "Who may what", "deletions.approve")
}

// Staff looks after institutions, people, tokens and settings.
func TestAdministration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, auditor := s.in(registry.RoleAdmin, ""), s.in(registry.RoleAuditor, "")
	path := "/institutions/" + ask[string](s, `SELECT id::text FROM institutions WHERE identifier = 'test.edu'`)
	form := admin.sees(path, "The test.edu", "Deactivate").form(t, "institutions.set")
	auditor.sees(path, "The test.edu").lacks(t, "Deactivate", "Save")
	form.Set("spot_restore_days", "30")
	admin.send("/do/institutions.set", form).shows(t, "Done: change the settings")
	form.Set("spot_restore_days", "60") // decided on what was there before
	admin.send("/do/institutions.set", form).shows(t, "Not done")
	if n := ask[int](s, `SELECT spot_restore_days FROM institutions WHERE identifier = 'test.edu'`); n != 30 {
		t.Errorf("%d days", n)
	}
	page := admin.open(path)
	admin.send("/do/institutions.deactivate", page.form(t, "institutions.deactivate")).shows(t, "deactivated", "Activate test.edu")
	if a := s.in(registry.RoleInstitutionalAdmin, "other.edu").open(path); a.status != http.StatusNotFound {
		t.Errorf("another institution: %d", a.status)
	}

	ann := s.in(registry.RoleInstitutionalUser, "other.edu")
	path = "/users/" + ask[string](s, `SELECT id::text FROM users WHERE id = $1`, ann.person.ID)
	admin.open(path).lacks(t, "Unlock")
	s.exec(`INSERT INTO sign_in_failures (user_id, device, failures, locked_until) VALUES ($1, '', 9, now() + interval '1 hour'), ($1, 'x', 1, NULL)`, ann.person.ID)
	form = admin.sees(path, "locked until", "Unlock only if it was this person").form(t, "users.unlock")
	admin.send("/do/users.unlock", form).shows(t, "Done: forget the failed attempts to sign in as a person: "+ann.person.Email)
	admin.open(path).lacks(t, "locked", "Unlock")
	form = admin.sees(path, ann.person.Email, "What this person did").form(t, "users.deactivate")
	admin.send("/do/users.deactivate", form).shows(t, "deactivated")
	if a := ann.open("/account"); a.path != "/sign-in" {
		t.Errorf("a deactivated person opens %s", a.path)
	}

	form = admin.sees("/tokens", "No service has a token").form(t, "tokens.add")
	form.Set("name", "mirror")
	form["rights"] = []string{"pull"}
	admin.send("/do/tokens.add", form).shows(t, "mirror", "cannot be shown again")
	form = admin.sees("/tokens", "mirror", "pull").form(t, "tokens.remove")
	admin.send("/do/tokens.remove", form).shows(t, "No service has a token")

	a := admin.sees("/settings", "Glacier-VA", "DEEP_ARCHIVE", "Retention")
	form = a.form(t, "settings.set_requests")
	form.Set("retrieval_cap_usd", "7.50")
	admin.send("/do/settings.set_requests", form).shows(t, "Done: change the price above which")
	if v := ask[string](s, `SELECT retrieval_cap::text FROM request_settings`); v != "7.50" {
		t.Errorf("the cap is %s", v)
	}
	admin.send("/do/settings.set_requests", form).shows(t, "Not done") // by settings that are no more
	auditor.sees("/settings", "7.50").lacks(t, "Save")
	if a := s.browser().open("/accessibility"); a.status != http.StatusOK || !strings.Contains(a.text, "WCAG") {
		t.Errorf("%d %s", a.status, a.text)
	}
}
