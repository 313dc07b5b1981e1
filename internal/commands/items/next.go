package items

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
)

func itemNextCommand() *cobra.Command {
	var given []string
	c := op.Command{
		Use:   "next",
		Short: "List the items that workers would claim now",
		Long: `List the items that a worker with these pools would claim now, in its order:
late stages first, then by priority, then in fair-queueing order. Nothing is claimed.

` + settings.PoolHelp,
		Example: `  farol item next
  farol item next --pool 'large=*;min=1GiB' --limit 10
  farol item next --pool 'old=Store;age=24h;provider=Wasabi' --json`,
		Flags: []op.Flag{{Name: "limit", Kind: op.Number, Default: 50, Least: 1, Most: 10000, Help: "how many of each pool at most"}},
		Check: func(*op.Call) error {
			if _, err := settings.ParsePools(strings.Join(given, "\n")); len(given) > 0 && err != nil {
				return cli.Usage(err, "see `farol item next --help`")
			}
			return nil
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		q := url.Values{"pool": given, "limit": {strconv.Itoa(c.Number("limit"))}}
		v, err := remote.Get[struct{ Items []registry.WorkItem }](ctx, c.Server, "items/next", q)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, v.Items, printItems)
	})
	c.Flags().StringArrayVar(&given, "pool", nil, "a pool, such as 'small=*;max=1GiB'; may be given several times (default small and large)")
	return c
}
