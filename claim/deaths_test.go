package claim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// kernelVar names the directories in which a test shows a process its kernel.
const kernelVar = "CLAIM_TEST_KERNEL"

// childEngine is the engine of a worker that will end so.
func childEngine(ctx context.Context, db *pgxpool.Pool, ending string) (*claim.Engine, error) {
	o := claim.DefaultOptions()
	switch ending {
	case "oom":
		return newUnder(ctx, db, o, os.Getenv(kernelVar))
	case "stands-still", "cut-off":
		o.Heartbeat, o.Lease = 200*time.Millisecond, 2*time.Second
	case "takes-too-long":
		o.Timeouts = map[string]time.Duration{"Receive": 200 * time.Millisecond}
	}
	return claim.New(ctx, db, o)
}

// childLives ends its claim itself, as ending says.
func childLives(h *claim.Hold, ending string) int {
	var result error
	switch ending {
	case "error":
		result = claim.Transient("bad-copy", errors.New("the copy is not what it should be"))
	case "refused":
		result = claim.Fatal("invalid-bag", "the bag is not valid")
	default: // until the claim's context ends, whatever ends it
		<-h.Context().Done()
		result = h.Verdict(context.Cause(h.Context()))
	}
	if errors.Is(result, claim.ErrLost) {
		h.Abandon()
		fmt.Println("lost")
		select {} // it lives on and heartbeats
	}
	if err := h.Settle(context.Background(), claim.Done{}, result); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("settled")
	return 0
}

// kernelOf makes a kernel below a directory that shows real processes, in a
// control group, and reports what is written there of it.
func kernelOf(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must.Do(t, errors.Join(
		os.MkdirAll(filepath.Join(dir, "proc", "self"), 0o700), os.MkdirAll(filepath.Join(dir, "cgroup", "pod"), 0o700),
		os.Symlink("/proc/sys", filepath.Join(dir, "proc", "sys")), os.Symlink("/proc/self/ns", filepath.Join(dir, "proc", "self", "ns")),
		os.WriteFile(filepath.Join(dir, "proc", "self", "cgroup"), []byte("0::/pod\n"), 0o600),
	))
	kernelKills(t, dir, 3)
	return dir
}

// kernelKills has the control group report that so many processes were killed because
// memory ran out.
func kernelKills(t *testing.T, dir string, n int) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup", "pod", "memory.events"), fmt.Appendf(nil, "oom %d\noom_kill %d\n", n, n), 0o600))
}

func newUnder(ctx context.Context, db *pgxpool.Pool, o claim.Options, dir string) (*claim.Engine, error) {
	me := strconv.Itoa(os.Getpid())
	if err := os.Symlink("/proc/"+me, filepath.Join(dir, "proc", me)); err != nil {
		return nil, err
	}
	return claim.NewUnder(ctx, db, o, filepath.Join(dir, "proc"), filepath.Join(dir, "cgroup"))
}

// victim is a worker in a process of its own that holds an item.
type victim struct {
	*exec.Cmd
	t    *testing.T
	said *bufio.Reader
}

func (q *queue) victim(t *testing.T, ending, url string, environ ...string) *victim {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	t.Cleanup(cancel)
	v := &victim{Cmd: exec.CommandContext(ctx, os.Args[0]), t: t}
	v.Env = append(append(os.Environ(), childVar+"="+ending+" "+url), environ...)
	v.Stderr = io.Discard
	out, err := v.StdoutPipe()
	if err == nil {
		err = v.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.Process.Kill()
		v.Wait()
	})
	v.said = bufio.NewReader(out)
	v.says("ready")
	return v
}

func (v *victim) says(want string) {
	v.t.Helper()
	if line, err := v.said.ReadString('\n'); line != want+"\n" {
		v.t.Fatalf("the worker said %q, %v; want %q", line, err, want)
	}
}

func (v *victim) signal(s syscall.Signal) {
	v.t.Helper()
	must.Do(v.t, v.Process.Signal(s))
}

func (v *victim) ends() {
	v.t.Helper()
	v.Wait() // however it ends
}

// Whatever ends an attempt, the ledger names it, and the current file. Each is a
// real process to which it really happens; only of the kernel's word that it
// killed for want of memory, the test is the author.
func TestEachCauseOfDeathIsNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ending string
		does   func(q *queue, v *victim, dir string, proxy *injure.Proxy) // to a worker that holds the item
		want   string                                                     // outcome, code
		words  string                                                     // of the ledger
		status string
	}{
		"out of memory": {"oom", func(_ *queue, v *victim, dir string, _ *injure.Proxy) {
			kernelKills(v.t, dir, 4)
			v.signal(syscall.SIGKILL)
			v.ends()
		}, "oom oom", "ran out of memory and was killed", "Pending 1"},
		"killed, while none was out of memory": {"oom", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.signal(syscall.SIGKILL)
			v.ends()
		}, "killed killed", "was killed", "Pending 1"},
		"SIGKILL": {"kill", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.signal(syscall.SIGKILL)
			v.ends()
		}, "killed killed", "was killed", "Pending 1"},
		"SIGTERM, as of scaling in": {"told-to-stop", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.signal(syscall.SIGTERM)
			v.says("settled")
		}, "released released", "terminated signal received", "Pending 0"},
		"SIGTERM, and SIGKILL before it could give it back": {"deaf", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.stopsDeaf()
		}, "stopped stopped", "was asked to stop, and ended before it gave the item back", "Pending 0"},
		"the same on another host": {"deaf", func(q *queue, v *victim, _ string, _ *injure.Proxy) {
			v.stopsDeaf()
			q.exec(`UPDATE worker_processes SET host = 'another'`)
			q.lapse()
		}, "stopped stopped", "was asked to stop, and ended before it gave the item back", "Pending 0"},
		"the same, found when it is silent": {"deaf", func(q *queue, v *victim, _ string, _ *injure.Proxy) {
			v.stopsDeaf()
			q.exec(`UPDATE worker_processes SET host = 'another', heartbeat_at = now() - interval '1 hour'`)
			q.lapse()
		}, "stopped stopped", "was asked to stop, and ended before it gave the item back", "Pending 0"},
		"a panic": {"panic", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.ends()
		}, "panic panic", "crashed while it worked on this stage: panic: runtime error: index out of range [1] with length 1", "Pending 1"},
		"a lease that it lost": {"stands-still", func(q *queue, v *victim, _ string, _ *injure.Proxy) {
			v.signal(syscall.SIGSTOP)
			testenv.Eventually(v.t, "its lease to lapse", func() bool {
				return value[bool](q, `SELECT lease_expires_at < now() FROM work_items`)
			})
			q.reapsLapsed(v.t)
			v.signal(syscall.SIGCONT)
			v.says("lost")
			q.comesTo(v.t, "lease-lost")
		}, "lease expired lease-lost", "stopped sending heartbeats", "Pending 1"},
		"the network": {"cut-off", func(q *queue, v *victim, _ string, proxy *injure.Proxy) {
			proxy.Cut()
			v.says("lost")
			q.reapsLapsed(v.t)
			proxy.Resume()
			q.comesTo(v.t, "unreachable")
			testenv.Eventually(v.t, "the attempt not to count", func() bool {
				return value[string](q, `SELECT error_code FROM work_items`) == "unreachable"
			})
		}, "lease expired unreachable", "stopped sending heartbeats", "Pending 0"},
		"the network, at the last attempt": {"cut-off", func(q *queue, v *victim, _ string, proxy *injure.Proxy) {
			q.exec(`UPDATE stage_settings SET max_attempts = 1`)
			proxy.Cut()
			v.says("lost")
			e := q.engine()
			testenv.Eventually(v.t, "the item to be parked", func() bool {
				q.lapse()
				q.reap(e)
				return value[string](q, `SELECT status FROM work_items`) == "Suspended"
			})
			proxy.Resume()
			testenv.Eventually(v.t, "the item to be queued again", func() bool {
				return value[string](q, `SELECT status FROM work_items`) == "Pending"
			})
		}, "lease expired unreachable", "stopped sending heartbeats", "Pending 0"},
		"the network, until its lease would have lapsed": {"cut-off", func(q *queue, v *victim, _ string, proxy *injure.Proxy) {
			proxy.Cut()
			v.says("lost")
			q.exec(`UPDATE work_items SET lease_expires_at = now() + interval '1 hour'`) // its last heartbeat came late
			proxy.Resume()
			q.comesTo(v.t, "database-unavailable")
		}, "held database-unavailable", "no heartbeat reached the database", "Pending 0"},
		"an error with a code": {"error", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.says("settled")
		}, "transient bad-copy", "the copy is not what it should be", "Pending 1"},
		"an error that is final": {"refused", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.says("settled")
		}, "fatal invalid-bag", "the bag is not valid", "Failed 1"},
		"its processing timeout": {"takes-too-long", func(_ *queue, v *victim, _ string, _ *injure.Proxy) {
			v.says("settled")
		}, "transient timeout", "the stage did not end within 200ms", "Pending 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.t = t
			id := q.put("Receive", 1)
			dir := kernelOf(t)
			e := must.Get(newUnder(t.Context(), q.db, claim.DefaultOptions(), dir))(t)
			t.Cleanup(e.Close)
			at := *q.db.Config().ConnConfig
			proxy := testenv.NewProxy(t, net.JoinHostPort(at.Host, itoa(at.Port)))
			through := q.db.Config().ConnString()
			if tc.ending == "cut-off" {
				u := must.Get(url.Parse(through))(t)
				u.Host = proxy.Addr()
				through = u.String()
			}
			v := q.victim(t, tc.ending, through, kernelVar+"="+dir)
			tc.does(q, v, dir, proxy)
			q.reapsOne(e)
			const look = `SELECT concat_ws(' ', outcome, error_code) FROM work_item_attempts`
			if got := value[string](q, look); got != tc.want {
				t.Errorf("the ledger names %q, want %q", got, tc.want)
			}
			if got := value[string](q, `SELECT error FROM work_item_attempts`); !strings.Contains(got, tc.words) {
				t.Errorf("the ledger says %q, want %q", got, tc.words)
			}
			if got := value[string](q, `SELECT current_file FROM work_item_attempts`); got != "data/killer.pdf" {
				t.Errorf("the current file was %q", got)
			}
			if r := q.row(id); fmt.Sprintf("%s %d", r.Status, r.Attempt) != tc.status {
				t.Errorf("item = %+v, want %s", r, tc.status)
			}
		})
	}
}

// stopsDeaf asks the worker to stop, and kills it before it has given anything back.
func (v *victim) stopsDeaf() {
	v.t.Helper()
	v.signal(syscall.SIGTERM)
	v.says("stopping")
	v.signal(syscall.SIGKILL)
	v.ends()
}

// reapsLapsed ends the claim of a worker that is silent. Its own last reaping may
// still be under way.
func (q *queue) reapsLapsed(t *testing.T) {
	t.Helper()
	e := q.engine()
	testenv.Eventually(t, "the silent worker's item to be reaped", func() bool {
		q.lapse()
		q.reap(e)
		return value[string](q, `SELECT status FROM work_items`) == "Pending"
	})
}

// reapsOne ends the claim of a dead worker, whose last reaping the database may
// not have given up yet.
func (q *queue) reapsOne(e *claim.Engine) {
	q.t.Helper()
	testenv.Eventually(q.t, "the dead worker's item to be reaped", func() bool {
		q.reap(e)
		return value[int](q, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`) == 0
	})
}

// comesTo waits for a worker that was silent to report why.
func (q *queue) comesTo(t *testing.T, code string) {
	t.Helper()
	testenv.Eventually(t, "the ledger to say "+code, func() bool {
		return value[string](q, `SELECT error_code FROM work_item_attempts`) == code
	})
}

// A claim that was committed, and whose answer was lost on its way, is nobody's: the
// worker lives, and does not know of it. However often that happens, the item goes
// back at once when the lease ends, and no attempt is spent.
func TestClaimWhoseAnswerWasLostSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET heartbeat = '500 milliseconds', lease = CASE stage WHEN 'Store' THEN '5 seconds' ELSE '1 minute' END::interval`)
	lost, kept := q.put("Store", 1), q.put("Record", 1)
	seen := make(ended, 100)
	e := q.engine(func(o *claim.Options) { o.Observer = seen })
	q.running(e)
	q.firstHeartbeat(e)
	known := q.claimOne(e, "Record")
	const most = 3
	for n := range most + 1 {
		items, err := e.Claim(t.Context(), at("Store", 1), 1) // nobody holds what it returns
		if err != nil || len(items) != 1 || items[0].Attempt != 1 {
			t.Fatalf("claim %d: %v, %v", n, items, err)
		}
		testenv.Eventually(t, "the item to come back", func() bool { r := q.row(lost); return r.Status == "Pending" && r.Due })
	}
	if r := q.row(lost); r.Attempt != 0 || r.Code != "claim-lost" || !strings.Contains(r.Note, e.Worker()+" did not receive the answer to its claim") {
		t.Errorf("the item whose claims were lost is %+v", r)
	}
	if n := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'lease expired' AND error_code = 'claim-lost'`); n != most+1 {
		t.Errorf("%d attempts are on record as lost claims, want %d", n, most+1)
	}
	for range most + 1 {
		if end := <-seen; end.Outcome != "lease expired" || end.Attempt != 0 || end.Of == nil || end.Of.Item != lost || end.Of.Worker != e.Worker() {
			t.Errorf("the metrics have %+v of %+v, and the ledger says lease expired", end, end.Of)
		}
	}
	q.settle(known, claim.Done{Next: "Cleanup"}, nil)
	if r := q.row(kept); r.Stage != "Cleanup" {
		t.Errorf("the item that its worker knows is %+v", r)
	}
}

// Of two heartbeats within a lease, one may fail: that the other does not name the item says enough.
func TestOneHeartbeatTellsOfALostClaim(t *testing.T) {
	t.Parallel()
	for after, code := range map[string]string{"16 seconds": "claim-lost", "14 seconds": "lease-expired"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Store", 1)
			e := q.engine()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx) }()
			q.firstHeartbeat(e)
			if items, err := e.Claim(t.Context(), at("Store", 1), 1); err != nil || len(items) != 1 { // nobody holds what it returns
				t.Fatal(items, err)
			}
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			q.exec(`UPDATE worker_processes SET ended_at = NULL, ending = NULL, draining = false, heartbeat = '10 seconds',
				heartbeat_at = (SELECT claimed_at FROM work_item_attempts) + $1::interval`, after)
			q.lapse()
			q.reap(q.engine())
			if r := q.row(id); r.Code != code {
				t.Errorf("the item is %+v, want %s", r, code)
			}
		})
	}
}

// ended is an observer that passes on how attempts ended.
type ended chan claim.End

func (c ended) Ended(end claim.End)      { c <- end }
func (ended) Claimed(time.Duration, int) {}
func (ended) Settled(time.Duration, int) {}
func (ended) Lost(string)                {}

// A worker that stalls in the middle of reaping, or of a claim of a stage
// with a cap, holds up all others only until the database ends its transaction.
func TestStalledReaperHoldsUpNobody(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background())
	v := q.victim(t, "stands-still", q.db.Config().ConnString())
	must.Get(tx.Exec(t.Context(), `LOCK TABLE worker_processes IN SHARE MODE`))(t)
	testenv.Eventually(t, "the worker to wait in the middle of reaping", func() bool {
		return value[bool](q, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database() AND a.wait_event_type = 'Lock')`)
	})
	v.signal(syscall.SIGSTOP)
	must.Do(t, tx.Rollback(t.Context()))
	q.reapsLapsed(t)
}
