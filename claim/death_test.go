package claim_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// childVar makes this test program a worker: it names the database, and how the
// worker ends.
const childVar = "CLAIM_TEST_WORKER"

// childWorker claims an item, begins a file, says so, and ends as arg says.
func childWorker(arg string) int {
	ending, url, _ := strings.Cut(arg, " ")
	ctx := context.Background()
	db, err := dial.Connect(ctx, url, "test")
	if err != nil {
		panic(err)
	}
	e, err := childEngine(ctx, db, ending)
	if err != nil {
		panic(err)
	}
	if ending == "crew" {
		return childCrew(ctx, db, e)
	}
	upkeep, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(upkeep) //nolint:errcheck // it returns none
	}()
	for known := 0; known == 0; { // until its row is there, nobody could know of its death
		if err := db.QueryRow(ctx, `SELECT count(*) FROM worker_processes WHERE worker = $1`, e.Worker()).Scan(&known); err != nil {
			panic(err)
		}
	}
	items, err := e.Claim(ctx, at("Receive", 1), 1)
	if err != nil || len(items) != 1 {
		panic(fmt.Sprint(items, err))
	}
	stopped, forget := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer forget()
	h := e.Hold(stopped, items[0])
	h.CurrentFile("data/killer.pdf")
	fmt.Println("ready")
	switch ending {
	case "panic":
		go func() { h.CurrentFile(items[len(items)].Name) }() // a stage's mistake, in a goroutine that nobody recovers
		select {}
	case "orderly":
		stop()
		<-ended
		return 0
	case "kill", "oom":
		select {}
	case "deaf": // it is asked to stop, and is in the midst of something long
		<-stopped.Done()
		e.Stopping()
		for asked := false; !asked; {
			if err := db.QueryRow(ctx, `SELECT draining FROM worker_processes WHERE worker = $1`, e.Worker()).Scan(&asked); err != nil {
				panic(err)
			}
		}
		fmt.Println("stopping")
		select {}
	default:
		return childLives(h, ending)
	}
}

// A worker that dies is found by another of its host at once, not when its lease
// has lapsed; the ledger names the cause of death and the current file.
func TestDeadNeighbourIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	for ending, want := range map[string]struct{ outcome, code, note, row string }{
		"kill":  {"killed", "killed", "was killed while it worked on this stage. The file in progress was data/killer.pdf.", "killed"},
		"panic": {"panic", "panic", "crashed while it worked on this stage: panic: runtime error: index out of range [1] with length 1. The file in progress was data/killer.pdf.", "panic"},
	} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Receive", 1)
			q.childDies(ending)
			q.reapsOne(q.engine())
			r := q.row(id)
			if r.Status != "Pending" || r.Attempt != 1 || r.Code != want.code || !strings.Contains(r.Note, want.note) {
				t.Errorf("item = %+v, want it to say %q", r, want.note)
			}
			got := value[string](q, `SELECT concat_ws(' ', outcome, error_code, current_file) FROM work_item_attempts`)
			if got != want.outcome+" "+want.code+" data/killer.pdf" {
				t.Errorf("the ledger says %q", got)
			}
			if got := value[string](q, `SELECT ending FROM worker_processes`); got != want.row {
				t.Errorf("the worker ended as %q, want %s", got, want.row)
			}
			if left := value[string](q, `SELECT worker FROM worker_processes`); exists(os.TempDir() + "/farol-worker-" + left) {
				t.Error("its crash log is still there")
			}
		})
	}
}

// A worker looks after sixteen of its host, and comes to all the others when those are dead.
func TestAllOfAHostAreFoundDead(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	q.childDies("kill")
	q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, heartbeat, heartbeat_at)
		SELECT n || w.worker, w.node, w.pid, w.host, w.pid_started, w.heartbeat, now() FROM worker_processes w, generate_series(1, 39) n`)
	e := q.engine()
	ended, reaped := 0, 0
	for _, want := range []int{16, 32, 40} {
		reaped += q.reap(e)
		if ended = value[int](q, `SELECT count(*) FROM worker_processes WHERE ending = 'killed'`); ended != want {
			t.Fatalf("%d dead workers were found, want %d", ended, want)
		}
	}
	if reaped != 1 {
		t.Errorf("reaped %d items, want one", reaped)
	}
}

// The database may be at a dead worker's last statement for some time, and its item
// locked. The next round that finds it free still knows the cause and the file.
func TestDeadWorkersItemMayBeLocked(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	q.childDies("kill")
	e := q.engine()
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background())
	must.Get(tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, id))(t)
	for range 3 {
		if n := q.reap(e); n != 0 {
			t.Fatalf("reaped %d items that are locked", n)
		}
	}
	must.Do(t, tx.Rollback(t.Context()))
	q.reapsOne(e)
	if r := q.row(id); r.Code != "killed" || !strings.Contains(r.Note, "The file in progress was data/killer.pdf.") {
		t.Errorf("item = %+v", r)
	}
}

// A worker that signs off is not taken for dead. What it still held, its lease
// ends.
func TestWorkerThatSignsOffIsNotDead(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	q.childDies("orderly")
	if n := q.reap(q.engine()); n != 0 {
		t.Errorf("reaped %d, want none", n)
	}
	q.lapse()
	if n := q.reap(q.engine()); n != 1 {
		t.Errorf("reaped %d, want one when its lease has lapsed", n)
	}
	if got := value[string](q, `SELECT concat_ws(' ', a.outcome, w.status, w.attempt) FROM work_item_attempts a, work_items w`); got != "stopped Pending 0" {
		t.Errorf("its attempt and its item are %q", got)
	}
}

// An item that kills anyone who takes it up is parked after its attempts, with the
// number of its victims and the file.
func TestItemThatKillsItsWorkersIsParked(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	e := q.engine()
	for range 3 {
		q.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
		q.childDies("kill")
		q.reapsOne(e)
	}
	r := q.row(id)
	const want = "The file in progress was data/killer.pdf. Will not retry: failed 3 times, and 3 workers died."
	if r.Status != "Suspended" || r.Retry || !r.Review || r.Code != "killed" || !strings.Contains(r.Note, want) {
		t.Errorf("item = %+v, want it parked with %q", r, want)
	}
}

// childDies runs a worker in a process of its own until it has claimed and died.
func (q *queue) childDies(ending string) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+ending+" "+q.db.Config().ConnString())
	out := must.Get(cmd.StdoutPipe())(q.t)
	must.Do(q.t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		q.t.Errorf("the worker said %q, %v", line, err)
	}
	if ending == "kill" {
		if err := cmd.Process.Kill(); err != nil {
			q.t.Error(err)
		}
	}
	if err := cmd.Wait(); (err == nil) != (ending == "orderly") {
		q.t.Errorf("the worker ended with %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
