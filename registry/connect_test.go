package registry_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// One of several hosts is passed over soon. The only one may be busy with the passwords of hundreds
// of workers that start.
func TestTheOnlyHostHasTimeToAnswer(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://farol@db1:5432/farol":                    20 * time.Second,
		"postgres://farol@db1:5432/farol?sslmode=prefer":     20 * time.Second,
		"postgres://farol@db1:5432,db2:5432/farol":           3 * time.Second,
		"postgres://farol@db1:5432,db1:5433/farol":           3 * time.Second,
		"postgres://farol@db1:5432/farol?connect_timeout=60": time.Minute,
	} {
		config, err := registry.Session(url, "test")
		if err != nil || config.ConnectTimeout != want {
			t.Errorf("%s has %v to answer, want %v (%v)", url, config.ConnectTimeout, want, err)
		}
	}
}

// What a pooler does with prepared statements is seen, and each of its clients may prepare them where
// it keeps them: the two sessions that ten clients share have the statement under the pooler's name.
func TestPoolerThatKeepsStatementsIsKnown(t *testing.T) {
	t.Parallel()
	direct := testenv.DatabaseURL(t)
	pooled := testenv.Pooled(t, direct)
	for url, want := range map[string]bool{direct: false, pooled: true} {
		db := must.Get(registry.Connect(t.Context(), url, "test", registry.Through("prepared")))(t)
		t.Cleanup(db.Close)
		for range 3 { // which asks again in the same session
			if keeps, err := registry.KeepsStatements(t.Context(), db); err != nil || keeps != want {
				t.Errorf("it is said to keep statements: %v (%v), want %v", keeps, err, want)
			}
		}
	}
	var clients sync.WaitGroup
	for range 10 {
		db := must.Get(registry.Connect(t.Context(), pooled, "test", registry.Through("prepared")))(t)
		t.Cleanup(db.Close)
		clients.Go(func() {
			for n := range 20 {
				var got int
				if err := db.QueryRow(t.Context(), `SELECT $1::int + 1 AS by_ten_clients`, n).Scan(&got); err != nil || got != n+1 {
					t.Errorf("%d + 1 = %d, %v", n, got, err)
				}
			}
		})
	}
	clients.Wait()
	db := must.Get(registry.Connect(t.Context(), pooled, "test", registry.Through("transaction")))(t)
	defer db.Close()
	var name string
	err := db.QueryRow(t.Context(), `SELECT name FROM pg_prepared_statements WHERE statement LIKE '%by_ten_clients%' AND statement NOT LIKE '%pg_prepared%'`).Scan(&name)
	if err != nil || !strings.HasPrefix(name, "PGBOUNCER_") {
		t.Errorf("the session has it as %q, %v", name, err)
	}
}
