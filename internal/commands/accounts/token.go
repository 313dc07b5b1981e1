package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// Token is farol token.
func Token() *cobra.Command {
	return cli.Group("token", "Manage access tokens for the HTTP APIs", tokenAddCommand(), tokenListCommand(), tokenRemoveCommand())
}

func tokenAddCommand() *cobra.Command {
	var t registry.Token
	var lasts time.Duration
	var asJSON bool
	var stages []string
	c := &cobra.Command{
		Use:   "add NAME [--may RIGHT,...] [--permissions PERMISSION,...]",
		Short: "Create a token",
		Long: `Create a token and print it; it cannot be printed again. Its rights are post (messages
to queues), pull (messages from queues and from the pipeline's topics) and lease (items
at stages that programs process over HTTP). A token of an institution may only lease
that institution's items, since messages are shared.

--permissions are for the REST API, and reach the records of one institution with
--institution. A token never has those by which people request restorations and
deletions, approve, let repair continue, or manage people, tokens and settings.`,
		Example: `  farol token add dashboard --may pull
  farol token add scanner --may lease --stages 'Virus Scan' --lasts 8760h
  farol token add ocr --may lease --institution test.edu --json
  farol token add catalogue --permissions objects.read,files.read --institution test.edu`,
		Args: cli.OneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			for _, s := range stages {
				t.Stages = append(t.Stages, registry.Stage(s))
			}
			if err := checkRights(&t); err != nil {
				return err
			}
			if cmd.Flags().Changed("lasts") {
				if lasts <= 0 {
					return cli.Usage(fmt.Errorf("--lasts is %v", lasts), "give a time such as 8760h, a year")
				}
				end := time.Now().Add(lasts)
				t.ExpiresAt = &end
			}
			return addToken(cmd, t, asJSON)
		},
	}
	c.Flags().StringSliceVar(&t.Rights, "may", nil, "what it may be used for: "+strings.Join(registry.Rights(), ", "))
	c.Flags().StringSliceVar(&t.Permissions, "permissions", nil, "what it may do with the REST API, such as items.read")
	c.Flags().StringVar(&t.Institution, "institution", "", "only items and records of this institution, by its identifier")
	c.Flags().StringSliceVar(&stages, "stages", nil, "stages that may be leased; without, all that programs process over HTTP")
	c.Flags().DurationVar(&lasts, "lasts", 0, "how long it is valid; without, until it is removed")
	cli.JSONFlag(c, &asJSON)
	return c
}

// addToken makes a token and prints its secret.
func addToken(cmd *cobra.Command, t registry.Token, asJSON bool) error {
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
		var secret string
		entry := registry.AuditEntry{Operation: "tokens.add", SubjectType: "token", SubjectID: t.Name, Detail: map[string]any{
			"institution": t.Institution, "rights": t.Rights, "stages": t.Stages, "permissions": t.Permissions,
		}}
		added, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (added registry.Token, err error) {
			added, secret, err = r.AddToken(ctx, t)
			return added, err
		})
		if err != nil {
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol token list`, `farol stage list` and `farol institution list` show the tokens, stages and institutions"}
		}
		view := struct {
			registry.Token
			Secret string `json:"token"`
		}{added, secret}
		return cli.Printf(cmd, asJSON, view, "%s\nIt cannot be printed again. Programs send it as: Authorization: Bearer TOKEN\n", secret)
	})
}

// checkRights refuses rights and permissions that there are not, or that do not go together,
// and spells permissions as the registry does.
func checkRights(t *registry.Token) error {
	given := t.Permissions
	t.Permissions = nil
	for _, name := range given {
		if permission.Permission(name).Personal() {
			return cli.Usage(fmt.Errorf("the permission %q is for people: the token of a service can never use it", name), "have a person make a personal token, or leave it out")
		}
		p, err := cli.OneOf("--permissions", permission.Permission(name), permission.OfService(t.Institution != ""))
		if err != nil {
			return err
		}
		if p != "" && !slices.Contains(t.Permissions, string(p)) {
			t.Permissions = append(t.Permissions, string(p))
		}
	}
	if len(t.Rights) == 0 && len(t.Permissions) == 0 {
		return cli.Usage(errors.New("--may or --permissions is missing"), "the rights are "+strings.Join(registry.Rights(), ", "))
	}
	for _, right := range t.Rights {
		if _, err := cli.OneOf("--may", right, registry.Rights()); err != nil {
			return err
		}
	}
	if len(t.Stages) > 0 && !slices.Contains(t.Rights, registry.RightLease) {
		return cli.Usage(errors.New("--stages is given, but no right to lease"), "leave --stages out, or add lease to --may")
	}
	if t.Institution != "" && len(t.Rights) > 0 && strings.Join(t.Rights, "") != registry.RightLease {
		return cli.Usage(errors.New("a token of an institution may only lease"), "leave --institution out, or give --may lease")
	}
	return nil
}

func tokenListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List tokens without their secrets",
		Example: `  farol token list
  farol token list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				list, err := r.Tokens(ctx, 0)
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, list, printTokens)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func printTokens(out io.Writer, list []registry.Token) error {
	var rows [][]string
	for _, t := range list {
		until, used := "no end", "never"
		if t.ExpiresAt != nil {
			until = human.Time(*t.ExpiresAt)
			if t.ExpiresAt.Before(time.Now()) {
				until += " (over)"
			}
		}
		if t.UsedAt != nil {
			used = human.Time(*t.UsedAt)
		}
		may := slices.Concat(t.Rights, t.Permissions)
		for _, idle := range permission.Idle(t) {
			may[slices.Index(may, idle)] += " (without effect)"
		}
		rows = append(rows, []string{human.Line(t.Name), strings.Join(may, ","), human.Line(t.Institution), human.Line(strings.Join(cli.Strings(t.Stages), ",")), until, used})
	}
	return cli.WriteList(out, "tokens", []string{"NAME", "MAY", "INSTITUTION", "STAGES", "UNTIL", "LAST USED"}, rows)
}

func tokenRemoveCommand() *cobra.Command {
	var care cli.Caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Revoke a token",
		Long: `Revoke a token. Programs that use it are refused within two seconds. A revoked token
cannot be created again.`,
		Example: `  farol token remove dashboard --dry-run
  farol token remove dashboard
  farol token remove scanner --yes --json`,
		Args: cli.OneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				return removeToken(ctx, cmd, r, args[0], care, asJSON)
			})
		},
	}
	care.Flags(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

func removeToken(ctx context.Context, cmd *cobra.Command, r *registry.Registry, name string, care cli.Caution, asJSON bool) error {
	list, err := r.Tokens(ctx, 0)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(t registry.Token) bool { return t.Name == name })
	if i < 0 {
		return noToken(fmt.Errorf("there is no token %q", name))
	}
	does, err := care.Allows(cmd, "Revoke the token "+human.Line(name), true)
	if err != nil {
		return err
	}
	if !does {
		shown := cli.Print(cmd, asJSON, list[i], func(out io.Writer, t registry.Token) error { return printTokens(out, []registry.Token{t}) })
		return errors.Join(shown, cli.Unchanged(cmd))
	}
	entry := registry.AuditEntry{Operation: "tokens.remove", SubjectType: "token", SubjectID: name}
	if err := r.Act(ctx, registry.Actor{}, &entry, func(ctx context.Context) error { return r.RemoveToken(ctx, 0, name) }); err != nil {
		return noToken(err)
	}
	return cli.Printf(cmd, asJSON, list[i], "%s is no longer valid; servers refuse it within two seconds.\n", human.Line(name))
}

func noToken(err error) error {
	return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol token list` shows the tokens"}
}
