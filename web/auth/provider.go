package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/limit"
)

// ErrNoAccount is the answer to everyone whom an OpenID provider knows and Farol does not
// let in, whatever the reason.
var ErrNoAccount = errors.New("you are signed in there, but no account of Farol belongs to that sign-in; ask an administrator of your institution, or the archive's staff")

// Provider says whom an OpenID provider may sign in.
type Provider struct {
	Name        string
	Institution string   // identifier; only people of it; "": of all
	Domains     []string // of e-mail addresses, in lower case, by which it may be bound to people
}

// Said is what an OpenID provider says of a person who has signed in there, after all
// signatures were verified.
type Said struct {
	people.Identity

	Email    string
	Verified bool // the provider vouches for the e-mail address
	Factor   bool // with a second factor, and the provider is trusted with that
	Fresh    bool // within the last ten minutes
}

// SignInByProvider begins a session for a person whom an OpenID provider has signed in. It
// signs in people who are registered, registers nobody, and gives no role. The first time a
// person is found by a verified e-mail address of a listed domain, and is bound to the
// provider's subject; from then on only that subject counts. [ErrNoAccount] is the answer to
// all others.
func (a *Auth) SignInByProvider(ctx context.Context, by Provider, said Said, from From) (SignedIn, error) {
	p, err := a.people.ByIdentity(ctx, said.Identity)
	bound := err == nil
	if errors.Is(err, registry.ErrNotFound) {
		p, err = a.personToBind(ctx, by, said)
	}
	if err != nil {
		return SignedIn{}, err
	}
	if !p.Active || by.Institution != "" && p.Institution != by.Institution {
		return SignedIn{}, ErrNoAccount
	}
	if !bound {
		if err := a.bind(ctx, by, said, p, from); err != nil {
			return SignedIn{}, err
		}
	}
	if said.Factor {
		if err := a.people.NoteIssuerFactor(ctx, p.ID); err != nil {
			return SignedIn{}, err
		}
	}
	return a.beginWith(ctx, p, from, proof{factor: said.Factor, fresh: said.Fresh})
}

// Attempt counts an attempt of an address to sign in by a provider, before that is asked. Too
// many are [TooMany].
func (a *Auth) Attempt(ip netip.Addr) error {
	if wait, _ := a.attempts.Take(limit.Address(ip)); wait > 0 {
		return &TooMany{wait}
	}
	return nil
}

// personToBind finds a person by the e-mail address that a provider vouches for.
func (a *Auth) personToBind(ctx context.Context, by Provider, said Said) (people.Person, error) {
	at := strings.LastIndexByte(said.Email, '@')
	if !said.Verified || at < 1 || !isPlain(said.Email) || !slices.Contains(by.Domains, strings.ToLower(said.Email[at+1:])) {
		return people.Person{}, ErrNoAccount
	}
	p, err := a.people.ByEmail(ctx, said.Email)
	if errors.Is(err, registry.ErrNotFound) {
		return p, ErrNoAccount
	}
	return p, err
}

// isPlain reports whether a text is visible ASCII. The cases of other letters are no matter
// for an identity: the sign for kelvin is a k to some, and the address is another person's.
func isPlain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func (a *Auth) bind(ctx context.Context, by Provider, said Said, p people.Person, from From) error {
	entry := registry.AuditEntry{
		Operation: "me.bind_provider", SubjectType: "user", SubjectID: fmt.Sprint(p.ID), Institution: p.InstitutionID,
		Detail: map[string]any{"provider": by.Name, "issuer": said.Issuer, "subject": said.Subject, "email": said.Email},
	}
	err := a.registry.Act(ctx, ActorOf(p, from), &entry, func(ctx context.Context) error {
		if err := a.people.Bind(ctx, p.ID, said.Identity); err != nil {
			return err
		}
		return a.people.Alert(ctx, p.ID, "New Sign-in", "Your account was linked to another sign-in",
			fmt.Sprintf("You have signed in by %s for the first time, from the address %s. From now on that sign-in opens your account. "+
				"If it was not you, contact the archive's staff at once.", said.Issuer, from.IP))
	})
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrRefused) {
		return ErrNoAccount // the account is bound to an earlier sign-in; it is on record
	}
	return err
}
