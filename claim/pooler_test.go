package claim_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// Behind PgBouncer in transaction mode, with fewer sessions than engines, all
// goes as it does without: claims, also of a stage with a cap, ends, heartbeats
// and the reaper. And anyone who gets a session next finds nothing of ours in it.
func TestTheQueueWorksThroughAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "prepared"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			worksThrough(t, mode)
		})
	}
}

func worksThrough(t *testing.T, mode string) {
	t.Helper()
	direct := testenv.DatabaseURL(t)
	pooled := testenv.Pooled(t, direct)
	c := newCrew(t, testPool(t, direct), 300)
	c.q.exec(`UPDATE stage_settings SET cap = 2 WHERE action = 'Ingest' AND stage = 'Validate'`)
	session := must.Get(dial.Session(direct, "listener"))(t)
	listening := func(o *claim.Options) { o.Direct = session }
	gone := (&queue{t, connect(t, pooled, "crew", dial.Through(mode))}).engine(listening)
	c.q.claimOne(gone, "Receive") // and sends no heartbeat

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		group := c.start(ctx, connect(t, pooled, "crew", dial.Through(mode)), 4, listening)
		defer func() { stop(); group.Wait() }()
	}
	watch := sync.WaitGroup{}
	watch.Go(func() {
		for pauseFor(ctx, 5*time.Millisecond) {
			const live = `SELECT count(*) FROM work_items WHERE status = 'Started' AND stage = 'Validate'`
			if n := value[int](c.q, live); n > 2 { //nolint:contextcheck // it is the test that looks
				t.Errorf("%d items are at a stage with a cap of 2", n)
			}
		}
	})
	testenv.Eventually(t, "the worker that is gone to be reaped", func() bool {
		return value[int](c.q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'lease expired'`) > 0
	})
	c.account()
	if n := value[int](c.q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'listener'`); n != 3 {
		t.Errorf("%d of 3 engines listen", n)
	}
	unspoilt(t, pooled, mode)
	stop()
	watch.Wait()
}

// unspoilt looks at both sessions of the pooler, holding the one while it looks
// at the other.
func unspoilt(t *testing.T, pooled, mode string) {
	t.Helper()
	seen := map[int]bool{}
	testenv.Eventually(t, "both sessions", func() bool {
		for range 2 {
			conn := must.Get(pgx.Connect(t.Context(), pooled+"&default_query_exec_mode=simple_protocol"))(t)
			defer conn.Close(context.Background())
			tx := must.Get(conn.Begin(t.Context()))(t)
			defer tx.Rollback(context.Background())
			var pid int
			var left string
			must.Do(t, tx.QueryRow(t.Context(), `
				SELECT pg_backend_pid(), concat_ws(', ',
					(SELECT string_agg(name || ' = ' || setting, ', ') FROM pg_settings
						WHERE setting IS DISTINCT FROM reset_val AND name <> 'application_name' AND context NOT IN ('internal', 'postmaster')
							AND (name ~ '^enable_' OR name IN ('plan_cache_mode', 'jit', 'idle_session_timeout', 'idle_in_transaction_session_timeout'))),
					(SELECT string_agg('prepared ' || name, ', ') FROM pg_prepared_statements WHERE $1 = 'transaction'),
					(SELECT string_agg('listens to ' || c, ', ') FROM pg_listening_channels() c),
					(SELECT string_agg('holds a lock ' || mode, ', ') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))`, mode).
				Scan(&pid, &left))
			if left != "" {
				t.Fatalf("left in a session: %s", left)
			}
			seen[pid] = true
		}
		return len(seen) >= 2
	})
}

// A pooler without a way around it costs the notices, not the work. The operator
// gets one warning.
func TestWithoutASessionWorkIsFoundByPolling(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	q := &queue{t, testPool(t, url)}
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	e := (&queue{t, connect(t, testenv.Pooled(t, url), "worker", dial.Through("transaction"))}).engine(func(o *claim.Options) {
		o.Poll, o.Log = 50*time.Millisecond, log
	})
	ctx, stop := context.WithCancel(t.Context())
	var upkeep sync.WaitGroup
	upkeep.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	look, end := e.Wakes(ctx)
	q.put("Receive", 1)
	testenv.Eventually(t, "the work to be found", func() bool {
		<-look.C
		items, err := e.Claim(t.Context(), at("Receive", 1), 1)
		return err == nil && len(items) == 1
	})
	end()
	stop()
	upkeep.Wait()
	if n := strings.Count(logged.String(), "not listening"); n != 1 {
		t.Errorf("the log says %d times that nobody listens, want once:\n%s", n, logged.String())
	}
}
