package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// developer is the first admin of a stack. There is no password: a link signs in.
const developer = "developer@localhost.localdomain"

// invite prints a link that signs the first admin in, as the last line: it is what a
// newcomer clicks at.
func (l *local) invite(ctx context.Context, out io.Writer, what string) error {
	link, err := l.signInLink(ctx)
	if err != nil {
		return err
	}
	cli.Say(out, "\n%s. This link signs you in as the first admin, once and within 15 minutes.\n`farol user reset %s` prints another, which sets a password.\n", what, developer)
	fmt.Fprintln(out, link)
	return nil
}

// serveTime is how long the server for people may take to listen.
const serveTime = time.Minute

// signInLink is a link that signs in the first admin of the stack, once.
func (l *local) signInLink(ctx context.Context) (string, error) {
	_, err := l.registry.AddUser(ctx, record.User{Email: developer, Name: "Developer", Role: registry.RoleAdmin})
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", err
	}
	p, err := people.In(l.registry).ByEmail(ctx, developer)
	if err != nil {
		return "", err
	}
	secret, err := people.In(l.registry).MakeLink(ctx, p.ID, people.SignIn)
	if err != nil {
		return "", err
	}
	if err := listens(ctx, l.WebAddr); err != nil {
		return "", err
	}
	return "http://" + l.WebAddr + people.LinkPath(people.SignIn, secret), nil
}

// listens waits until a helper listens at an address.
func listens(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, serveTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the server for people does not listen at %s: %w", addr, err)
		}
	}
}
