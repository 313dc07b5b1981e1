package items

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
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
			pools, err := PoolsOf(given)
			if err != nil {
				return cli.Usage(err, "see `farol item next --help`")
			}
			show := func(items []registry.WorkItem, err error) error {
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, items, printItems)
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				v, err := remote.Get[struct{ Items []registry.WorkItem }](ctx, s, "items/next", url.Values{"pool": given, "limit": {strconv.Itoa(limit)}})
				return show(v.Items, err)
			})
			if done || err != nil {
				return err
			}
			return connect.WithDatabase(cmd, time.Minute, func(ctx context.Context, s *connect.Services) error {
				ids, err := Next(ctx, s.DB, pools, limit)
				if err != nil {
					return err
				}
				return show(browse.In(s.Registry, registry.Everything()).ItemsOf(ctx, ids))
			})
		},
	}
	c.Flags().StringArrayVar(&given, "pool", nil, "a pool, such as 'small=*;max=1GiB'; may be given several times (default small and large)")
	c.Flags().IntVar(&limit, "limit", 50, "how many of each pool at most")
	cli.JSONFlag(c, &asJSON)
	return c
}

// PoolsOf reads what --pool says; without it, pools are those of a worker.
func PoolsOf(given []string) ([]pipeline.Pool, error) {
	if len(given) == 0 {
		return settings.DefaultPools(), nil
	}
	return settings.ParsePools(strings.Join(given, "\n"))
}

// Next lists the items that pools would claim now, up to n of each, pool after pool.
func Next(ctx context.Context, db *pgxpool.Pool, pools []pipeline.Pool, n int) (ids []int64, err error) {
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	var held []claim.Scope
	for _, h := range engine.ServiceHolds() {
		if h.Held {
			held = append(held, h.Scopes...)
		}
	}
	for _, p := range pools {
		for _, f := range p.Filters(steps.All(pipeline.Deps{}), n) {
			f.Without = held
			found, err := engine.Peek(ctx, f, n)
			if err != nil {
				return nil, err
			}
			ids = append(ids, found...)
		}
	}
	return ids, nil
}
