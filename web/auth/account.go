package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// setUpPurpose seals a second factor that is being set up: the server keeps nothing of it
// until a code has proved that the person has it.
const setUpPurpose = "totp set-up"

// SetUp is a second factor that is offered to a person.
type SetUp struct {
	Factor

	Pending string `json:"pending"` // to be sent back with the first code
}

// SetUpFactor offers a person a new second factor. Nothing is changed yet.
func (a *Auth) SetUpFactor(p people.Person) (SetUp, error) {
	f := newFactor(a.options.Issuer, p.Email)
	sealed, err := a.options.Keys.SealText(setUpPurpose, ownerOf(p.ID), []byte(f.Secret))
	return SetUp{f, sealed}, err
}

// ConfirmFactor sets the second factor that was offered, proved by a code of it, and
// returns its recovery codes, which are shown once. The session rises to the full level.
// All other sessions end. A session of the full level needs a fresh proof, or one that was
// stolen would get it by a second factor of the thief. A wrong code is [ErrWrong].
func (a *Auth) ConfirmFactor(ctx context.Context, session record.Session, pending, code string, from From) (SignedIn, []string, error) {
	p, err := a.people.ByID(ctx, session.UserID)
	if err != nil {
		return SignedIn{}, nil, err
	}
	switch {
	case session.Level == people.LevelFull && !session.Fresh:
		return SignedIn{}, nil, wrong("prove once more who you are, or sign in again, before you set up a second factor")
	case session.Level != people.LevelFull && p.Strong():
		return SignedIn{}, nil, ErrWrong
	}
	if !p.Strong() && p.IssuerFactor && session.Level != people.LevelFull {
		return SignedIn{}, nil, elsewhere(p.Issuer) // or a password would be enough to have both
	}
	secret, err := a.options.Keys.OpenText(setUpPurpose, ownerOf(p.ID), pending)
	if err != nil {
		return SignedIn{}, nil, ErrWrong
	}
	codes := newCodes()
	s, err := a.raise(ctx, session, p, from, func() (bool, error) {
		step, right := stepOf(string(secret), code, a.options.Now())
		if !right {
			return false, nil
		}
		sealed, err := a.options.Keys.Seal(totpPurpose, ownerOf(p.ID), secret)
		if err != nil {
			return false, err
		}
		return true, a.registry.Act(ctx, ActorOf(p, from), &registry.AuditEntry{Operation: "me.set_factor", SubjectType: "user", SubjectID: fmt.Sprint(p.ID)},
			func(ctx context.Context) error {
				return errors.Join(a.people.SetTOTP(ctx, p, session.ID, sealed, step, codes),
					a.people.Alert(ctx, p.ID, "Second Factor Changed", "Your second factor was changed",
						"A new second factor was set up for you. If it was not you, contact the archive's staff at once."))
			})
	})
	switch {
	case errors.Is(err, registry.ErrNotFound): // another second factor was set up at the same time
		return SignedIn{}, nil, ErrWrong
	case err != nil:
		return SignedIn{}, nil, err
	}
	return s, codes, nil
}

// PersonOfLink returns the person whom a link to set a password is for, and leaves the
// link as it is: programs that look at links in mails use none up. It is [ErrLink] if the
// link is no longer good.
func (a *Auth) PersonOfLink(ctx context.Context, secret string) (people.Person, error) {
	p, err := a.people.LinkOf(ctx, secret, people.Invite, people.Reset)
	return p, ofLink(err)
}

// ofLink is [ErrLink] where a link was not found.
func ofLink(err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		return ErrLink
	}
	return err
}

// SetPasswordByLink uses up an invitation or a link to set a new password, and begins a
// session, which still needs the second factor of a person who has one.
func (a *Auth) SetPasswordByLink(ctx context.Context, secret, password string, from From) (SignedIn, error) {
	if err := a.Attempt(from.IP); err != nil {
		return SignedIn{}, err
	}
	p, err := a.PersonOfLink(ctx, secret)
	if err != nil {
		return SignedIn{}, err
	}
	hash, err := a.newHash(ctx, p, password)
	if err != nil {
		return SignedIn{}, err
	}
	p, err = a.setPassword(ctx, p, hash, from, func(ctx context.Context) error {
		_, err := a.people.UseLink(ctx, secret, people.Invite, people.Reset)
		return ofLink(err)
	})
	if err != nil {
		return SignedIn{}, err
	}
	return a.begin(ctx, p, from)
}

// ChangePassword sets a new password for a person who knows the old one. All sessions end,
// and a new one begins, with a fresh proof if a password is one of this person.
func (a *Auth) ChangePassword(ctx context.Context, session record.Session, old, password string, from From) (SignedIn, error) {
	p, err := a.people.ByID(ctx, session.UserID)
	if err != nil {
		return SignedIn{}, err
	}
	if session.Level != people.LevelFull {
		return SignedIn{}, ErrWrong
	}
	if err := CheckPassword(password, p.Email); err != nil {
		return SignedIn{}, err
	}
	var hash string
	err = a.prove(ctx, p, from, func() (right bool, err error) {
		if right, err = a.passwordIsRight(ctx, p, old); right {
			hash, err = a.hasher.hash(ctx, password)
		}
		return right, err
	})
	if err != nil {
		return SignedIn{}, err
	}
	if p, err = a.setPassword(ctx, p, hash, from, func(context.Context) error { return nil }); err != nil {
		return SignedIn{}, err
	}
	return a.session(ctx, SignedIn{Person: p, Level: people.LevelFull}, session.Fresh || passwordProves(p), from)
}

func (a *Auth) newHash(ctx context.Context, p people.Person, password string) (string, error) {
	if err := CheckPassword(password, p.Email); err != nil {
		return "", err
	}
	return a.hasher.hash(ctx, password)
}

// setPassword sets a password and does something more in the same transaction. It returns the
// person as they are then. Who has a second factor stays locked out if its codes were guessed:
// it is none, if those who read the person's mail can guess on.
func (a *Auth) setPassword(ctx context.Context, p people.Person, hash string, from From, more func(context.Context) error) (after people.Person, err error) {
	entry := registry.AuditEntry{Operation: "me.set_password", SubjectType: "user", SubjectID: fmt.Sprint(p.ID), Institution: p.InstitutionID}
	return registry.Acted(ctx, a.registry, ActorOf(p, from), &entry, func(ctx context.Context) (people.Person, error) {
		if err := more(ctx); err != nil {
			return p, err
		}
		err := errors.Join(a.people.SetPassword(ctx, p.ID, hash),
			a.people.Alert(ctx, p.ID, "Password Changed", "Your password was changed",
				"A new password was set for you, and all your sessions have ended. If it was not you, contact the archive's staff at once."))
		if err == nil && !p.Strong() {
			err = a.people.Unlock(ctx, p.ID)
		}
		if err != nil {
			return p, err
		}
		return a.people.ByID(ctx, p.ID)
	})
}

// SignInByLink begins a full session by a link that a program of this machine has printed.
func (a *Auth) SignInByLink(ctx context.Context, secret string, from From) (SignedIn, error) {
	if err := a.Attempt(from.IP); err != nil {
		return SignedIn{}, err
	}
	p, err := a.people.UseLink(ctx, secret, people.SignIn)
	if err != nil {
		return SignedIn{}, ofLink(err)
	}
	return a.session(ctx, SignedIn{Person: p, Level: people.LevelFull}, true, from)
}

// ActorOf is a person as the registry records who acts.
func ActorOf(p people.Person, from From) registry.Actor {
	return registry.Actor{Name: p.Email, UserID: p.ID, IP: from.IP}
}

// SignOut ends a session.
func (a *Auth) SignOut(ctx context.Context, session record.Session) error {
	_, err := a.people.EndSession(ctx, session.UserID, session.ID)
	return err
}

// SetMail changes when a person gets mail, and records it: who takes over an account does not
// silence its alerts unseen.
func (a *Auth) SetMail(ctx context.Context, p people.Person, wanted record.MailSettings, from From) (record.MailSettings, error) {
	entry := registry.AuditEntry{
		Operation: "me.set_mail", SubjectType: "user", SubjectID: fmt.Sprint(p.ID), Institution: p.InstitutionID, Detail: map[string]any{"set": wanted},
	}
	return registry.Acted(ctx, a.registry, ActorOf(p, from), &entry, func(ctx context.Context) (record.MailSettings, error) {
		return a.people.SetMail(ctx, p.ID, wanted)
	})
}
