package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
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

// entersByLink signs a person in by a first password.
func (v *visitor) entersByLink(email string) {
	v.t.Helper()
	p := must.Get(people.In(v.registry).ByEmail(v.t.Context(), email))(v.t)
	kind := people.Invite
	if v.count(`SELECT count(*) FROM users WHERE id = $1 AND password_hash IS NOT NULL`, p.ID) > 0 {
		kind = people.Reset
	}
	secret := must.Get(people.In(v.registry).MakeLink(v.t.Context(), p.ID, kind))(v.t)
	a, err := v.client.PostForm(v.url+people.LinkPath(kind, secret), url.Values{"password": {"correct horse battery staple"}})
	if err != nil {
		v.t.Fatal(err)
	}
	read(v.t, a)
}
