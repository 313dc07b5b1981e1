// Package auth signs people in: passwords, second factors, links, sessions and lock-out.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/limit"
)

// ErrWrong is the answer to every attempt that fails, whatever was wrong: nobody learns
// whether an e-mail address is registered, locked or deactivated.
var ErrWrong = errors.New("the e-mail address, the password or the code is wrong, or too many attempts have failed: wait a while and try again")

// wrong is [ErrWrong] for a person who has signed in, in words of its own.
type wrong string

func (w wrong) Error() string { return string(w) }

func (wrong) Is(target error) bool { return target == ErrWrong }

// elsewhere is for a person whose second factor is at an OpenID provider.
func elsewhere(issuer string) error {
	return wrong("your second factor is at " + issuer + ": sign in there, or ask the archive's staff to remove that link")
}

// ErrLink says that a link was used, has expired or never was one.
var ErrLink = errors.New("this link was used or has expired; ask for a new one")

// TooMany says that an address sends too many attempts, and when it may send the next.
type TooMany struct{ Wait time.Duration }

// Error says when to try again.
func (e *TooMany) Error() string {
	return fmt.Sprintf("too many attempts; try again in %d seconds", int(e.Wait.Seconds())+1)
}

// Options of signing in.
type Options struct {
	Keys   *Keys
	Issuer string           // what apps for second factors show, such as "Farol (archive.org)"
	Now    func() time.Time // nil: time.Now

	HashMemory uint32 // KiB that each new hash of a password takes; 0: 64 MiB
}

// Auth signs people in. It is safe for concurrent use.
type Auth struct {
	registry *registry.Registry
	people   people.Records
	options  Options
	hasher   *hasher
	attempts *limit.Limits
	resets   *limit.Limits // mails with links to set a new password, for each person
}

// New returns what signs in the people of a registry.
func New(r *registry.Registry, o Options) *Auth {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HashMemory == 0 {
		o.HashMemory = 64 << 10
	}
	return &Auth{
		registry: r, people: people.In(r), options: o,
		hasher:   newHasher(parameters{memory: o.HashMemory, passes: 2, lanes: 1}),
		attempts: limit.New(attemptsAMinute, time.Minute, attemptsAMinute), resets: newResets(),
	}
}

// attemptsAMinute is how many attempts an address has.
const attemptsAMinute = 20

// From is where an attempt comes from.
type From struct {
	IP     netip.Addr
	Agent  string // as the browser names itself
	Device string // what SignedIn.Device was when the person signed in there last; "": not known

	Session record.Session // that the browser has; ID 0: none. The one that begins takes its place
}

// What is due before a session may do anything.
const (
	NextFactor = "second-factor"        // give a code of the second factor
	NextSetUp  = "set-up-second-factor" // the role or the institution asks for one
)

// SignedIn is a session that has begun, or has got another secret.
type SignedIn struct {
	Person people.Person
	Secret string // of the cookie; the one before is void
	Level  string
	Next   string // "": nothing is due
	Device string // proof that this browser signs in the person; "": as it was
}

// SignIn begins a session for an e-mail address and a password. Any failure is [ErrWrong],
// and takes as long whether the address is registered or not. [TooMany] and [ErrBusy] say
// to come again.
func (a *Auth) SignIn(ctx context.Context, email, password string, from From) (SignedIn, error) {
	if err := a.Attempt(from.IP); err != nil {
		return SignedIn{}, err
	}
	if !utf8.ValidString(email) || strings.ContainsRune(email, 0) {
		email = "" // as a database cannot store it, nobody has it
	}
	p, err := a.people.ByEmail(ctx, strings.TrimSpace(email))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return SignedIn{}, err
	}
	var old bool
	err = a.try(ctx, p, from, func(bool) (right bool, err error) {
		right, old, err = a.hasher.verify(ctx, password, p.PasswordHash)
		return right && p.Active, err
	})
	if err != nil {
		return SignedIn{}, err
	}
	if old {
		if hash, err := a.hasher.hash(ctx, password); err == nil {
			if err := a.people.Rehash(ctx, p.ID, p.PasswordHash, hash); err != nil {
				return SignedIn{}, err
			}
		}
	}
	return a.begin(ctx, p, from)
}

// try has a person prove something, and is [ErrWrong] if it is not right. It counts before it
// is judged: guesses that are sent at once would all be judged otherwise before the first of
// them has failed. While attempts are locked proved is called with false: it takes as long,
// uses nothing up, and what it finds does not count.
func (a *Auth) try(ctx context.Context, p people.Person, from From, proved func(open bool) (bool, error)) error {
	device := a.device(from.Device, p)
	n, err := a.people.Attempt(ctx, p.ID, device)
	if err != nil {
		return err
	}
	right, err := proved(n > 0)
	switch {
	case n > 0 && (err != nil || right): // nothing was judged, or it is right
		return errors.Join(err, a.people.TakeBack(ctx, p.ID, device, n))
	case err != nil:
		return err
	case n == people.LocksAt:
		err = a.people.Alert(ctx, p.ID, "Account Locked", "Attempts to sign in as you have failed",
			"Five attempts to sign in with your e-mail address have failed. Attempts from browsers that you have not used before are refused for a while. "+
				"If that was you, wait a minute. If it was not, your password has not been found out, and there is nothing to do.")
		if err != nil {
			return err
		}
	}
	return ErrWrong
}

// proof is what a person has shown.
type proof struct {
	factor bool // a second factor, too
	fresh  bool // just now
}

// begin begins a session of the level that a password, or a link to set one, is good for.
func (a *Auth) begin(ctx context.Context, p people.Person, from From) (SignedIn, error) {
	return a.beginWith(ctx, p, from, proof{fresh: true})
}

func (a *Auth) beginWith(ctx context.Context, p people.Person, from From, shown proof) (SignedIn, error) {
	s := SignedIn{Person: p, Level: people.LevelPassword}
	switch {
	case shown.factor:
		s.Level = people.LevelFull
	case p.Strong():
		s.Next = NextFactor
	case p.FactorRequired:
		s.Next = NextSetUp
	default:
		s.Level = people.LevelFull
	}
	return a.session(ctx, s, shown.fresh && s.Level == people.LevelFull, from)
}

// session begins the session of a person who has proved what its level takes.
func (a *Auth) session(ctx context.Context, s SignedIn, fresh bool, from From) (_ SignedIn, err error) {
	s.Secret, err = a.people.BeginSession(ctx, s.Person, s.Level, fresh, from.IP, from.Agent)
	if err == nil && from.Session.ID != 0 {
		if err = a.SignOut(ctx, from.Session); errors.Is(err, registry.ErrNotFound) {
			err = nil // it ended with what was proved
		}
	}
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return SignedIn{}, ErrWrong // what was proved holds no more
	case err != nil:
		return SignedIn{}, err
	case s.Level == people.LevelFull:
		err = a.entered(ctx, &s, from)
	}
	return s, err
}

// entered notes that a person is in, and has the browser known from now on.
func (a *Auth) entered(ctx context.Context, s *SignedIn, from From) error {
	device := a.device(from.Device, s.Person)
	if err := a.people.Succeeded(ctx, s.Person.ID, device); err != nil {
		return err
	}
	if device != "" {
		return nil
	}
	var err error
	if s.Device, err = a.newDevice(s.Person); err != nil {
		return err
	}
	if s.Person.SignedInAt == nil {
		return nil // nobody is surprised by the first time
	}
	return a.people.Alert(ctx, s.Person.ID, "New Sign-in", "You have signed in from a new browser",
		fmt.Sprintf("You have signed in from the address %s with a browser that Farol had not seen before. If it was not you, set a new password at once.", from.IP))
}

// Factor raises a session from a password to everything, by a code of the second factor or
// a recovery code. A wrong code is [ErrWrong].
func (a *Auth) Factor(ctx context.Context, session record.Session, code string, from From) (SignedIn, error) {
	p, err := a.people.ByID(ctx, session.UserID)
	if err != nil {
		return SignedIn{}, err
	}
	return a.raise(ctx, session, p, from, func() (bool, error) { return a.codeIsRight(ctx, p, code) })
}

// Prove gives a session a fresh proof: a code of the second factor, or the password of a
// person who has none. A wrong one is [ErrWrong].
func (a *Auth) Prove(ctx context.Context, session record.Session, proof string, from From) (SignedIn, error) {
	p, err := a.people.ByID(ctx, session.UserID)
	if err != nil {
		return SignedIn{}, err
	}
	if session.Level != people.LevelFull {
		return SignedIn{}, ErrWrong
	}
	judge := a.codeIsRight
	switch {
	case passwordProves(p):
		judge = a.passwordIsRight
	case !p.Strong():
		return SignedIn{}, elsewhere(p.Issuer)
	}
	return a.raise(ctx, session, p, from, func() (bool, error) { return judge(ctx, p, proof) })
}

// passwordProves reports whether the password of a person is a fresh proof: the person has no
// second factor here, and is asked for none at an OpenID provider.
func passwordProves(p people.Person) bool {
	return !p.Strong() && (!p.FactorRequired || !p.IssuerFactor)
}

func (a *Auth) passwordIsRight(ctx context.Context, p people.Person, password string) (bool, error) {
	right, _, err := a.hasher.verify(ctx, password, p.PasswordHash)
	return right, err
}

// prove has the person of a session prove something, unless attempts are locked.
func (a *Auth) prove(ctx context.Context, p people.Person, from From, proved func() (bool, error)) error {
	if err := a.Attempt(from.IP); err != nil {
		return err
	}
	return a.try(ctx, p, from, func(open bool) (bool, error) {
		if !open {
			return false, nil
		}
		return proved()
	})
}

// raise gives a session the full level and a new secret if a proof is right.
func (a *Auth) raise(ctx context.Context, session record.Session, p people.Person, from From, proved func() (bool, error)) (SignedIn, error) {
	if err := a.prove(ctx, p, from, proved); err != nil {
		return SignedIn{}, err
	}
	s := SignedIn{Person: p, Level: people.LevelFull}
	var err error
	s.Secret, err = a.people.Rise(ctx, session.ID, s.Level)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return SignedIn{}, ErrWrong // the session has ended
	case err != nil:
		return SignedIn{}, err
	}
	return s, a.entered(ctx, &s, from)
}

// codeIsRight uses up a code of the second factor, or a recovery code.
func (a *Auth) codeIsRight(ctx context.Context, p people.Person, code string) (bool, error) {
	if !p.Strong() {
		return false, nil
	}
	secret, err := a.options.Keys.Open(totpPurpose, ownerOf(p.ID), p.SealedTOTP)
	if err != nil {
		return false, err
	}
	if step, right := stepOf(string(secret), code, a.options.Now()); right {
		return a.people.UseStep(ctx, p.ID, step)
	}
	if typed := codeAsStored(code); typed != "" {
		return a.people.UseRecoveryCode(ctx, p.ID, typed)
	}
	return false, nil
}
