package bench

import (
	"context"
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
// durable, with ledger and topic message. Eight claimers; items are claimed by
// the batch and settled one by one, as workers do.
func BenchmarkHopsBatch1(b *testing.B)  { hops(b, 1) }
func BenchmarkHopsBatch20(b *testing.B) { hops(b, 20) }

func hops(b *testing.B, batch int) {
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
	const items = 1000
	if _, err := db.Exec(ctx, `
		WITH i AS (INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
			VALUES ('Bench', 'bench.edu', 'r', 's') RETURNING id)
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'r', repeat('e', 32), 1000, now()
		FROM i, generate_series(1, $1) n`, items); err != nil {
		b.Fatal(err)
	}

	order := []string{"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation"}
	next := map[string]string{}
	var wants []claim.Want
	for i, stage := range order {
		next[stage] = order[(i+1)%len(order)] // round and round
		wants = append(wants, claim.Want{Stage: stage, Most: batch})
	}
	var left atomic.Int64
	b.ResetTimer()
	left.Store(int64(b.N))
	var workers sync.WaitGroup
	for range 8 {
		e, err := claim.New(ctx, db, claim.DefaultOptions())
		if err != nil {
			b.Fatal(err)
		}
		workers.Go(func() {
			for left.Load() > 0 {
				got, err := e.Claim(ctx, claim.Filter{Stages: wants}, batch)
				if err != nil {
					b.Error(err)
					return
				}
				for _, item := range got {
					if err := e.Hold(ctx, item).Settle(ctx, claim.Done{Next: next[item.Stage]}, nil); err != nil {
						b.Error(err)
						return
					}
				}
				left.Add(-int64(len(got)))
			}
		})
	}
	workers.Wait()
	b.ReportMetric(float64(int64(b.N)-left.Load())/b.Elapsed().Seconds(), "hops/s")
}
