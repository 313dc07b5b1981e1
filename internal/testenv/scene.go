package testenv

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Scene runs statements that set the scene of a test: those that make what time,
// an engine or an accident would have made of rows. The rules for what people type
// would complete or refuse them, so no trigger runs and no foreign key is looked
// at; what such a rule keeps in addition is the statement's own business.
func Scene(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	behind, err := running.behind.scenes(t, db)
	if err == nil {
		_, err = behind.Exec(context.Background(), sql, args...)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// backstage has, for each database that a scene was set in, a connection on which no
// trigger runs. On one of the test's own, each change of that to and fro would have
// the server forget the plans of all statements and functions, and make them again.
type backstage struct {
	mu    sync.Mutex
	pools map[*pgxpool.Pool]*pgxpool.Pool // by the test's
}

// scenes returns the one behind db, which lasts as long as the test that asks first.
func (b *backstage) scenes(t testing.TB, db *pgxpool.Pool) (*pgxpool.Pool, error) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if pool := b.pools[db]; pool != nil {
		return pool, nil
	}
	config := db.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	config.ConnConfig.RuntimeParams["session_replication_role"] = "replica"
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	if b.pools == nil {
		b.pools = map[*pgxpool.Pool]*pgxpool.Pool{}
	}
	b.pools[db] = pool
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.pools, db)
		pool.Close()
	})
	return pool, nil
}
