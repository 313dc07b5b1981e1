package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// Token is farol token.
func Token() *cobra.Command {
	return cli.Group("token", "Manage access tokens for the HTTP APIs", tokenAddCommand(), tokenListCommand(), tokenRemoveCommand())
}

func tokenAddCommand() *cobra.Command {
	return op.Command{
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
		Arg:   "name",
		Here:  true,
		Param: "name",
		Flags: []op.Flag{
			{Name: "may", Param: "rights", Kind: op.Texts, Help: "what it may be used for: " + strings.Join(registry.Rights(), ", ")},
			{Name: "permissions", Param: "permissions", Kind: op.Texts, Help: "what it may do with the REST API, such as items.read"},
			{Name: "institution", Param: "institution_identifier", Help: "only items and records of this institution, by its identifier"},
			{Name: "stages", Param: "stages", Kind: op.Texts, Help: "stages that may be leased; without, all that programs process over HTTP"},
			{Name: "lasts", Param: "seconds", Kind: op.Seconds, Help: "how long it is valid; without, until it is removed"},
		},
		Check: func(c *op.Call) error {
			if err := checkRights(c); err != nil {
				return err
			}
			if c.Given("lasts") && c.Duration("lasts") <= 0 {
				return cli.Usage(fmt.Errorf("--lasts is %v", c.Duration("lasts")), "give a time such as 8760h, a year")
			}
			return nil
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		var view struct {
			record.Token

			Secret string `json:"token"`
		}
		if _, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: "tokens", Body: c.Body()}, &view); err != nil {
			return remote.Next(err, "`farol token list`, `farol stage list` and `farol institution list` show the tokens, stages and institutions")
		}
		return cli.Printf(c.Cmd, c.JSON, view, "%s\nIt cannot be printed again. Programs send it as: Authorization: Bearer TOKEN\n", view.Secret)
	})
}

// checkRights refuses rights and permissions that there are not, or that do not go together.
func checkRights(c *op.Call) error {
	rights, permissions, institution := c.Texts("may"), c.Texts("permissions"), c.Given("institution")
	for i, name := range permissions {
		if permission.Permission(name).Personal() {
			return cli.Usage(fmt.Errorf("the permission %q is for people: the token of a service can never use it", name), "have a person make a personal token, or leave it out")
		}
		p, err := cli.OneOf("--permissions", permission.Permission(name), permission.OfService(institution))
		if err != nil {
			return err
		}
		permissions[i] = string(p) // as the registry spells it
	}
	if len(rights) == 0 && len(permissions) == 0 {
		return cli.Usage(errors.New("--may or --permissions is missing"), "the rights are "+strings.Join(registry.Rights(), ", "))
	}
	for _, right := range rights {
		if _, err := cli.OneOf("--may", right, registry.Rights()); err != nil {
			return err
		}
	}
	if c.Given("stages") && !slices.Contains(rights, registry.RightLease) {
		return cli.Usage(errors.New("--stages is given, but no right to lease"), "leave --stages out, or add lease to --may")
	}
	if institution && len(rights) > 0 && strings.Join(rights, "") != registry.RightLease {
		return cli.Usage(errors.New("a token of an institution may only lease"), "leave --institution out, or give --may lease")
	}
	return nil
}

func tokenListCommand() *cobra.Command {
	return tokens().All(op.Command{
		Use:   "list",
		Short: "List tokens without their secrets",
		Here:  true,
	})
}

// tokens is a list of tokens.
func tokens() op.List[record.Token] {
	return op.List[record.Token]{
		Path: "tokens", What: "tokens", Header: []string{"NAME", "MAY", "INSTITUTION", "STAGES", "UNTIL", "LAST USED"},
		Row: func(t record.Token) []string {
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
			return []string{human.Line(t.Name), strings.Join(may, ","), human.Line(t.Institution), human.Line(strings.Join(cli.Strings(t.Stages), ",")), until, used}
		},
	}
}

func tokenRemoveCommand() *cobra.Command {
	return op.Command{
		Use:   "remove NAME",
		Short: "Revoke a token",
		Long: `Revoke a token. Programs that use it are refused within two seconds. A revoked token
cannot be created again.`,
		Example: `  farol token remove dashboard --dry-run
  farol token remove dashboard
  farol token remove scanner --yes --json`,
		Arg:  "name",
		Here: true,
		Asks: true,
	}.Make(func(ctx context.Context, c *op.Call) error {
		list, err := remote.All[record.Token](ctx, c.Server, "tokens")
		if err != nil {
			return err
		}
		const next = "`farol token list` shows the tokens"
		i := slices.IndexFunc(list, func(t record.Token) bool { return t.Name == c.Arg })
		if i < 0 {
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no token %q", c.Arg), Next: next}
		}
		does, err := c.Care.Allows(c.Cmd, "Revoke the token "+human.Line(c.Arg), true)
		if err != nil {
			return err
		}
		if !does {
			shown := cli.Print(c.Cmd, c.JSON, list[i], func(out io.Writer, t record.Token) error {
				return cli.WriteTable(out, tokens().Header, [][]string{tokens().Row(t)})
			})
			return errors.Join(shown, cli.Unchanged(c.Cmd))
		}
		if _, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: remote.About("tokens", list[i].ID, "")}, nil); err != nil {
			return remote.Next(err, next)
		}
		return cli.Printf(c.Cmd, c.JSON, list[i], "%s is no longer valid; servers refuse it within two seconds.\n", human.Line(c.Arg))
	})
}
