package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// A forgotten password: the same page for every address, and a mail for a person.
func TestForgottenPasswordPage(t *testing.T) {
	t.Parallel()
	v := visit(t)
	ann := v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	v.sees("/sign-in", nil, "/sign-in", `href="/forgot"`)
	v.sees("/forgot", nil, "/forgot", "stay as they are")
	known := v.sees("/forgot", url.Values{"email": {"ann@test.edu"}}, "/forgot", "is on its way")
	if unknown := v.sees("/forgot", url.Values{"email": {"nobody@test.edu"}}, "/forgot", "is on its way"); known != unknown || strings.Contains(known, "ann@") {
		t.Errorf("the pages say who is registered:\n%s\n%s", known, unknown)
	}
	if n := v.count(`SELECT count(*) FROM mail_outbox WHERE kind = 'reset' AND user_id = $1`, ann.ID); n != 1 {
		t.Errorf("%d mails", n)
	}
	var many atomic.Int64
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			a, err := v.client.PostForm(v.url+"/forgot", url.Values{"email": {"x@test.edu"}})
			if err != nil {
				t.Error(err)
				return
			}
			if page := read(t, a); a.StatusCode == http.StatusTooManyRequests && strings.Contains(page, "Too many attempts") {
				many.Add(1)
			}
		})
	}
	if all.Wait(); many.Load() < 10 {
		t.Errorf("one address may ask as often as it likes: %d of 30 were refused", many.Load())
	}
}

// The account has when mail comes. Only the person who has signed in to the end changes it.
func TestAccountPage(t *testing.T) {
	t.Parallel()
	v := visit(t)
	ann := v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	v.registered("boss@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	form := url.Values{"deletions": {"now"}, "restorations": {"daily"}, "fixity": {"never"}, "problems": {"now"}}
	v.sees("/account", nil, "/sign-in", "Sign in")
	v.sees("/account/mail", form, "/sign-in", "Sign in")
	v.entersByLink("boss@test.edu")
	v.sees("/account", nil, "/second-factor", "Set it up") // its session is of level password
	v.sees("/account/mail", form, "/second-factor", "Set it up")
	if n := v.count(`SELECT count(*) FROM mail_settings`); n != 0 {
		t.Fatal("settings were changed without a sign-in")
	}
	v.anotherBrowser()
	v.entersByLink("ann@test.edu")
	v.sees("/account/mail", nil, "/account/mail", "linked to no other sign-in") // where mails lead
	page := v.sees("/account/mail", form, "/account/mail", "are changed")
	if !strings.Contains(page, `name="restorations"><option>now</option><option selected>daily`) || !strings.Contains(page, `<option selected>never`) {
		t.Error(page)
	}
	s, err := people.In(v.registry).Mail(t.Context(), ann.ID)
	if err != nil || s != (people.MailSettings{Deletions: "now", Restorations: "daily", Fixity: "never", Problems: "now"}) {
		t.Errorf("%+v, %v", s, err)
	}
	form.Set("fixity", "sometimes")
	v.sees("/account/mail", form, "/account/mail", "were not changed")
	if n := v.count(`SELECT count(*) FROM actions WHERE operation = 'me.set_mail' AND outcome = 'done' AND user_id = $1`, ann.ID); n != 1 {
		t.Errorf("%d changes are on record", n)
	}
}

// entersByLink signs a person in by a first password.
func (v *visitor) entersByLink(email string) {
	v.t.Helper()
	p, err := people.In(v.registry).ByEmail(v.t.Context(), email)
	if err != nil {
		v.t.Fatal(err)
	}
	secret, err := people.In(v.registry).MakeLink(v.t.Context(), p.ID, people.Invite)
	if err != nil {
		v.t.Fatal(err)
	}
	a, err := v.client.PostForm(v.url+people.LinkPath(people.Invite, secret), url.Values{"password": {"correct horse battery staple"}})
	if err != nil {
		v.t.Fatal(err)
	}
	read(v.t, a)
}
