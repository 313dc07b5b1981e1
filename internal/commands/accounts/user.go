package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// User is farol user.
func User() *cobra.Command {
	return cli.Group("user", "Manage people who request restorations and deletions",
		userAddCommand(), userListCommand(), userActiveCommand("deactivate", false), userActiveCommand("activate", true))
}

// Roles are those that a person can have.
func Roles() []string {
	return []string{registry.RoleAdmin, registry.RoleInstitutionalAdmin, registry.RoleInstitutionalUser}
}

func userAddCommand() *cobra.Command {
	var u registry.User
	var asJSON bool
	c := &cobra.Command{
		Use:   "add EMAIL --name NAME --role ROLE",
		Short: "Register a person",
		Long: `Register a person by e-mail. An institutional_user may restore the institution's
objects. An institutional_admin may also request deletions, and approve those of
others. An admin is staff of the archive, belongs to no institution, and neither
requests nor approves deletions.`,
		Example: `  farol user add first@test.edu --name 'First Admin' --role institutional_admin --institution test.edu
  farol user add staff@archive.org --name 'A Colleague' --role admin`,
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			u.Email = args[0]
			if u.Name == "" {
				return cli.Usage(errors.New("--name is missing"), "add --name 'Name of the person'")
			}
			if u.Role == "" {
				return cli.Usage(errors.New("--role is missing"), "the roles are admin, institutional_admin and institutional_user")
			}
			if u.Role, err = cli.OneOf("--role", u.Role, Roles()); err != nil {
				return err
			}
			if (u.Role == registry.RoleAdmin) != (u.Institution == "") {
				return cli.Usage(fmt.Errorf("--institution is %q and the role is %s", u.Institution, u.Role),
					"name the institution, except for an admin, who has none")
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				added, err := r.AddUser(ctx, u)
				if err != nil {
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol user list` and `farol institution list` show the people and institutions"}
				}
				return cli.Printf(cmd, asJSON, added, "%s is registered as %s.\n", human.Line(added.Email), added.Role)
			})
		},
	}
	c.Flags().StringVar(&u.Name, "name", "", "name of the person (required)")
	c.Flags().StringVar(&u.Role, "role", "", "admin, institutional_admin or institutional_user (required)")
	c.Flags().StringVar(&u.Institution, "institution", "", "institution by its identifier; an admin has none")
	cli.JSONFlag(c, &asJSON)
	return c
}

func userListCommand() *cobra.Command {
	var institution string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List people",
		Example: `  farol user list
  farol user list --institution test.edu --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, institution); err != nil {
					return err
				}
				list, err := r.Users(ctx, institution)
				if err != nil {
					return err
				}
				return cli.PrintList(cmd, asJSON, list, "people", []string{"EMAIL", "ROLE", "INSTITUTION", "STATE", "NAME"}, func(u registry.User) []string {
					state := "active"
					if u.DeactivatedAt != nil {
						state = "deactivated"
					}
					return []string{human.Line(u.Email), u.Role, u.Institution, state, human.Line(u.Name)}
				})
			})
		},
	}
	c.Flags().StringVar(&institution, "institution", "", "only people of this institution, by its identifier")
	cli.JSONFlag(c, &asJSON)
	return c
}

func userActiveCommand(verb string, active bool) *cobra.Command {
	short := "Deactivate a person's account"
	if active {
		short = "Activate a person's account again"
	}
	var asJSON bool
	c := &cobra.Command{
		Use:     verb + " EMAIL",
		Short:   short,
		Example: "  farol user " + verb + " first@test.edu",
		Args:    cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				u, err := r.SetUserActive(ctx, args[0], active)
				if err != nil {
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol user list` shows the registered people"}
				}
				return cli.Printf(cmd, asJSON, u, "%s is %sd.\n", human.Line(u.Email), verb)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
