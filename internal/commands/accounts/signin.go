package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// userLink is a person with a link that was made for them.
type userLink struct {
	registry.User

	Link string `json:"link,omitempty"` // "": none was made
}

// text is what is printed of a link.
func (v userLink) text(purpose string) string {
	if v.Link == "" {
		return ""
	}
	return fmt.Sprintf("\nHand this link to the person, to %s. It can be used once, and cannot be printed again:\n\n%s", purpose, v.Link)
}

// withLinks does something with the registry and the URL that links begin with.
func withLinks(cmd *cobra.Command, do func(ctx context.Context, r *registry.Registry, base string) error) error {
	config, err := connect.Load(settings.ReadLinks)
	if err != nil {
		return err
	}
	s, err := connect.Open(cmd.Context(), "user", connect.Needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	return do(cmd.Context(), s.Registry, config.Web.Base())
}

func linkOf(ctx context.Context, r *registry.Registry, base string, user int64, kind string) (string, error) {
	secret, err := people.In(r).MakeLink(ctx, user, kind)
	if err != nil {
		return "", err
	}
	return base + people.LinkPath(kind, secret), nil
}

// unknown says where the people are listed.
func unknown(err error) error {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrRefused) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol user list` shows the registered people"}
	}
	return err
}

// of does something to a person, and records it.
func of(ctx context.Context, r *registry.Registry, email, operation string, detail map[string]any, do func(context.Context, people.Person) error) (people.Person, error) {
	p, err := people.In(r).ByEmail(ctx, email)
	if err != nil {
		return p, unknown(fmt.Errorf("the user %q: %w", email, err))
	}
	entry := registry.AuditEntry{Operation: operation, SubjectType: "user", SubjectID: fmt.Sprint(p.ID), Institution: p.InstitutionID, Detail: detail}
	return p, unknown(r.Act(ctx, registry.Actor{}, &entry, func(ctx context.Context) error { return do(ctx, p) }))
}

func userSetCommand() *cobra.Command {
	var email, name, role, institution, factor, zone string
	var asJSON bool
	c := &cobra.Command{
		Use:   "set EMAIL",
		Short: "Change a person's e-mail, name, role, institution or time zone",
		Long: `Change what is registered of a person. A change of e-mail, role or institution ends all
sessions of the person; of role or institution, the personal tokens too.`,
		Example: `  farol user set first@test.edu --role institutional_user
  farol user set first@test.edu --email ann.lee@test.edu --name 'Ann Lee' --time-zone Europe/Lisbon
  farol user set staff@archive.org --role auditor --institution ''`,
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var change people.Changes
			for flag, into := range map[string]struct {
				to   **string
				from *string
			}{"email": {&change.Email, &email}, "name": {&change.Name, &name}, "role": {&change.Role, &role}, "institution": {&change.Institution, &institution}, "time-zone": {&change.TimeZone, &zone}} {
				if cmd.Flags().Changed(flag) {
					*into.to = into.from
				}
			}
			if change.Role != nil {
				if role, err = cli.OneOf("--role", role, Roles()); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("second-factor") {
				if factor, err = cli.OneOf("--second-factor", factor, []string{"required", "optional"}); err != nil {
					return err
				}
				required := factor == "required"
				change.FactorRequired = &required
			}
			if change == (people.Changes{}) {
				return cli.Usage(errors.New("nothing is to be changed"), "see `farol user set --help`")
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				var after people.Profile
				_, err := of(ctx, r, args[0], "users.set", map[string]any{"set": change}, func(ctx context.Context, p people.Person) (err error) {
					after, err = people.In(r).Change(ctx, registry.Everything(), p.ID, 0, change)
					return err
				})
				if err != nil {
					return err
				}
				return cli.Printf(cmd, asJSON, after, "%s is registered as %s.\n", human.Line(after.Email), after.Role)
			})
		},
	}
	c.Flags().StringVar(&email, "email", "", "new e-mail address")
	c.Flags().StringVar(&name, "name", "", "new name")
	c.Flags().StringVar(&role, "role", "", "admin, operator, auditor, institutional_admin or institutional_user")
	c.Flags().StringVar(&institution, "institution", "", "institution by its identifier; '' is none")
	c.Flags().StringVar(&factor, "second-factor", "", "required or optional; admins and operators always need one")
	c.Flags().StringVar(&zone, "time-zone", "", "time zone for digests, such as Europe/Lisbon")
	cli.JSONFlag(c, &asJSON)
	return c
}

func userResetCommand() *cobra.Command {
	var factor, byMail, asJSON bool
	c := &cobra.Command{
		Use:   "reset EMAIL",
		Short: "Print a link with which a person sets a new password",
		Long: `Print a link with which a person sets a new password. It can be used once, within an
hour. With --mail it is sent to the person instead. With --factor, also remove the second
factor of a person who has lost it, and end all sessions; the person gets an alert, and
sets up a new one when they sign in.`,
		Example: `  farol user reset first@test.edu
  farol user reset first@test.edu --factor --json`,
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLinks(cmd, func(ctx context.Context, r *registry.Registry, base string) error {
				var v userLink
				p, err := of(ctx, r, args[0], "users.reset", map[string]any{"factor": factor}, func(ctx context.Context, p people.Person) (err error) {
					if factor {
						if err := people.In(r).RemoveTOTP(ctx, p.ID, "the archive's staff"); err != nil {
							return err
						}
					}
					if byMail {
						return people.In(r).MailLink(ctx, p.ID, people.Reset)
					}
					v.Link, err = linkOf(ctx, r, base, p.ID, people.Reset)
					return err
				})
				if err != nil {
					return err
				}
				view := map[string]any{"email": p.Email, "link": v.Link, "second_factor_removed": factor}
				return cli.Printf(cmd, asJSON, view, "%s gets a new password.%s\n", human.Line(p.Email), v.text("set it"))
			})
		},
	}
	c.Flags().BoolVar(&factor, "factor", false, "remove the second factor, too")
	c.Flags().BoolVar(&byMail, "mail", false, "mail the link to the person")
	cli.JSONFlag(c, &asJSON)
	return c
}

func userUnlockCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "unlock EMAIL",
		Short:   "Forget the failed attempts to sign in as a person",
		Example: `  farol user unlock first@test.edu`,
		Args:    cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				p, err := of(ctx, r, args[0], "users.unlock", nil, func(ctx context.Context, p people.Person) error { return people.In(r).Unlock(ctx, p.ID) })
				if err != nil {
					return err
				}
				return cli.Printf(cmd, asJSON, map[string]string{"email": p.Email}, "%s may sign in again.\n", human.Line(p.Email))
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func userSessionsCommand() *cobra.Command {
	var end, asJSON bool
	c := &cobra.Command{
		Use:   "sessions EMAIL",
		Short: "List a person's sessions, or end them",
		Example: `  farol user sessions first@test.edu
  farol user sessions first@test.edu --end`,
		Args: cli.OneArg("e-mail"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				if end {
					var n int64
					p, err := of(ctx, r, args[0], "users.end_sessions", nil, func(ctx context.Context, p people.Person) (err error) {
						n, err = people.In(r).EndSession(ctx, p.ID, 0)
						return err
					})
					if err != nil {
						return err
					}
					return cli.Printf(cmd, asJSON, map[string]any{"email": p.Email, "ended": n}, "%s of %s ended.\n", human.Count(n, "session", "sessions"), human.Line(p.Email))
				}
				p, err := people.In(r).ByEmail(ctx, args[0])
				if err != nil {
					return unknown(fmt.Errorf("the user %q: %w", args[0], err))
				}
				list, err := people.In(r).Sessions(ctx, p.ID)
				if err != nil {
					return err
				}
				return cli.PrintList(cmd, asJSON, list, "sessions", []string{"ID", "LEVEL", "BEGUN", "LAST USED", "ADDRESS", "BROWSER"}, func(s people.Session) []string {
					return []string{fmt.Sprint(s.ID), s.Level, human.Time(s.BegunAt), human.Time(s.SeenAt), s.IP, human.Line(s.Agent)}
				})
			})
		},
	}
	c.Flags().BoolVar(&end, "end", false, "end all of them")
	cli.JSONFlag(c, &asJSON)
	return c
}
