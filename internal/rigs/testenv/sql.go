package testenv

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// must ends the test if something that it needs failed.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal("testenv:", err)
	}
}

// Exec runs a statement, and fails the test if the database refuses it.
func Exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Refused runs a statement that the database has to refuse, with an error that contains
// reason. Without a reason the error of a statement with a wrong name would do too.
func Refused(t testing.TB, db *pgxpool.Pool, reason, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: %v, want it refused because %q", sql, err, reason)
	}
}

// PutMessages appends messages to the topic log, all in one transaction.
func PutMessages(t testing.TB, db *pgxpool.Pool, topic string, bodies ...string) {
	t.Helper()
	Exec(t, db, `INSERT INTO topic_messages (topic, body) SELECT $1, b FROM unnest($2::text[]) WITH ORDINALITY AS u (b, n) ORDER BY n`, topic, bodies)
}

// Numbers are the decimal numbers of a range, as bodies of messages.
func Numbers(from, to int) (list []string) {
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return list
}

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

// TimeColumns is [injure.TimeColumns] for a test.
func TimeColumns(t testing.TB, db *pgxpool.Pool) []string {
	t.Helper()
	list, err := injure.TimeColumns(context.Background(), db)
	must(t, err)
	return list
}

// SetClock is [injure.SetClock] for a test, of all times.
func SetClock(t testing.TB, db *pgxpool.Pool, by time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, injure.SetClock(ctx, db, by))
}
