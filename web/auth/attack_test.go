package auth

import (
	"errors"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// An attempt that fails takes one hash of a password, whether or not there is a person or a
// password, and in whatever state they are: time does not say who is registered.
func TestEveryFailureTakesOneHash(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.person("gone@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.person("bob@other.edu", registry.RoleInstitutionalUser, "other.edu")
	locked := d.person("locked@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.exec(`INSERT INTO users (email, name, role) VALUES ('new@archive.org', 'New', 'operator')`)
	d.exec(`UPDATE users SET deactivated_at = now() WHERE email = 'gone@test.edu'`)
	d.exec(`UPDATE institutions SET state = 'D' WHERE identifier = 'other.edu'`)
	d.exec(`INSERT INTO sign_in_failures (user_id, device, failures, locked_until) VALUES ($1, '', 9, now() + interval '1 hour')`, locked.ID)
	const wrong = "wrong horse battery staple"
	one := uint64(d.hasher.with.memory) * uint64(d.hasher.with.passes)
	for _, try := range [][2]string{
		{"ann@test.edu", wrong},
		{"nobody@test.edu", wrong},
		{"nobody@test.edu", good},
		{"", ""},
		{"ann@test.edu\x00", wrong},
		{"gone@test.edu", good},
		{"bob@other.edu", good},
		{"locked@test.edu", good},
		{"locked@test.edu", wrong},
		{"new@archive.org", ""},
		{"ann@test.edu", ""},
	} {
		before := d.hasher.spent.Load()
		if _, err := d.SignIn(t.Context(), try[0], try[1], somewhere()); !errors.Is(err, ErrWrong) {
			t.Errorf("%q: %v", try, err)
		}
		if work := d.hasher.spent.Load() - before; work != one {
			t.Errorf("%q takes %d of work, want %d", try, work, one)
		}
	}
}

// A new password ends what others have begun with the old one, and gives the browser another
// secret.
func TestNewPasswordEndsOtherSessions(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	thief, owner := d.enter(p), d.enter(p)
	link := must.Get(d.people.MakeLink(t.Context(), p.ID, people.Reset))(t)
	s, err := d.ChangePassword(t.Context(), d.session(owner.Secret), good, "another long password", somewhere())
	if err != nil || d.ended(s.Secret) {
		t.Fatalf("the person is out: %v", err)
	}
	if !d.ended(thief.Secret) || !d.ended(owner.Secret) {
		t.Error("a session of the old password goes on")
	}
	if _, err := d.SetPasswordByLink(t.Context(), link, "yet another password", somewhere()); !errors.Is(err, ErrLink) {
		t.Errorf("a link from before sets a password: %v", err)
	}
}

// The answer about a forgotten password comes at a time that does not say what was done.
func TestForgottenPasswordTakesTheSameTime(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	for _, email := range []string{"ann@test.edu", "nobody@test.edu", "\xff"} {
		began := time.Now()
		if err := d.Forgot(t.Context(), email, somewhere()); err != nil {
			t.Error(err)
		}
		if spent := time.Since(began); spent < forgetStep {
			t.Errorf("%q is answered after %s", email, spent)
		}
	}
}
