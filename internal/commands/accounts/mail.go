package accounts

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

func userMailCommand() *cobra.Command {
	var wanted people.MailSettings
	var asJSON bool
	c := &cobra.Command{
		Use:   "mail EMAIL",
		Short: "Show when a person gets mail for alerts, or change it",
		Long: `Show when a person gets mail for each kind of alert: now, daily (in one mail at seven in
the morning of the person's time zone) or never. The flags change it. Alerts about the
account itself are always mailed at once.`,
		Example: `  farol user mail first@test.edu
  farol user mail first@test.edu --restorations daily --problems never`,
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			for flag, value := range map[string]*string{
				"deletions": &wanted.Deletions, "restorations": &wanted.Restorations, "fixity": &wanted.Fixity, "problems": &wanted.Problems,
			} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				if *value, err = cli.OneOf("--"+flag, *value, people.MailTimes()); err != nil {
					return err
				}
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				now, err := mailOf(ctx, r, args[0], wanted)
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, now, func(out io.Writer, s people.MailSettings) error {
					return cli.WriteList(out, "kinds of mail", []string{"ALERTS", "MAIL"}, [][]string{
						{"deletions", s.Deletions}, {"restorations", s.Restorations}, {"fixity", s.Fixity}, {"problems", s.Problems},
					})
				})
			})
		},
	}
	c.Flags().StringVar(&wanted.Deletions, "deletions", "", "now, daily or never")
	c.Flags().StringVar(&wanted.Restorations, "restorations", "", "now, daily or never")
	c.Flags().StringVar(&wanted.Fixity, "fixity", "", "now, daily or never; fixity checks and repairs")
	c.Flags().StringVar(&wanted.Problems, "problems", "", "now, daily or never; items and the archive itself")
	cli.JSONFlag(c, &asJSON)
	return c
}

// mailOf changes the settings of a person, if any are named, and returns them.
func mailOf(ctx context.Context, r *registry.Registry, email string, wanted people.MailSettings) (now people.MailSettings, err error) {
	if wanted == (people.MailSettings{}) {
		p, err := people.In(r).ByEmail(ctx, email)
		if err != nil {
			return now, unknown(err)
		}
		return people.In(r).Mail(ctx, p.ID)
	}
	_, err = of(ctx, r, email, "users.set_mail", map[string]any{"set": wanted}, func(ctx context.Context, p people.Person) (err error) {
		now, err = people.In(r).SetMail(ctx, p.ID, wanted)
		return err
	})
	return now, err
}

func userUnlinkCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "unlink EMAIL",
		Short: "Remove the link of a person to an OpenID provider",
		Long: `Remove the link of a person to an OpenID provider, and end all sessions of the person. The
next sign-in there links the person again, by the verified e-mail address.`,
		Example: `  farol user unlink first@test.edu`,
		Args:    cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				p, err := of(ctx, r, args[0], "users.unlink", nil, func(ctx context.Context, p people.Person) error { return people.In(r).Unbind(ctx, p.ID) })
				if err != nil {
					return err
				}
				return cli.Printf(cmd, asJSON, map[string]string{"email": p.Email, "issuer": p.Issuer}, "%s is linked to no OpenID provider.\n", human.Line(p.Email))
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
