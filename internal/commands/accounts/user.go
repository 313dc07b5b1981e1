package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
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
			registry.User

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
		list, err := remote.List[registry.User](ctx, c.Server, "users", c.Query(), math.MaxInt)
		if err == nil && len(list) == 0 {
			err = values.CheckInstitution(ctx, c.Server, c.Text("institution"))
		}
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b registry.User) int { return strings.Compare(a.Email, b.Email) })
		return cli.PrintList(c.Cmd, c.JSON, list, "people", []string{"EMAIL", "ROLE", "INSTITUTION", "STATE", "NAME"}, func(u registry.User) []string {
			state := "active"
			if u.DeactivatedAt != nil {
				state = "deactivated"
			}
			return []string{human.Line(u.Email), u.Role, u.Institution, state, human.Line(u.Name)}
		})
	})
}

// onUser is a command about a person, who is named by e-mail in whatever case.
func onUser(c op.Command, do func(context.Context, *op.Call, registry.User) error) *cobra.Command {
	c.Arg, c.Here = "e-mail", true
	return c.Make(func(ctx context.Context, call *op.Call) error {
		list, err := remote.List[registry.User](ctx, call.Server, "users", nil, math.MaxInt)
		if i := slices.IndexFunc(list, func(u registry.User) bool { return strings.EqualFold(u.Email, call.Arg) }); i >= 0 {
			err = do(ctx, call, list[i])
		} else {
			err = cmp.Or(err, fmt.Errorf("look up user %q: %w", call.Arg, registry.ErrNotFound))
		}
		return remote.Next(err, "`farol user list` shows the registered people")
	})
}

// post does something to a person, and says only that it was done.
func post(ctx context.Context, c *op.Call, u registry.User, what string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: remote.About("users", u.ID, what)}, nil)
	return err
}

func userActiveCommand(verb, short string) *cobra.Command {
	return onUser(op.Command{
		Use:     verb + " EMAIL",
		Short:   short,
		Example: "  farol user " + verb + " first@test.edu",
	}, func(ctx context.Context, c *op.Call, u registry.User) error {
		u, err := remote.Send[registry.User](ctx, c.Server, http.MethodPost, remote.About("users", u.ID, "/"+verb), nil)
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, u, "%s is %sd.\n", human.Line(u.Email), verb)
	})
}
