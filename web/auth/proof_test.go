package auth

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

const notFresh = `UPDATE sessions SET strong_at = now() - interval '11 minutes'`

// A password is no fresh proof of a person who has a second factor, also where it is changed.
func TestNewPasswordIsNoFreshProofOfASecondFactor(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	code, _ := d.strong(p)
	d.later(totpPeriod)
	s, err := d.Factor(t.Context(), d.session(d.enter(p).Secret), code(), somewhere())
	if err != nil {
		t.Fatal(err)
	}
	d.exec(notFresh)
	s, err = d.ChangePassword(t.Context(), d.session(s.Secret), good, "another long password", somewhere())
	if err != nil {
		t.Fatal(err)
	}
	if got := d.session(s.Secret); got.Level != people.LevelFull || got.Fresh {
		t.Errorf("after a new password: %+v", got)
	}
	ann := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s = d.enter(ann)
	d.exec(notFresh)
	if s, err = d.ChangePassword(t.Context(), d.session(s.Secret), good, "another long password", somewhere()); err != nil || !d.session(s.Secret).Fresh {
		t.Errorf("of a person who has a password only: %v", err)
	}
}

// A new password that is refused changes nothing: the session goes on.
func TestWeakNewPasswordChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	s := d.enter(d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"))
	if _, err := d.ChangePassword(t.Context(), d.session(s.Secret), good, "short", somewhere()); !errors.Is(err, ErrWeak) {
		t.Errorf("a weak password: %v", err)
	}
	if d.ended(s.Secret) {
		t.Error("the session is over")
	}
	d.hasher.queue = make(chan struct{}, 1)
	d.hasher.queue <- struct{}{}
	if _, err := d.ChangePassword(t.Context(), d.session(s.Secret), good, "another long password", somewhere()); !errors.Is(err, ErrBusy) || d.ended(s.Secret) {
		t.Errorf("while too many sign in: %v", err)
	}
	if n := d.count(`SELECT count(*) FROM sign_in_failures`); n != 0 {
		t.Error("an attempt that was not tried counts as failed")
	}
}

// A session that was stolen does not become strong by a second factor of the thief.
func TestFirstSecondFactorNeedsAFreshProof(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s := d.enter(p)
	d.exec(notFresh)
	offer, err := d.SetUpFactor(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.ConfirmFactor(t.Context(), d.session(s.Secret), offer.Pending, d.code(offer), somewhere()); !errors.Is(err, ErrWrong) || d.again(p.ID).Strong() {
		t.Errorf("a first second factor without a fresh proof: %v", err)
	}
	other := d.enter(p)
	s, err = d.Prove(t.Context(), d.session(s.Secret), good, somewhere())
	if err == nil {
		s, _, err = d.ConfirmFactor(t.Context(), d.session(s.Secret), offer.Pending, d.code(offer), somewhere())
	}
	if err != nil {
		t.Errorf("with a fresh proof: %v", err)
	}
	if d.ended(s.Secret) || !d.ended(other.Secret) {
		t.Error("a session that has shown no second factor goes on, or the one that has is over")
	}
}

// The password of a person whose second factor is at an OpenID provider proves nothing afresh.
func TestFreshProofIsWhereTheFactorIs(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	said := Said{Identity: people.Identity{Issuer: "https://login.test.edu", Subject: "7"}, Email: p.Email, Verified: true, Factor: true}
	s, err := d.SignInByProvider(t.Context(), Provider{Name: "test-edu", Domains: []string{"test.edu"}}, said, somewhere())
	if err != nil || s.Level != people.LevelFull || d.session(s.Secret).Fresh {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := d.Prove(t.Context(), d.session(s.Secret), good, somewhere()); !errors.Is(err, ErrWrong) || d.session(s.Secret).Fresh {
		t.Errorf("a password: %v", err)
	}
	if s, err = d.ChangePassword(t.Context(), d.session(s.Secret), good, "another long password", somewhere()); err != nil || d.session(s.Secret).Fresh {
		t.Errorf("a new password: %v", err)
	}
}

// Who reads the mail of a person gets no more guesses at the second factor by new passwords.
func TestNewPasswordByLinkUnlocksNoCodes(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	d.strong(p)
	session := d.session(d.enter(p).Secret)
	for range 5 {
		if _, err := d.Factor(t.Context(), session, "000000", somewhere()); !errors.Is(err, ErrWrong) {
			t.Fatal(err)
		}
	}
	byLink := func(p people.Person) {
		t.Helper()
		secret, err := d.people.MakeLink(t.Context(), p.ID, people.Reset)
		if err == nil {
			_, err = d.SetPasswordByLink(t.Context(), secret, "another long password", somewhere())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	byLink(p)
	if n := d.count(`SELECT count(*) FROM sign_in_failures WHERE locked_until > now()`); n != 1 {
		t.Error("a link to set a password has unlocked the second factor")
	}
	ann := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.exec(`INSERT INTO sign_in_failures (user_id, device, failures, locked_until) VALUES ($1, '', 9, now() + interval '1 hour')`, ann.ID)
	byLink(ann)
	if n := d.count(`SELECT count(*) FROM sign_in_failures WHERE user_id = $1`, ann.ID); n != 0 {
		t.Error("a person who has a password only stays locked out with the new one")
	}
}

// A browser that signs in again has one session: what was known of the one before is worth nothing.
func TestBrowserHasOneSession(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.exec(`UPDATE users SET oidc_issuer = 'https://login.test.edu', oidc_subject = '7' WHERE id = $1`, p.ID)
	other, last := d.enter(p), d.enter(p)
	for what, again := range map[string]func(From) (SignedIn, error){
		"a password": func(from From) (SignedIn, error) { return d.SignIn(t.Context(), p.Email, good, from) },
		"a provider": func(from From) (SignedIn, error) {
			said := Said{Identity: people.Identity{Issuer: "https://login.test.edu", Subject: "7"}, Fresh: true}
			return d.SignInByProvider(t.Context(), Provider{Name: "test-edu"}, said, from)
		},
	} {
		from := somewhere()
		from.Session = d.session(last.Secret)
		s, err := again(from)
		if err != nil || d.ended(s.Secret) || !d.ended(last.Secret) || d.ended(other.Secret) {
			t.Errorf("by %s: ended %v, %v, %v; %v", what, d.ended(s.Secret), d.ended(last.Secret), d.ended(other.Secret), err)
		}
		last = s
	}
	from := somewhere()
	from.Session = d.session(last.Secret)
	if s, err := d.ChangePassword(t.Context(), from.Session, good, "another long password", from); err != nil || d.ended(s.Secret) {
		t.Errorf("a new password: %v", err)
	}
}
