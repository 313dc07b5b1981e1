package main

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// hopper makes hops with items that go round and round. A hop is a claim at one stage,
// its end, and the item claimable at the next, durable, with ledger and topic message. The
// workers of a process share its engine; each claims a batch, ends it, and claims again.
// How many there are in a second is measured by the program queue.
type hopper struct {
	b      *testing.B
	engine *claim.Engine
	next   map[registry.Stage]registry.Stage
	wants  []claim.Want
	batch  int
}

func newHops(b *testing.B, db *pgxpool.Pool, items, batch int) *hopper {
	b.Helper()
	run(b, db,
		`UPDATE stage_settings SET cap = NULL`,
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Bench', 'bench.edu', 'r', 's')`,
		fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT i.id, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'r', repeat('e', 32), 1000, now()
			FROM institutions i, generate_series(1, %d) n`, items),
		`ANALYZE`, `CHECKPOINT`)
	order := []registry.Stage{
		"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation",
		"Record", "Cleanup",
	}
	h := &hopper{b: b, next: map[registry.Stage]registry.Stage{}, batch: batch}
	for i, stage := range order {
		h.next[stage] = order[(i+1)%len(order)]
		h.wants = append(h.wants, claim.Want{Stage: stage, Most: batch})
	}
	e, err := claim.New(context.Background(), db, claim.DefaultOptions())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	h.engine = e
	return h
}

// all has workers make hops until made, which is called for each batch, says that it is
// enough.
func (h *hopper) all(workers int, made func(n int) (more bool)) {
	ctx := context.Background()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for more := made(0); more; {
				got, err := h.engine.Claim(ctx, claim.Filter{Stages: h.wants}, h.batch)
				if err != nil {
					h.b.Error(err)
					return
				}
				endings := make([]claim.Ending, len(got))
				for i, item := range got {
					endings[i] = claim.Ending{Item: item, Done: claim.Done{Next: h.next[item.Stage], Note: "Item is pending " + string(h.next[item.Stage])}}
				}
				for _, err := range h.engine.Settle(ctx, endings) {
					if err != nil {
						h.b.Error(err)
						return
					}
				}
				more = made(len(got))
			}
		})
	}
	group.Wait()
}
