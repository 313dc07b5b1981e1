package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/limit"
)

// Mails with links to set a new password that an address of e-mail may get from a process:
// three at once, and one more every twenty minutes.
const (
	resetsAnHour = 3

	// forgetStep is the grain of the time that an answer takes. It is longer than all that
	// is done for a person who is registered.
	forgetStep = 300 * time.Millisecond
)

// Forgot has a link to set a new password mailed to an e-mail address, if an active person has
// it. The answer is the same whether or not a person has the address, and whether or not it
// gets a mail, and comes after the same time. Nothing else changes: sessions and the password
// stay until the link is used. [TooMany] says that the sender asks too often.
func (a *Auth) Forgot(ctx context.Context, email string, from From) error {
	if err := a.Attempt(from.IP); err != nil {
		return err
	}
	began := time.Now()
	err := a.mailReset(ctx, email, from)
	spent := time.Since(began)
	wait := time.NewTimer(forgetStep - spent%forgetStep)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return err
}

func (a *Auth) mailReset(ctx context.Context, email string, from From) error {
	email = strings.TrimSpace(email)
	if !utf8.ValidString(email) || strings.ContainsRune(email, 0) || len(email) > 254 {
		return nil // as a database cannot store it, nobody has it
	}
	p, err := a.people.ByEmail(ctx, email)
	switch {
	case errors.Is(err, registry.ErrNotFound), err == nil && !p.Active:
		return nil
	case err != nil:
		return err
	}
	if wait, _ := a.resets.Take(ownerOf(p.ID)); wait > 0 {
		return nil
	}
	entry := registry.AuditEntry{Operation: "me.forgot_password", SubjectType: "user", SubjectID: fmt.Sprint(p.ID), Institution: p.InstitutionID}
	// Who asks is not known: the record names the role of the server, and the address.
	err = a.registry.Act(ctx, registry.Actor{IP: from.IP}, &entry, func(ctx context.Context) error { return a.people.MailReset(ctx, p.ID) })
	if errors.Is(err, registry.ErrNotFound) {
		return nil // a mail is on its way
	}
	return err
}

func newResets() *limit.Limits { return limit.New(resetsAnHour, time.Hour, resetsAnHour) }
