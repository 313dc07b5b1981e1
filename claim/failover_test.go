package claim_test

import (
	"context"
	"net/url"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// A database that shuts down or crashes, and comes back, costs time.
func TestWorkGoesOnAfterRestarts(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	c := newCrew(t, testPool(t, server.URL), 600)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 2 {
		group := c.start(ctx, workerPool(t, server.URL), 3)
		defer func() { stop(); group.Wait() }()
	}
	for _, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} { // fast, immediate, crash
		c.goOn()
		server.End(how)
		server.Start()
	}
	c.account()
}

// Two servers copy each other synchronously. Whichever of them is the primary,
// and however the other came to be none, the workers are at the primary, and
// no claim that they know to have ended is lost.
func TestWorkFollowsThePrimary(t *testing.T) {
	t.Parallel()
	first := testenv.NewServer(t)
	c := newCrew(t, testPool(t, first.URL), 1200)
	second := first.Standby()
	synchronous(t, first)
	both := hosts(t, first.URL, second.URL)
	c.q.db = testPool(t, both)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 2 {
		group := c.start(ctx, workerPool(t, both), 3)
		defer func() { stop(); group.Wait() }()
	}

	c.goOn()
	first.End(syscall.SIGKILL) // the primary dies
	second.Promote()
	c.goOn()

	first.Follow(second) // and comes back as the standby, where it was the primary
	synchronous(t, second)
	c.q.db.Reset()
	if value[bool](c.q, `SELECT pg_is_in_recovery()`) {
		t.Error("a new connection is to the standby")
	}
	c.goOn()

	second.Exec(`ALTER SYSTEM SET default_transaction_read_only = on`) // they change places, and nobody's connection breaks
	second.Exec(`SELECT pg_reload_conf()`)
	caughtUp(t, first, second)
	first.Promote()
	c.goOn()
	testenv.Eventually(t, "everyone to leave the former primary", func() bool {
		return ask[int](t, second, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crew'`) == 0
	})
	c.q.db.Reset() // which only reads, and so does not notice
	c.account()
}

// workerPool is a worker's connections, and testPool those that look at what
// the workers do.
func workerPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	return connect(t, url, "crew")
}

func testPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	return connect(t, url, "test")
}

func connect(t testing.TB, url, name string, options ...dial.Option) *pgxpool.Pool {
	t.Helper()
	db := must.Get(dial.Connect(context.Background(), url, name, options...))(t)
	t.Cleanup(db.Close)
	return db
}

// hosts is the URL that names two servers.
func hosts(t testing.TB, one, other string) string {
	t.Helper()
	u, err := url.Parse(one)
	o, otherErr := url.Parse(other)
	if err != nil || otherErr != nil {
		t.Fatal(err, otherErr)
	}
	u.Host += "," + o.Host
	return u.String()
}

// synchronous has a primary wait for its standby with every commit.
func synchronous(t testing.TB, primary *testenv.Server) {
	t.Helper()
	primary.Exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	primary.Exec(`SELECT pg_reload_conf()`)
	testenv.Eventually(t, "the standby to be synchronous", func() bool {
		return ask[int](t, primary, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
}

// caughtUp waits until a standby has all that a primary which has ceased to
// write ever wrote.
func caughtUp(t testing.TB, standby, primary *testenv.Server) {
	t.Helper()
	testenv.Eventually(t, "the last transactions to end", func() bool {
		return ask[int](t, primary, `SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL`) == 0
	})
	wrote := ask[string](t, primary, `SELECT pg_current_wal_lsn()::text`)
	testenv.Eventually(t, "the standby to have it all", func() bool {
		return ask[bool](t, standby, `SELECT pg_last_wal_replay_lsn() >= '`+wrote+`'`)
	})
}

// ask reads a value from a server, on a connection of its own.
func ask[T any](t testing.TB, s *testenv.Server, sql string) T {
	t.Helper()
	conn := must.Get(pgx.Connect(context.Background(), s.URL))(t)
	defer conn.Close(context.Background())
	var v T
	if err := conn.QueryRow(context.Background(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
