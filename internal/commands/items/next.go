package items

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/registry"
)

func itemNextCommand() *cobra.Command {
	var given []string
	var limit int
	var asJSON bool
	c := &cobra.Command{
		Use:   "next",
		Short: "List the items that workers would claim now",
		Long: `List the items that a worker with these pools would claim now, in its order:
late stages first, then by priority, then in fair-queueing order. Nothing is claimed.

` + settings.PoolHelp,
		Example: `  farol item next
  farol item next --pool 'large=*;min=1GiB' --limit 10
  farol item next --pool 'old=Store;age=24h;provider=Wasabi' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.InRange("--limit", limit, 1, 10000); err != nil {
				return err
			}
			pools, err := poolsOf(given)
			if err != nil {
				return cli.Usage(err, "see `farol item next --help`")
			}
			items, err := nextItems(cmd.Context(), pools, limit)
			if err != nil {
				return err
			}
			return cli.Print(cmd, asJSON, items, printItems)
		},
	}
	c.Flags().StringArrayVar(&given, "pool", nil, "a pool, such as 'small=*;max=1GiB'; may be given several times (default small and large)")
	c.Flags().IntVar(&limit, "limit", 50, "how many of each pool at most")
	cli.JSONFlag(c, &asJSON)
	return c
}

// poolsOf reads what --pool says; without it, pools are those of a worker.
func poolsOf(given []string) ([]pipeline.Pool, error) {
	if len(given) == 0 {
		return settings.DefaultPools(), nil
	}
	return settings.ParsePools(strings.Join(given, "\n"))
}

// nextItems are those that pools would claim, pool after pool.
func nextItems(ctx context.Context, pools []pipeline.Pool, limit int) ([]registry.WorkItem, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := connect.Registry(ctx, "item")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	engine, err := claim.New(ctx, s.DB, claim.DefaultOptions())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	var items []registry.WorkItem
	var filters []claim.Filter
	for _, p := range pools {
		filters = append(filters, p.Filters(steps.All(pipeline.Deps{}), limit)...)
	}
	var held []claim.Scope
	for _, h := range engine.ServiceHolds() {
		if h.Held {
			held = append(held, h.Scopes...)
		}
	}
	for _, f := range filters {
		f.Without = held
		ids, err := engine.Peek(ctx, f, limit)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			item, err := s.Registry.WorkItem(ctx, id)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
	}
	return items, nil
}
