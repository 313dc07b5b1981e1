package accounts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// User is farol user.
func User() *cobra.Command {
	return cli.Group("user", "Manage people: who they are, what they may do, and how they sign in",
		userAddCommand(), userListCommand(), userSetCommand(), userActiveCommand("deactivate", false), userActiveCommand("activate", true),
		userResetCommand(), userUnlockCommand(), userUnlinkCommand(), userSessionsCommand(), userMailCommand())
}

// Roles are those that a person can have.
func Roles() []string {
	return []string{registry.RoleAdmin, registry.RoleOperator, registry.RoleAuditor, registry.RoleInstitutionalAdmin, registry.RoleInstitutionalUser}
}

func userAddCommand() *cobra.Command {
	var u registry.User
	var invite, byMail, asJSON bool
	c := &cobra.Command{
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
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			u.Email = args[0]
			if err := checkUser(&u); err != nil {
				return err
			}
			return withLinks(cmd, func(ctx context.Context, r *registry.Registry, base string) error {
				entry := registry.AuditEntry{Operation: "users.add", SubjectType: "user", Detail: map[string]any{"email": u.Email, "role": u.Role, "invited": invite}}
				view, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (v userLink, err error) {
					if v.User, err = r.AddUser(ctx, u); err != nil {
						return v, err
					}
					entry.SubjectID, entry.Institution = fmt.Sprint(v.ID), v.InstitutionID
					switch {
					case byMail:
						err = people.In(r).MailLink(ctx, v.ID, people.Invite)
					case invite:
						v.Link, err = linkOf(ctx, r, base, v.ID, people.Invite)
					}
					return v, err
				})
				if err != nil {
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol user list` and `farol institution list` show the people and institutions"}
				}
				return cli.Printf(cmd, asJSON, view, "%s is registered as %s.%s\n", human.Line(view.Email), view.Role, view.text("set a password"))
			})
		},
	}
	c.Flags().StringVar(&u.Name, "name", "", "name of the person (required)")
	c.Flags().StringVar(&u.Role, "role", "", "admin, operator, auditor, institutional_admin or institutional_user (required)")
	c.Flags().StringVar(&u.Institution, "institution", "", "institution by its identifier; an admin or operator has none")
	c.Flags().BoolVar(&invite, "invite", false, "print a link with which the person sets a password")
	c.Flags().BoolVar(&byMail, "mail", false, "mail that link to the person")
	cli.JSONFlag(c, &asJSON)
	return c
}

// checkUser refuses what does not go together.
func checkUser(u *registry.User) (err error) {
	if u.Name == "" {
		return cli.Usage(errors.New("--name is missing"), "add --name 'Name of the person'")
	}
	if u.Role == "" {
		return cli.Usage(errors.New("--role is missing"), "the roles are "+strings.Join(Roles(), ", "))
	}
	if u.Role, err = cli.OneOf("--role", u.Role, Roles()); err != nil {
		return err
	}
	staff := u.Role == registry.RoleAdmin || u.Role == registry.RoleOperator
	if u.Role != registry.RoleAuditor && staff != (u.Institution == "") {
		return cli.Usage(fmt.Errorf("--institution is %q and the role is %s", u.Institution, u.Role),
			"name the institution, except for an admin or operator, who has none")
	}
	return nil
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
			show := func(list []registry.User, err error) error {
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
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				if err := values.InstitutionThere(ctx, institution); err != nil {
					return err
				}
				list, err := remote.List[registry.User](ctx, s, "users", remote.Query("institution", institution), math.MaxInt)
				slices.SortFunc(list, func(a, b registry.User) int { return strings.Compare(a.Email, b.Email) })
				return show(list, err)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, institution); err != nil {
					return err
				}
				return show(r.Users(ctx, institution))
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
				entry := registry.AuditEntry{Operation: "users." + verb, SubjectType: "user", Detail: map[string]any{"email": args[0]}}
				u, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.User, error) {
					u, err := r.SetUserActive(ctx, args[0], active)
					entry.SubjectID, entry.Institution = fmt.Sprint(u.ID), u.InstitutionID
					return u, err
				})
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
