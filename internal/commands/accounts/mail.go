package accounts

import (
	"context"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

func userMailCommand() *cobra.Command {
	when := func(alerts, more string) op.Flag {
		return op.Flag{Name: alerts, Param: alerts, Among: people.MailTimes, Quiet: true, Help: "now, daily or never" + more}
	}
	return onUser(op.Command{
		Use:   "mail EMAIL",
		Short: "Show when a person gets mail for alerts, or change it",
		Long: `Show when a person gets mail for each kind of alert: now, daily (in one mail at seven in
the morning of the person's time zone) or never. The flags change it. Alerts about the
account itself are always mailed at once.`,
		Example: `  farol user mail first@test.edu
  farol user mail first@test.edu --restorations daily --problems never`,
		Flags: []op.Flag{
			when("deletions", ""), when("restorations", ""), when("fixity", "; fixity checks and repairs"), when("problems", "; items and the archive itself"),
		},
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		method := http.MethodGet
		var body any
		if wanted := c.Body(); len(wanted) > 0 {
			method, body = http.MethodPatch, wanted
		}
		now, err := remote.Send[people.MailSettings](ctx, c.Server, method, remote.About("users", u.ID, "/mail"), body)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, now, func(out io.Writer, s people.MailSettings) error {
			return cli.WriteList(out, "kinds of mail", []string{"ALERTS", "MAIL"}, [][]string{
				{"deletions", s.Deletions}, {"restorations", s.Restorations}, {"fixity", s.Fixity}, {"problems", s.Problems},
			})
		})
	})
}
