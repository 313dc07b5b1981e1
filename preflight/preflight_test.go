package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// A directory for temporary files has to be there, writable, and have some space.
func TestDiskIsLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if f := diskFits(dir, true); f.State == Failed || !strings.Contains(f.Found, "free") {
		t.Errorf("%+v", f)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for bad, code := range map[string]string{
		filepath.Join(dir, "nowhere"): "disk-missing", file: "disk-unavailable", "/proc": "", // in which nobody writes, and which has no space
	} {
		f := diskFits(bad, true)
		if f.State != Failed || !f.Fatal || !strings.Contains(f.Todo, "TMPDIR") || !strings.Contains(f.Found, bad) || code != "" && f.Code != code {
			t.Errorf("%s: %+v", bad, f)
		}
	}
}

// What a process may use of memory and files is held against what it promises.
func TestLimitsAreHeldAgainstThePromise(t *testing.T) {
	t.Parallel()
	n := HostNeeds{MaxFiles: 400_000, Children: 2}
	if f := n.memoryFits(650 << 20); f.State != OK { // as FAROL_MAX_FILES promises
		t.Errorf("650 MiB: %+v", f)
	}
	if f := n.memoryFits(512 << 20); !strings.Contains(f.Found, "up to about 235929 files") { // 640 bytes each, as the worker counts
		t.Errorf("512 MiB: %+v", f)
	}
	if f := n.memoryFits(256 << 20); f.State != Warning || !strings.Contains(f.Found, "FAROL_MAX_FILES is 400000") || f.Fatal {
		t.Errorf("256 MiB: %+v", f)
	}
	if f := filesFit(100); f.State != Failed {
		t.Errorf("100 files: %+v", f)
	}
	if f := filesFit(unix.RLIM_INFINITY); f.State != OK {
		t.Errorf("any number of files: %+v", f)
	}
}

// Everything that may be named leads on to a setting or a command.
func TestEveryTodoNamesWhereToLook(t *testing.T) {
	t.Parallel()
	names := bucketSettings{"THE_BUCKET", "THE_ENDPOINT", "THE_KEY", "THE_CA"}
	kinds := []fault.Kind{
		fault.Unavailable, fault.Overloaded, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly, fault.Skewed, fault.WrongAnswer,
	}
	for _, k := range kinds {
		e := &fault.Error{Service: "x", Kind: k, Err: errors.New("an answer")}
		for _, f := range []Finding{bucketFailed(e, "x", names), databaseFailed(e), redisFailed(e)} {
			if !slices.ContainsFunc([]string{"THE_", "FAROL_", "NTP", "PostgreSQL"}, func(part string) bool { return strings.Contains(f.Todo, part) }) {
				t.Errorf("%s: %q", k, f.Todo)
			}
			if f.Code == "" || !f.Fatal {
				t.Errorf("%s: %+v", k, f)
			}
		}
	}
}

// A pooler that forgets statements is not what the settings say.
func TestPoolerIsHeldAgainstTheSetting(t *testing.T) {
	t.Parallel()
	if f := poolerFits(false); f.State != Failed || !f.Fatal || !strings.Contains(f.Todo, "FAROL_DATABASE_POOLER=transaction") {
		t.Errorf("%+v", f)
	}
}

// Leases go by the database's clock, so that a difference is only a warning.
func TestClockOfTheDatabaseIsCompared(t *testing.T) {
	t.Parallel()
	if f := clockFits(-2 * time.Hour); f.State != Warning || !strings.Contains(f.Found, "2h0m0s ahead of that of the database") {
		t.Errorf("%+v", f)
	}
}

// What a pooler does with prepared statements is seen, and each of its clients may prepare them where
// it keeps them: the two sessions that ten clients share have the statement under the pooler's name.
func TestPoolerThatKeepsStatementsIsKnown(t *testing.T) {
	t.Parallel()
	direct := testenv.DatabaseURL(t)
	pooled := testenv.Pooled(t, direct)
	for url, want := range map[string]bool{direct: false, pooled: true} {
		db := must.Get(dial.Connect(t.Context(), url, "test", dial.Through("prepared")))(t)
		t.Cleanup(db.Close)
		for range 3 { // which asks again in the same session
			if keeps, err := keepsStatements(t.Context(), db); err != nil || keeps != want {
				t.Errorf("it is said to keep statements: %v (%v), want %v", keeps, err, want)
			}
		}
	}
	var clients sync.WaitGroup
	for range 10 {
		db := must.Get(dial.Connect(t.Context(), pooled, "test", dial.Through("prepared")))(t)
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
	db := must.Get(dial.Connect(t.Context(), pooled, "test", dial.Through("transaction")))(t)
	defer db.Close()
	var name string
	err := db.QueryRow(t.Context(), `SELECT name FROM pg_prepared_statements WHERE statement LIKE '%by_ten_clients%' AND statement NOT LIKE '%pg_prepared%'`).Scan(&name)
	if err != nil || !strings.HasPrefix(name, "PGBOUNCER_") {
		t.Errorf("the session has it as %q, %v", name, err)
	}
}
