package claim_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// transactions counts those of a pool: what begins on a connection that is in none.
type transactions struct{ n atomic.Int64 }

func (s *transactions) begins(ctx context.Context, c *pgx.Conn) context.Context {
	if c.PgConn().TxStatus() == 'I' {
		s.n.Add(1)
	}
	return ctx
}

func (s *transactions) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return s.begins(ctx, c)
}

func (s *transactions) TraceBatchStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return s.begins(ctx, c)
}

func (*transactions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*transactions) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*transactions) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A worker with nothing to do asks little, however many pools and actions it has, and
// still finds what comes due without a notice.
func TestIdleWorkerAsksLittle(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	counted := &transactions{}
	db := must.Get(dial.Connect(t.Context(), q.db.Config().ConnString(), "idle", func(c *pgxpool.Config) { c.ConnConfig.Tracer = counted }))(t)
	t.Cleanup(db.Close)
	e := must.Get(claim.New(t.Context(), db, claim.DefaultOptions()))(t)
	t.Cleanup(e.Close)
	running(t, e)
	ctx, stopPools := context.WithCancel(t.Context())
	defer stopPools()
	found := make(chan claim.Item, 1)
	for range 4 {
		look, stop := e.Wakes(ctx)
		defer stop()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-look.C:
				}
				for _, action := range []registry.Action{registry.Ingest, registry.RestoreFile, registry.RestoreObject, registry.Delete, registry.GlacierRestore, registry.ExportRecords} {
					stage := registry.Requested
					if action == registry.Ingest {
						stage = registry.Receive
					}
					items, err := e.Claim(ctx, claim.Filter{Action: action, Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
					if err == nil && len(items) == 1 {
						found <- items[0]
					}
				}
			}
		}()
	}
	// The first seconds are those of a worker that starts, and looks once.
	const starting, idle, most = 3 * time.Second, 10 * time.Second, 2
	during := func(d time.Duration) int64 {
		before := counted.n.Load()
		<-time.After(d)
		return counted.n.Load() - before
	}
	during(starting)
	if n := during(idle); n > most*int64(idle/time.Second) {
		t.Errorf("%d transactions in %v of an idle worker, want %d a second at most", n, idle, most)
	}
	q.exec(`ALTER TABLE work_items DISABLE TRIGGER work_items_announced`)
	q.put("Receive", 1)
	select {
	case <-found:
	case <-time.After(testenv.Patience):
		t.Error("an item without a notice was not found")
	}
}
