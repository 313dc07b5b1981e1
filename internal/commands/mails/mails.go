// Package mails has the commands that show and try how alerts are sent by mail.
package mails

import (
	"context"
	"fmt"
	"log/slog"
	netmail "net/mail"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/registry/outbox"
	"github.com/farol-preservation/farol/web/mail"
)

// Mail is farol mail.
func Mail() *cobra.Command {
	return cli.Group("mail", "Try and show the mail that alerts are sent by", testCommand(), queueCommand())
}

// Options are those of a sender; ok is false if no mail server is set.
func Options(c *settings.Mail, log *slog.Logger) (o mail.Options, ok bool) {
	server, ok := c.Server()
	return mail.Options{
		Host: server.Host, Port: server.Port, Implicit: server.Implicit, User: server.User, Password: c.CurrentPassword,
		From: c.From, WebURL: c.WebURL(), Log: log,
	}, ok
}

// tested is what the mail server said.
type tested struct {
	To     string `json:"to"`
	Server string `json:"server"`
	Answer string `json:"answer"`
}

func testCommand() *cobra.Command {
	return op.Command{
		Use:   "test EMAIL",
		Short: "Send one mail now, and print the answer of the mail server",
		Long: `Send one mail now, to see that the settings are right. It needs no database. A server
that accepts the mail may still reject it later: look whether it arrives.

Exit codes: 0 the server accepted the mail; 1 it did not; 2 usage error.`,
		Example: "  farol mail test first@test.edu",
		Arg:     "e-mail",
	}.Alone(func(c *op.Call) error {
		if a, err := netmail.ParseAddress(c.Arg); err != nil || a.Address != c.Arg {
			return cli.Usage(fmt.Errorf("%q is not an e-mail address", c.Arg), "name one address, such as first@test.edu")
		}
		config, err := connect.Load(settings.Mailer{})
		if err != nil {
			return err
		}
		o, _ := Options(&config.Mail, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(c.Cmd.Context(), 2*time.Minute)
		defer cancel()
		answer, err := mail.SendTest(ctx, o, c.Arg)
		if err != nil {
			return cli.Failure{
				Code: cli.ExitFailed, Err: err,
				Next: "check FAROL_SMTP_URL, FAROL_SMTP_PASSWORD_FILE and FAROL_MAIL_FROM, and that this host may reach " + o.Address() + "; docs/operators.md#mail lists common answers",
			}
		}
		return cli.Printf(c.Cmd, c.JSON, tested{c.Arg, o.Address(), answer}, "%s accepted the mail to %s: %s\n", o.Address(), c.Arg, human.Line(answer))
	})
}

func queueCommand() *cobra.Command {
	return op.List[outbox.Waiting]{
		Path: "mails", What: "mail", Header: []string{"ID", "TO", "KIND", "NEXT", "TRIES", "SUBJECT", "LAST ERROR"}, Row: row,
	}.All(op.Command{
		Use:   "queue",
		Short: "List mail that waits, with the next attempt and the last error",
		Long: `List the mail that is not sent yet, in the order in which it is due. farol schedule sends
it, and retries for three days. --given-up lists what was given up in the last 30 days.`,
		Example: `  farol mail queue
  farol mail queue --given-up --json`,
		Here: true,
		Flags: []op.Flag{
			{Name: "given-up", Param: "given_up", Kind: op.Truth, Help: "only mail that was given up"},
			{Name: "limit", Param: "limit", Kind: op.Number, Default: 100, Least: 1, Most: 10000, Help: "most rows to print"},
		},
	})
}

func row(w outbox.Waiting) []string {
	next := "given up"
	if w.DueAt != nil {
		next = w.DueAt.UTC().Format(time.DateTime)
	}
	return []string{fmt.Sprint(w.ID), human.Line(w.Email), w.Kind, next, fmt.Sprint(w.Attempts), human.Shorten(human.Line(w.Subject), 60), human.Line(w.Error)}
}
