package accounts

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// linkFor makes a link for a person to set a password. It is "" if it is mailed to them.
func linkFor(ctx context.Context, c *op.Call, user int64, kind string) (string, error) {
	config, err := connect.Load(settings.ReadLinks)
	if err != nil {
		return "", err
	}
	var made struct{ Path string }
	_, err = c.Do(ctx, client.Call{Method: http.MethodPost, Path: remote.About("users", user, "/"+kind), Query: remote.Query("mail", remote.Truth(c.Given("mail")))}, &made)
	if err != nil || made.Path == "" {
		return "", err
	}
	return config.Web.Base() + made.Path, nil
}

// linkText is what is printed of a link; "" of none.
func linkText(link, purpose string) string {
	if link == "" {
		return ""
	}
	return fmt.Sprintf("\nHand this link to the person, to %s. It can be used once, and cannot be printed again:\n\n%s", purpose, link)
}

func userSetCommand() *cobra.Command {
	var body map[string]any
	return onUser(op.Command{
		Use:   "set EMAIL",
		Short: "Change a person's e-mail, name, role, institution or time zone",
		Long: `Change what is registered of a person. A change of e-mail, role or institution ends all
sessions of the person; of role or institution, the personal tokens too.`,
		Example: `  farol user set first@test.edu --role institutional_user
  farol user set first@test.edu --email ann.lee@test.edu --name 'Ann Lee' --time-zone Europe/Lisbon
  farol user set staff@archive.org --role auditor --institution ''`,
		Flags: []op.Flag{
			{Name: "email", Param: "email", Kind: op.Exact, Help: "new e-mail address"},
			{Name: "name", Param: "name", Kind: op.Exact, Help: "new name"},
			{Name: "role", Param: "role", Kind: op.Exact, Among: Roles, Quiet: true, Help: "admin, operator, auditor, institutional_admin or institutional_user"},
			{Name: "institution", Param: "institution_identifier", Kind: op.Exact, Help: "institution by its identifier; '' is none"},
			{Name: "second-factor", Among: func() []string { return []string{"required", "optional"} }, Quiet: true, Help: "required or optional; admins and operators always need one"},
			{Name: "time-zone", Param: "time_zone", Kind: op.Exact, Help: "time zone for digests, such as Europe/Lisbon"},
		},
		Check: func(c *op.Call) error {
			body = c.Body()
			if c.Given("second-factor") {
				body["second_factor_required"] = c.Text("second-factor") == "required"
			}
			if len(body) == 0 {
				return cli.Usage(errors.New("nothing is to be changed"), "see `farol user set --help`")
			}
			return nil
		},
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		after, err := remote.Send[people.Profile](ctx, c.Server, http.MethodPatch, remote.About("users", u.ID, ""), body)
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, after, "%s is registered as %s.\n", human.Line(after.Email), after.Role)
	})
}

func userResetCommand() *cobra.Command {
	return onUser(op.Command{
		Use:   "reset EMAIL",
		Short: "Print a link with which a person sets a new password",
		Long: `Print a link with which a person sets a new password. It can be used once, within an
hour. With --mail it is sent to the person instead. With --factor, also remove the second
factor of a person who has lost it, and end all sessions; the person gets an alert, and
sets up a new one when they sign in.`,
		Example: `  farol user reset first@test.edu
  farol user reset first@test.edu --factor --json`,
		Flags: []op.Flag{
			{Name: "factor", Kind: op.Truth, Help: "remove the second factor, too"},
			{Name: "mail", Kind: op.Truth, Help: "mail the link to the person"},
		},
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		if c.Given("factor") {
			if err := post(ctx, c, u, "/reset-factor"); err != nil {
				return err
			}
		}
		link, err := linkFor(ctx, c, u.ID, people.Reset)
		if err != nil {
			return err
		}
		view := map[string]any{"email": u.Email, "link": link, "second_factor_removed": c.Given("factor")}
		return cli.Printf(c.Cmd, c.JSON, view, "%s gets a new password.%s\n", human.Line(u.Email), linkText(link, "set it"))
	})
}

func userUnlockCommand() *cobra.Command {
	return onUser(op.Command{
		Use:     "unlock EMAIL",
		Short:   "Forget the failed attempts to sign in as a person",
		Example: `  farol user unlock first@test.edu`,
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		if err := post(ctx, c, u, "/unlock"); err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, map[string]string{"email": u.Email}, "%s may sign in again.\n", human.Line(u.Email))
	})
}

func userUnlinkCommand() *cobra.Command {
	return onUser(op.Command{
		Use:   "unlink EMAIL",
		Short: "Remove the link of a person to an OpenID provider",
		Long: `Remove the link of a person to an OpenID provider, and end all sessions of the person. The
next sign-in there links the person again, by the verified e-mail address.`,
		Example: `  farol user unlink first@test.edu`,
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		before, err := remote.Get[people.Profile](ctx, c.Server, remote.About("users", u.ID, ""), nil)
		if err == nil {
			err = post(ctx, c, u, "/unlink")
		}
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, map[string]string{"email": u.Email, "issuer": before.Issuer}, "%s is linked to no OpenID provider.\n", human.Line(u.Email))
	})
}

func userSessionsCommand() *cobra.Command {
	return onUser(op.Command{
		Use:   "sessions EMAIL",
		Short: "List a person's sessions, or end them",
		Example: `  farol user sessions first@test.edu
  farol user sessions first@test.edu --end`,
		Flags: []op.Flag{{Name: "end", Kind: op.Truth, Help: "end all of them"}},
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		path := remote.About("users", u.ID, "/sessions")
		if c.Given("end") {
			v, err := remote.Send[struct{ Ended int64 }](ctx, c.Server, http.MethodDelete, path, nil)
			if err != nil {
				return err
			}
			return cli.Printf(c.Cmd, c.JSON, map[string]any{"email": u.Email, "ended": v.Ended}, "%s of %s ended.\n", human.Count(v.Ended, "session", "sessions"), human.Line(u.Email))
		}
		list, err := remote.All[people.Session](ctx, c.Server, path)
		if err != nil {
			return err
		}
		return cli.PrintList(c.Cmd, c.JSON, list, "sessions", []string{"ID", "LEVEL", "BEGUN", "LAST USED", "ADDRESS", "BROWSER"}, func(s people.Session) []string {
			return []string{fmt.Sprint(s.ID), s.Level, human.Time(s.BegunAt), human.Time(s.SeenAt), s.IP, human.Line(s.Agent)}
		})
	})
}
