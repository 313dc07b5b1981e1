package testenv_test

import (
	"context"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/migrations"
)

// A server that was killed is down until it is started, and then has what was
// committed. Its standby has it too, and takes its place; and the other way round.
func TestServersChangePlaces(t *testing.T) {
	t.Parallel()
	first := testenv.NewServer(t)
	first.Exec(`CREATE TABLE told (n int)`)
	first.Exec(`INSERT INTO told VALUES (1)`)
	first.End(syscall.SIGKILL)
	if conn, err := pgx.Connect(t.Context(), first.URL); err == nil {
		conn.Close(t.Context())
		t.Error("the server was killed and answers")
	}
	first.Start()

	second := first.Standby()
	first.Exec(`INSERT INTO told VALUES (2)`)
	until(t, second, `SELECT sum(n) FROM told`, 3)
	first.End(syscall.SIGINT)
	second.Promote()
	second.Exec(`INSERT INTO told VALUES (4)`)
	first.Follow(second)
	until(t, first, `SELECT sum(n) FROM told`, 7)
	until(t, first, `SELECT pg_is_in_recovery()::int`, 1)
	until(t, second, `SELECT pg_is_in_recovery()::int`, 0)

	// Of the two, migrations find the one that takes them.
	second.Exec(`CREATE DATABASE fresh`)
	until(t, first, `SELECT count(*) FROM pg_database WHERE datname = 'fresh'`, 1)
	one, other := parse(t, first.URL), parse(t, second.URL)
	one.Host, one.Path = one.Host+","+other.Host, "/fresh"
	if err := migrations.Up(t.Context(), one.String()); err != nil {
		t.Error(err)
	}
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// until waits for a server to answer a question so.
func until(t *testing.T, s *testenv.Server, sql string, want int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		var got int
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err == nil && got == want {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s = %d, %v; want %d", sql, got, err, want)
		}
	}
}

// Ten clients of the pooler have two sessions, and each transaction any of them.
func TestPoolerHandsSessionsAround(t *testing.T) {
	t.Parallel()
	pooled := testenv.Pooled(t, testenv.DatabaseURL(t)) + "&default_query_exec_mode=simple_protocol"
	var mu sync.Mutex
	sessions := map[int]bool{}
	var clients sync.WaitGroup
	for range 10 {
		conn, err := pgx.Connect(t.Context(), pooled)
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			defer conn.Close(context.Background())
			for range 20 {
				var pid int
				if err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sessions[pid] = true
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if n := len(sessions); n < 1 || n > 2 {
		t.Errorf("ten clients had %d sessions, want one or two", n)
	}
}
