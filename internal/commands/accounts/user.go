package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// User is farol user.
func User() *cobra.Command {
	return cli.Group("user", "Manage people: who they are, what they may do, and how they sign in",
		userAddCommand(), userListCommand(), userSetCommand(), userActiveCommand("deactivate", "Deactivate a person's account"),
		userActiveCommand("activate", "Activate a person's account again"),
		userResetCommand(), userUnlockCommand(), userUnlinkCommand(), userSessionsCommand(), userMailCommand())
}

// Roles are those that a person can have.
func Roles() []string {
	return []string{registry.RoleAdmin, registry.RoleOperator, registry.RoleAuditor, registry.RoleInstitutionalAdmin, registry.RoleInstitutionalUser}
}

func userAddCommand() *cobra.Command {
	return op.Command{
		Use:   "add EMAIL --name NAME --role ROLE",
		Short: "Register a person",
		Long: `Register a person by e-mail.

  institutional_user   sees and restores the institution's objects
  institutional_admin  also requests deletions, approves those of others, and registers people
  auditor              reads, of one institution or of all
  operator             looks after the queue and the machinery, and sees no records
  admin                is staff of the archive

With --invite a link is printed with which the person sets a password. It can be used
once, within 24 hours. The first admin of a new archive is registered in this way. With
--mail the link is sent to the person instead, by the mail server of farol schedule.`,
		Example: `  farol user add staff@archive.org --name 'A Colleague' --role admin --invite
  farol user add first@test.edu --name 'First Admin' --role institutional_admin --institution test.edu`,
		Arg:  "e-mail",
		Here: true,
		Flags: []op.Flag{
			{Name: "name", Param: "name", Help: "name of the person (required)"},
			{Name: "role", Param: "role", Among: Roles, Quiet: true, Help: "admin, operator, auditor, institutional_admin or institutional_user (required)"},
			{Name: "institution", Param: "institution_identifier", Help: "institution by its identifier; an admin or operator has none"},
			{Name: "invite", Kind: op.Truth, Help: "print a link with which the person sets a password"},
			{Name: "mail", Kind: op.Truth, Help: "mail that link to the person"},
		},
		Check: checkUser,
	}.Make(func(ctx context.Context, c *op.Call) error {
		body := c.Body()
		body["email"] = c.Arg
		var view struct {
			record.User

			Link string `json:"link,omitempty"` // "": none was made
		}
		_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: "users", Body: body}, &view.User)
		if err == nil && (c.Given("invite") || c.Given("mail")) {
			view.Link, err = linkFor(ctx, c, view.ID, people.Invite)
		}
		if err != nil {
			return remote.Next(err, "`farol user list` and `farol institution list` show the people and institutions")
		}
		return cli.Printf(c.Cmd, c.JSON, view, "%s is registered as %s.%s\n", human.Line(view.Email), view.Role, linkText(view.Link, "set a password"))
	})
}

// checkUser refuses what does not go together.
func checkUser(c *op.Call) error {
	if !c.Given("name") {
		return cli.Usage(errors.New("--name is missing"), "add --name 'Name of the person'")
	}
	role, institution := c.Text("role"), c.Text("institution")
	if role == "" {
		return cli.Usage(errors.New("--role is missing"), "the roles are "+strings.Join(Roles(), ", "))
	}
	staff := role == registry.RoleAdmin || role == registry.RoleOperator
	if role != registry.RoleAuditor && staff != (institution == "") {
		return cli.Usage(fmt.Errorf("--institution is %q and the role is %s", institution, role),
			"name the institution, except for an admin or operator, who has none")
	}
	return nil
}

func userListCommand() *cobra.Command {
	return op.Command{
		Use:   "list",
		Short: "List people",
		Example: `  farol user list
  farol user list --institution test.edu --json`,
		Flags: []op.Flag{{Name: "institution", Param: "institution", Help: "only people of this institution, by its identifier"}},
	}.Make(func(ctx context.Context, c *op.Call) error {
		list, err := remote.List[record.User](ctx, c.Server, "users", c.Query(), math.MaxInt)
		if err == nil && len(list) == 0 {
			err = op.KnownInstitution(ctx, c)
		}
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b record.User) int { return strings.Compare(a.Email, b.Email) })
		return cli.PrintList(c.Cmd, c.JSON, list, "people", []string{"EMAIL", "ROLE", "INSTITUTION", "STATE", "NAME"}, func(u record.User) []string {
			state := "active"
			if u.DeactivatedAt != nil {
				state = "deactivated"
			}
			return []string{human.Line(u.Email), u.Role, u.Institution, state, human.Line(u.Name)}
		})
	})
}

// onUser is a command about a person, who is named by e-mail in whatever case.
func onUser(c op.Command, do func(context.Context, *op.Call, record.User) error) *cobra.Command {
	c.Arg, c.Here = "e-mail", true
	return c.Make(func(ctx context.Context, call *op.Call) error {
		list, err := remote.List[record.User](ctx, call.Server, "users", nil, math.MaxInt)
		if i := slices.IndexFunc(list, func(u record.User) bool { return strings.EqualFold(u.Email, call.Arg) }); i >= 0 {
			err = do(ctx, call, list[i])
		} else {
			err = cmp.Or(err, fmt.Errorf("look up user %q: %w", call.Arg, registry.ErrNotFound))
		}
		return remote.Next(err, "`farol user list` shows the registered people")
	})
}

// post does something to a person, and says only that it was done.
func post(ctx context.Context, c *op.Call, u record.User, what string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: remote.About("users", u.ID, what)}, nil)
	return err
}

func userActiveCommand(verb, short string) *cobra.Command {
	return onUser(op.Command{
		Use:     verb + " EMAIL",
		Short:   short,
		Example: "  farol user " + verb + " first@test.edu",
	}, func(ctx context.Context, c *op.Call, u record.User) error {
		u, err := remote.Send[record.User](ctx, c.Server, http.MethodPost, remote.About("users", u.ID, "/"+verb), nil)
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, u, "%s is %sd.\n", human.Line(u.Email), verb)
	})
}

// linkFor makes a link for a person to set a password. It is "" if it is mailed to them.
func linkFor(ctx context.Context, c *op.Call, user int64, kind string) (string, error) {
	config, err := connect.Load(settings.Links{})
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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
		after, err := remote.Send[record.Profile](ctx, c.Server, http.MethodPatch, remote.About("users", u.ID, ""), body)
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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
		before, err := remote.Get[record.Profile](ctx, c.Server, remote.About("users", u.ID, ""), nil)
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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
		path := remote.About("users", u.ID, "/sessions")
		if c.Given("end") {
			v, err := remote.Send[struct{ Ended int64 }](ctx, c.Server, http.MethodDelete, path, nil)
			if err != nil {
				return err
			}
			return cli.Printf(c.Cmd, c.JSON, map[string]any{"email": u.Email, "ended": v.Ended}, "%s of %s ended.\n", human.Count(v.Ended, "session", "sessions"), human.Line(u.Email))
		}
		list, err := remote.All[record.Session](ctx, c.Server, path)
		if err != nil {
			return err
		}
		return cli.PrintList(c.Cmd, c.JSON, list, "sessions", []string{"ID", "LEVEL", "BEGUN", "LAST USED", "ADDRESS", "BROWSER"}, func(s record.Session) []string {
			return []string{fmt.Sprint(s.ID), s.Level, human.Time(s.BegunAt), human.Time(s.SeenAt), s.IP, human.Line(s.Agent)}
		})
	})
}

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
	}, func(ctx context.Context, c *op.Call, u record.User) error {
		method := http.MethodGet
		var body any
		if wanted := c.Body(); len(wanted) > 0 {
			method, body = http.MethodPatch, wanted
		}
		now, err := remote.Send[record.MailSettings](ctx, c.Server, method, remote.About("users", u.ID, "/mail"), body)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, now, func(out io.Writer, s record.MailSettings) error {
			return cli.WriteList(out, "kinds of mail", []string{"ALERTS", "MAIL"}, [][]string{
				{"deletions", s.Deletions}, {"restorations", s.Restorations}, {"fixity", s.Fixity}, {"problems", s.Problems},
			})
		})
	})
}
