package auth

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// atOnce does something n times, each as soon as all are ready.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			do(i)
		})
	}
	close(begin)
	all.Wait()
}

// Guesses that are sent at once are no more than those that are sent one after the other.
func TestGuessesAtOnceLockToo(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.hasher.queue = make(chan struct{}, 1000)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	code, _ := d.strong(p)
	session := d.session(d.enter(p).Secret)
	for what, guess := range map[string]func() error{
		"codes": func() error {
			_, err := d.Factor(t.Context(), session, "000000", somewhere())
			return err
		},
		"passwords": func() error {
			_, err := d.SignIn(t.Context(), p.Email, "a guess of an attacker", somewhere())
			return err
		},
	} {
		d.exec(`DELETE FROM sign_in_failures`)
		d.exec(`DELETE FROM alerts`)
		atOnce(60, func(int) {
			if err := guess(); !errors.Is(err, ErrWrong) {
				t.Errorf("%s: %v", what, err)
			}
		})
		if n := d.count(`SELECT failures FROM sign_in_failures`); n != 5 {
			t.Errorf("%d %s were tried before attempts were locked", n, what)
		}
		if n := d.count(`SELECT count(*) FROM alerts WHERE type = 'Account Locked'`); n != 1 {
			t.Errorf("%s: %d alerts", what, n)
		}
	}
	d.exec(`UPDATE sign_in_failures SET failures = 3, locked_until = NULL`)
	d.enter(p)
	if n := d.count(`SELECT failures FROM sign_in_failures`); n != 3 {
		t.Errorf("a password, whose code is still due, leaves %d failures of 3", n)
	}
	d.later(totpPeriod)
	if _, err := d.Factor(t.Context(), session, code(), somewhere()); err != nil || d.count(`SELECT count(*) FROM sign_in_failures`) != 0 {
		t.Errorf("after the right code failures count: %v", err)
	}
}

// An attempt that is right takes back its own count only: those that failed at the same time stay.
func TestRightAttemptForgetsNoOther(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	var n [6]int
	for i := range n {
		var err error
		if n[i], err = d.people.Attempt(t.Context(), p.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n != [6]int{1, 2, 3, 4, 5, 0} {
		t.Fatalf("counted: %v", n)
	}
	for _, step := range [][2]int{{4, 5}, {0, 5}, {5, 4}, {5, 4}, {4, 3}} {
		must.Do(t, d.people.TakeBack(t.Context(), p.ID, "", step[0]))
		if got := d.count(`SELECT failures FROM sign_in_failures`); got != step[1] {
			t.Errorf("when attempt %d is taken back, %d are left, want %d", step[0], got, step[1])
		}
	}
	if d.count(`SELECT count(*) FROM sign_in_failures WHERE locked_until IS NOT NULL`) != 0 {
		t.Error("attempts are locked after the one that locked them was right")
	}
}

// held changes a person in a transaction that ends when all of n others wait for it.
func (d *door) held(n int, sql string, user int64, others func()) {
	d.t.Helper()
	must.Do(d.t, pgx.BeginFunc(d.t.Context(), d.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(d.t.Context(), sql, user); err != nil {
			return err
		}
		go others()
		testenv.Eventually(d.t, "others wait", func() bool {
			return d.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == n
		})
		return nil
	}))
}

// A proof of what is changed at that moment begins no session.
func TestSessionsBeginWithWhatStillHolds(t *testing.T) {
	t.Parallel()
	for what, sql := range map[string]string{
		"a new password":   `UPDATE users SET password_hash = 'x', password_set_at = now() WHERE id = $1`,
		"another role":     `UPDATE users SET role = 'institutional_admin' WHERE id = $1`,
		"a second factor":  `UPDATE users SET totp_sealed = 'x' WHERE id = $1`,
		"the deactivation": `UPDATE users SET deactivated_at = now() WHERE id = $1`,
	} {
		d := newDoor(t)
		p := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
		done := make(chan error, 1)
		d.held(1, sql, p.ID, func() {
			_, err := d.SignIn(t.Context(), p.Email, good, somewhere())
			done <- err
		})
		if err := <-done; !errors.Is(err, ErrWrong) {
			t.Errorf("%s during the sign-in: %v", what, err)
		}
		if n := d.count(`SELECT count(*) FROM sessions`); n != 0 {
			t.Errorf("%s leaves %d sessions", what, n)
		}
	}
}

// Of two that set up a second factor at the same time one does: the other was shown no proof.
func TestFactorIsSetUpByOne(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	p := d.person("staff@archive.org", registry.RoleAdmin, "")
	var sessions [2]record.Session
	var offers [2]SetUp
	for i := range sessions {
		sessions[i] = d.session(d.enter(p).Secret)
		var err error
		if offers[i], err = d.SetUpFactor(p); err != nil {
			t.Fatal(err)
		}
	}
	results := make(chan error, 2)
	d.held(2, `SELECT FROM users WHERE id = $1 FOR NO KEY UPDATE`, p.ID, func() {
		atOnce(2, func(i int) {
			_, _, err := d.ConfirmFactor(t.Context(), sessions[i], offers[i].Pending, d.code(offers[i]), somewhere())
			results <- err
		})
	})
	if one, other := <-results, <-results; (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), ErrWrong) {
		t.Errorf("%v, %v", one, other)
	}
}
