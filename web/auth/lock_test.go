package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// Whatever is wrong, the answer is the same.
func TestEveryFailureLooksAlike(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	gone := d.person("gone@test.edu", registry.RoleInstitutionalUser, "test.edu")
	d.exec(`UPDATE users SET deactivated_at = now() WHERE id = $1`, gone.ID)
	d.person("bob@other.edu", registry.RoleInstitutionalUser, "other.edu")
	d.exec(`UPDATE institutions SET state = 'D' WHERE identifier = 'other.edu'`)
	d.exec(`INSERT INTO users (email, name, role) VALUES ('new@archive.org', 'New', 'operator')`)
	for email, password := range map[string]string{
		"ann@test.edu": "wrong horse battery staple", "nobody@test.edu": good, "": "", "gone@test.edu": good, "bob@other.edu": good,
		"new@archive.org": "", "ann@test.edu' OR 1=1 --": good, "ann@test.edu\x00": good, "ann@test.edu\xff": good,
	} {
		if s, err := d.SignIn(t.Context(), email, password, somewhere()); !errors.Is(err, ErrWrong) {
			t.Errorf("%q: %+v, %v", email, s, err)
		}
	}
	if s, err := d.SignIn(t.Context(), " ANN@test.edu ", good, somewhere()); err != nil || s.Level != people.LevelFull || s.Next != "" {
		t.Errorf("the right password: %+v, %v", s, err)
	}
}

// Strangers lock out strangers: the person continues in the browser that is known.
func TestStrangersCannotLockAnyoneOut(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s := d.enter(p)
	home := somewhere()
	home.Device = s.Device
	for range 50 {
		if _, err := d.SignIn(t.Context(), p.Email, "a guess of a stranger", somewhere()); !errors.Is(err, ErrWrong) {
			t.Fatal(err)
		}
	}
	if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("a stranger with the right password while strangers are locked out: %v", err)
	}
	if _, err := d.SignIn(t.Context(), p.Email, good, home); err != nil {
		t.Errorf("the person at home: %v", err)
	}
	if n := d.count(`SELECT count(*) FROM alerts WHERE type = 'Account Locked' AND user_id = $1`, p.ID); n != 1 {
		t.Errorf("%d alerts", n)
	}
	// What a lock refuses does not prolong it.
	if n := d.count(`SELECT failures FROM sign_in_failures WHERE user_id = $1 AND device = ''`, p.ID); n != 5 {
		t.Errorf("%d failures count", n)
	}
	d.exec(`UPDATE sign_in_failures SET locked_until = now() - interval '1 second'`)
	if _, err := d.SignIn(t.Context(), p.Email, good, somewhere()); err != nil {
		t.Errorf("after the lock: %v", err)
	}
	other := d.person("eve@test.edu", registry.RoleInstitutionalUser, "test.edu")
	if got := d.device(s.Device, other); got != "" || s.Device == "" {
		t.Errorf("the device of ann is %q for eve", got)
	}
	d.later(deviceTime + time.Hour)
	if got := d.device(s.Device, p); got != "" {
		t.Errorf("half a year later the device is still known: %q", got)
	}
}

func TestLocksDoubleToAnHour(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	var minutes []int
	for range 14 {
		d.exec(`UPDATE sign_in_failures SET locked_until = now()`)
		must.Get(d.people.Attempt(t.Context(), p.ID, ""))(t)
		minutes = append(minutes, d.count(`SELECT coalesce(round(extract(epoch FROM locked_until - now()) / 60), 0)::int FROM sign_in_failures`))
	}
	if got := fmt.Sprint(minutes); got != "[0 0 0 0 1 2 4 8 16 32 60 60 60 60]" {
		t.Errorf("minutes: %s", got)
	}
	d.exec(`UPDATE sign_in_failures SET failed_at = now() - interval '25 hours', locked_until = now()`)
	if _, err := d.people.Attempt(t.Context(), p.ID, ""); err != nil || d.count(`SELECT failures FROM sign_in_failures`) != 1 {
		t.Errorf("a day later failures still count: %v", err)
	}
}

func TestAddressesHaveTwentyAttemptsAMinute(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	var limited *TooMany
	from := From{IP: netip.MustParseAddr("2001:db8::1")}
	for i := range 20 {
		if _, err := d.SignIn(t.Context(), fmt.Sprint(i, "@test.edu"), good, from); !errors.Is(err, ErrWrong) {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	from.IP = netip.MustParseAddr("2001:db8::ffff") // of the same network
	if _, err := d.SignIn(t.Context(), "x@test.edu", good, from); !errors.As(err, &limited) || limited.Wait <= 0 || limited.Wait > time.Minute {
		t.Errorf("attempt 21: %v", err)
	}
	from.IP = netip.MustParseAddr("2001:db8:0:1::1")
	if _, err := d.SignIn(t.Context(), "x@test.edu", good, from); !errors.Is(err, ErrWrong) {
		t.Errorf("another network: %v", err)
	}
}

// Codes are guessed in vain: they lock as passwords do.
func TestGuessedCodesLock(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	code, _ := d.strong(p)
	session := d.session(d.enter(p).Secret)
	for range 5 {
		if _, err := d.Factor(t.Context(), session, "000000", somewhere()); !errors.Is(err, ErrWrong) {
			t.Fatal(err)
		}
	}
	d.later(time.Minute)
	if _, err := d.Factor(t.Context(), session, code(), somewhere()); !errors.Is(err, ErrWrong) {
		t.Errorf("the right code after five wrong ones: %v", err)
	}
}
