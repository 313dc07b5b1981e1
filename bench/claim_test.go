package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/registry"
)

// A hop is a claim at one stage, its end, and the item claimable at the next,
// durable, with ledger and topic message. The workers of a process share its
// engine; each claims a batch, ends it, and claims again. bench/queue compares
// with other queues.
func BenchmarkHops(b *testing.B) {
	for _, c := range []struct{ workers, batch int }{{1, 1}, {8, 1}, {64, 1}, {8, 10}, {8, 100}} {
		b.Run(fmt.Sprintf("workers=%d/batch=%d", c.workers, c.batch), func(b *testing.B) { hops(b, c.workers, c.batch) })
	}
}

func hops(b *testing.B, workers, batch int) {
	ctx := context.Background()
	dir := b.TempDir()
	stack, err := devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "data"), Executable: build(b, dir), Only: []devstack.Service{devstack.Postgres},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stack.Remove(ctx) })
	if err := migrations.Up(ctx, stack.DatabaseURL); err != nil {
		b.Fatal(err)
	}
	db, err := registry.Connect(ctx, stack.DatabaseURL, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	const items = 10000
	for _, sql := range []string{
		`UPDATE stage_settings SET cap = NULL`,
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Bench', 'bench.edu', 'r', 's')`,
		fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT i.id, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'r', repeat('e', 32), 1000, now()
			FROM institutions i, generate_series(1, %d) n`, items),
		`ANALYZE`, `CHECKPOINT`,
	} {
		if _, err := db.Exec(ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	order := []string{
		"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation",
		"Record", "Cleanup",
	}
	next := map[string]string{}
	var wants []claim.Want
	for i, stage := range order {
		next[stage] = order[(i+1)%len(order)] // round and round
		wants = append(wants, claim.Want{Stage: stage, Most: batch})
	}
	e, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	var left atomic.Int64
	b.ResetTimer()
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for left.Load() > 0 {
				got, err := e.Claim(ctx, claim.Filter{Stages: wants}, batch)
				if err != nil {
					b.Error(err)
					return
				}
				endings := make([]claim.Ending, len(got))
				for i, item := range got {
					endings[i] = claim.Ending{Item: item, Done: claim.Done{Next: next[item.Stage], Note: "Item is pending " + next[item.Stage]}}
				}
				for _, err := range e.Settle(ctx, endings) {
					if err != nil {
						b.Error(err)
						return
					}
				}
				left.Add(-int64(len(got)))
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(int64(b.N)-left.Load())/b.Elapsed().Seconds(), "hops/s")
}
