package lease

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/access"
)

const exampleToken = "s3cr3t"

// tokened lets nobody call who lacks the token of the examples.
func tokened(o *Options) {
	o.Caller = func(r *http.Request) (access.Caller, error) {
		if r.Header.Get("Authorization") != "Bearer "+exampleToken {
			return access.Caller{}, &access.Error{Status: http.StatusUnauthorized, Reason: "no such token"}
		}
		return access.Caller{Name: "example"}, nil
	}
}

// untokened is a server on loopback, where the examples need no token and send none.
func untokened(o *Options) {
	o.Caller = func(r *http.Request) (access.Caller, error) {
		if r.Header.Get("Authorization") != "" {
			return access.Caller{}, &access.Error{Status: http.StatusUnauthorized, Reason: "who asked for a token?"}
		}
		return access.NewTokens(nil, true).Caller(r)
	}
}

// examples are the workers that the documents show, by how they are run.
func examples() map[string][]string {
	return map[string][]string{"worker.sh": {"sh", "../../examples/worker.sh"}, "worker.py": {"python3", "../../examples/worker.py"}}
}

// run starts an example on Virus Scan, with a script as its command, and settings of
// its own.
func (l *leases) run(t *testing.T, name, script string, settings ...string) *testenv.Program {
	t.Helper()
	args := append(examples()[name], "Virus Scan", "sh", "-c", script)
	return testenv.Start(t, args, append([]string{"FAROL_URL=" + l.url, "FAROL_TOKEN=" + exampleToken}, settings...)...)
}

// The exit code of the command says what becomes of the item, and what it printed
// is kept; it gets the item as it is, whatever it is called.
func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	for name := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeases(t, tokened)
			const odd = `it's a "bag" \ ü {"id":7}.tar`
			for _, want := range []struct{ name, row string }{
				{odd, `Pending at Reingest Check, 0: all "well" \ (test.edu/` + strings.TrimSuffix(odd, ".tar") + ` in, 65 bytes) ()`},
				{"at-fault.tar", `Failed at Virus Scan, 1: It has Eicar. (refused)`},
				{"later.tar", `Pending at Virus Scan, 1: Exit code 7. No scanner. (exit-7)`},
			} {
				testenv.Exec(t, l.db, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
					SELECT id, 'Ingest', 'Virus Scan', $1, 'in', 'e', 65, now() FROM institutions WHERE identifier = 'test.edu'`, want.name)
				testenv.Exec(t, l.db, `UPDATE stage_settings SET backoff_first = '1 hour', backoff_most = '1 hour' WHERE stage = 'Virus Scan'`)
				t.Cleanup(func() {
					if row := l.value(`SELECT format('%s at %s, %s: %s (%s)', status, stage, attempt, note, error_code) FROM work_items WHERE name = $1`, want.name); row != want.row {
						t.Errorf("it is %q\nwant  %q", row, want.row)
					}
				})
			}
			e := l.run(t, name, `case $ITEM_NAME in
				at-fault.tar) echo It has Eicar.; exit 65 ;;
				later.tar) printf 'No scanner.' >&2; exit 7 ;;
				*) printf 'all "well" \\ (%s %s, %s bytes)' "$ITEM_OBJECT" "$ITEM_BUCKET" "$ITEM_SIZE" ;;
				esac`)
			testenv.Eventually(t, "all were tried", func() bool {
				return l.value(`SELECT count(*)::text FROM work_item_attempts WHERE ended_at IS NOT NULL`) == "3"
			})
			e.Stop()
		})
	}
}

// One that is asked to stop gives back what it has, and the attempt does not count.
func TestExampleWorkersStopWell(t *testing.T) {
	t.Parallel()
	for name := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeases(t, untokened)
			idle := l.run(t, name, `exit 0`, "FAROL_TOKEN=")
			testenv.Eventually(t, "it waits", func() bool { l.api.mu.Lock(); defer l.api.mu.Unlock(); return l.api.waiting == 1 })
			idle.Stop()
			testenv.Eventually(t, "nobody waits", func() bool { l.api.mu.Lock(); defer l.api.mu.Unlock(); return l.api.waiting == 0 })
			l.put("test.edu", 10)
			begun := filepath.Join(t.TempDir(), "begun")
			busy := l.run(t, name, fmt.Sprintf(`echo $$ >> %s; exec sleep 1000`, begun), "FAROL_TOKEN=")
			testenv.Eventually(t, "it works", func() bool { return testenv.Lines(t, begun)[0] != "" })
			busy.Stop()
			if row := l.value(`SELECT concat_ws(' ', status, stage, attempt, error_code, note) FROM work_items`); row != "Pending Virus Scan 0 released The worker was asked to stop." {
				t.Errorf("the item is %s", row)
			}
			gone(t, testenv.Lines(t, begun)[0])
		})
	}
}

// At whatever moment it is asked to stop, it leaves no command behind: here as the
// command has just begun.
func TestExampleWorkersStopWhatHasJustBegun(t *testing.T) {
	t.Parallel()
	for name := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeases(t, untokened)
			dir := t.TempDir()
			for n := range 5 {
				worker, begun := filepath.Join(dir, fmt.Sprint("worker", n)), filepath.Join(dir, fmt.Sprint("begun", n))
				e := l.run(t, name, fmt.Sprintf(`read pid < %s; kill $pid; echo $$ >> %s; exec sleep 1000`, worker, begun), "FAROL_TOKEN=")
				must.Do(t, os.WriteFile(worker, fmt.Appendln(nil, e.Process.Pid), 0o600))
				id := l.put("test.edu", int64(10+n))
				if err := <-e.Ended; err != nil {
					t.Errorf("it ended with %v, want 0", err)
				}
				if row := l.value(`SELECT concat_ws(' ', status, stage, attempt, note) FROM work_items WHERE id = $1`, id); row != "Pending Virus Scan 0 The worker was asked to stop." {
					t.Errorf("the item is %s", row)
				}
				testenv.Exec(t, l.db, `SELECT cancel($1::bigint)`, id)
				if pid := testenv.Lines(t, begun)[0]; pid != "" { // else it was stopped before that
					gone(t, pid)
				}
			}
		})
	}
}

// gone waits until there is no process of that number.
func gone(t *testing.T, pid string) {
	t.Helper()
	n := must.Get(strconv.Atoi(pid))(t)
	testenv.Eventually(t, "the command to end", func() bool { return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) })
}

// The leases of one that works for long are renewed. One that is killed loses its
// item to the next, once: its orphan ends nothing.
func TestKilledExampleWorkerLosesItsItemOnce(t *testing.T) {
	t.Parallel()
	for name := range examples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeases(t, tokened)
			testenv.Exec(t, l.db, `UPDATE stage_settings SET lease = '3 seconds', heartbeat = '0.5 seconds', backoff_first = '1 microsecond' WHERE stage = 'Virus Scan'`)
			testenv.Eventually(t, "the lease is known", func() bool { return l.knowsLease(t) })
			id := l.put("test.edu", 10)
			begun := filepath.Join(t.TempDir(), "begun")
			first := l.run(t, name, fmt.Sprintf(`echo $$ >> %s; exec sleep 1000`, begun))
			testenv.Eventually(t, "it has outlived its first lease", func() bool {
				return l.value(`SELECT (count(*) = 1 AND bool_and(heartbeat_at - claimed_at > interval '4 seconds' AND ended_at IS NULL))::text FROM work_item_attempts WHERE work_item_id = $1`, id) == "true"
			})
			must.Do(t, first.Process.Kill())
			second := l.run(t, name, `echo $ITEM_ID was scanned`)
			testenv.Eventually(t, "the item has gone on", func() bool {
				return l.value(`SELECT stage FROM work_items WHERE id = $1`, id) == "Reingest Check"
			})
			second.Stop()
			if ledger := l.value(`SELECT string_agg(outcome, ', ' ORDER BY claim_token) FROM work_item_attempts WHERE work_item_id = $1`, id); ledger != "lease expired, done" {
				t.Errorf("the ledger has %s", ledger)
			}
			if n := l.value(`SELECT count(*)::text FROM topic_messages WHERE topic = 'ingest03_reingest_check'`); n != "1" {
				t.Errorf("it went on %s times", n)
			}
			pid := must.Get(strconv.Atoi(testenv.Lines(t, begun)[0]))(t)
			if name == "worker.sh" { // whose heartbeats see that it is gone
				gone(t, strconv.Itoa(pid))
				return
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
	}
}

// knowsLease reports whether the engine knows the lease of Virus Scan: one
// that is claimed has it.
func (l *leases) knowsLease(t *testing.T) bool {
	t.Helper()
	id := l.put("test.edu", 10)
	_, answer := l.call("POST", "/v1/claim", scans, "Authorization", "Bearer "+exampleToken)
	items, _ := answer["items"].([]any)
	item, _ := items[0].(map[string]any)
	if status, answer := l.call("POST", "/v1/release", ref(item, ""), "Authorization", "Bearer "+exampleToken); status != http.StatusOK {
		t.Fatalf("release: %d %v", status, answer)
	}
	testenv.Exec(t, l.db, `SELECT cancel($1)`, id)
	return item["heartbeat"] == 0.5
}

func TestShellWorkerIsShort(t *testing.T) {
	t.Parallel()
	if n := len(testenv.Lines(t, "../../examples/worker.sh")); n > 60 {
		t.Errorf("examples/worker.sh has %d lines, more than a page", n)
	}
}
