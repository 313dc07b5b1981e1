package auth

import (
	"encoding/base32"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// A code, a step and a recovery code are good once.
func TestSecondFactor(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	if s := d.enter(p); s.Level != people.LevelPassword || s.Next != NextSetUp || s.Device != "" {
		t.Fatalf("an admin without a second factor: %+v", s)
	}
	code, recovery := d.strong(p)
	try := func(code string) error {
		t.Helper()
		d.exec(`DELETE FROM sign_in_failures`)
		s, err := d.Factor(t.Context(), d.session(d.enter(d.again(p.ID)).Secret), code, somewhere())
		if err == nil && (s.Level != people.LevelFull || d.ended(s.Secret)) {
			t.Errorf("raised to %+v", s)
		}
		return err
	}
	if err := try(code()); !errors.Is(err, ErrWrong) {
		t.Errorf("the code that has set it up, again: %v", err)
	}
	d.later(30 * time.Second)
	if err := try(code()); err != nil {
		t.Errorf("the next code: %v", err)
	}
	if err := try(code()); !errors.Is(err, ErrWrong) {
		t.Errorf("a code is replayed: %v", err)
	}
	d.later(time.Minute)
	late := code()
	d.later(30 * time.Second)
	if err := try(late); err != nil {
		t.Errorf("a code of the step before: %v", err)
	}
	old := code()
	d.later(2 * time.Minute)
	for _, wrong := range []string{old, "", "12345", "abcdef", strings.Repeat("1", 100), recovery[0] + "x", good} {
		if err := try(wrong); !errors.Is(err, ErrWrong) {
			t.Errorf("code %q: %v", wrong, err)
		}
	}
	if err := try(strings.ToUpper(strings.ReplaceAll(recovery[3], "-", " "))); err != nil {
		t.Errorf("a recovery code as it is typed: %v", err)
	}
	if err := try(recovery[3]); !errors.Is(err, ErrWrong) {
		t.Errorf("a recovery code is used again: %v", err)
	}
	if n := d.again(p.ID).RecoveryCodes; n != 9 || len(recovery) != 10 {
		t.Errorf("%d codes are left of %d", n, len(recovery))
	}
}

// A second factor that is given in one browser frees no other, and what was known of a
// session before it rose is worth nothing.
func TestLevelsBelongToSessions(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	code, _ := d.strong(p)
	p = d.again(p.ID)
	thief, owner := d.enter(p), d.enter(p)
	d.later(time.Minute)
	raised := must.Get(d.Factor(t.Context(), d.session(owner.Secret), code(), somewhere()))(t)
	if got := d.session(thief.Secret).Level; got != people.LevelPassword {
		t.Errorf("the other session is of level %s", got)
	}
	if s := d.session(raised.Secret); !d.ended(owner.Secret) || s.Level != people.LevelFull || !s.Fresh {
		t.Errorf("the session is %+v", s)
	}
	if _, err := d.Prove(t.Context(), d.session(thief.Secret), good, somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("a proof in a session of level password: %v", err)
	}
	if _, err := d.ChangePassword(t.Context(), d.session(thief.Secret), good, "another long password", somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("a new password in a session of level password: %v", err)
	}
	offer := must.Get(d.SetUpFactor(p))(t)
	if _, _, err := d.ConfirmFactor(t.Context(), d.session(thief.Secret), offer.Pending, d.code(offer), somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("another factor in a session of level password: %v", err)
	}
	d.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes'`)
	if _, _, err := d.ConfirmFactor(t.Context(), d.session(raised.Secret), offer.Pending, d.code(offer), somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("another factor without a fresh proof: %v", err)
	}
	d.later(time.Minute)
	proved, err := d.Prove(t.Context(), d.session(raised.Secret), code(), somewhere())
	if err != nil || !d.session(proved.Secret).Fresh {
		t.Fatalf("a proof: %v", err)
	}
	if _, _, err := d.ConfirmFactor(t.Context(), d.session(proved.Secret), offer.Pending, d.code(offer), somewhere()); err != nil {
		t.Errorf("another factor after a fresh proof: %v", err)
	}
}

// What is offered to one person is no factor of another.
func TestFactorIsOfferedToOnePerson(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	ann, eve := d.person("ann@archive.org", registry.RoleAdmin, ""), d.person("eve@archive.org", registry.RoleAdmin, "")
	offer := must.Get(d.SetUpFactor(eve))(t)
	for _, pending := range []string{offer.Pending, "", "x", offer.Secret} {
		if _, _, err := d.ConfirmFactor(t.Context(), d.session(d.enter(ann).Secret), pending, d.code(offer), somewhere()); !errors.Is(err, ErrWrong) {
			t.Errorf("pending %q: %v", pending, err)
		}
	}
	if d.again(ann.ID).Strong() {
		t.Error("ann has a second factor that eve knows")
	}
}

func TestFactorIsAsAppsReadIt(t *testing.T) {
	t.Parallel()
	f := newFactor("Farol (archive.org)", "ann+x@test.edu")
	if !strings.HasPrefix(f.URL, "otpauth://totp/Farol%20%28archive.org%29:ann%2Bx%40test.edu?secret="+f.Secret+"&") {
		t.Error(f.URL)
	}
	if b, err := base32.StdEncoding.DecodeString(f.Secret); err != nil || len(b) != totpSecret {
		t.Error(f.Secret, err)
	}
	// RFC 6238, appendix B: of the secret 12345678901234567890, 94287082 at 59 seconds.
	secret := base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))
	if step, right := stepOf(secret, "287 082", time.Unix(59, 0)); !right || step != 1 {
		t.Errorf("step %d, %v", step, right)
	}
}

// To remove a second factor ends what was begun with it, and the person learns of it.
func TestRemovedFactor(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	d.strong(p)
	s := d.enter(p)
	must.Do(t, d.people.RemoveTOTP(t.Context(), p.ID, "eve@archive.org"))
	if p := d.again(p.ID); p.Strong() || p.RecoveryCodes != 0 || !d.ended(s.Secret) {
		t.Errorf("%d recovery codes are left, or a session", p.RecoveryCodes)
	}
	if n := d.count(`SELECT count(*) FROM alerts WHERE user_id = $1 AND type = 'Second Factor Changed' AND content LIKE '%eve@archive.org%'`, p.ID); n != 1 {
		t.Errorf("%d alerts", n)
	}
}
