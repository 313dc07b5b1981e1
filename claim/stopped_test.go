package claim_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

var (
	stops = flag.Int("claim.stops", testenv.Soak(400), "how often a worker is stopped for longer than its leases")
	kills = flag.Int("claim.kills", testenv.Soak(400), "how often a worker is killed")
)

// childCrew works until its input ends, and reports each claim that has ended.
func childCrew(ctx context.Context, db *pgxpool.Pool, e *claim.Engine) int {
	ctx, stop := context.WithCancel(ctx)
	fmt.Println("worker", e.Worker())
	c := &crew{acked: map[claimKey]registry.Stage{}, takes: 20 * time.Millisecond, answered: func(h claimKey, stage registry.Stage) {
		fmt.Println(h.item, h.token, stage)
	}}
	var working sync.WaitGroup
	working.Go(func() { e.Run(ctx) }) //nolint:errcheck // it returns none
	for range 4 {
		working.Go(func() { c.work(ctx, e) })
	}
	io.Copy(io.Discard, os.Stdin)
	stop()
	working.Wait()
	db.Close()
	return 0
}

// child is a crew in a process of its own.
type child struct {
	cmd    *exec.Cmd
	worker string
	stdin  io.Closer
	over   sync.WaitGroup
}

// child starts a process whose acknowledged claims are the crew's.
func (c *crew) child() *child {
	p := &child{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childVar+"=crew "+c.q.db.Config().ConnString())
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		c.q.t.Error(err)
		return nil
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		c.q.t.Error(err)
		return nil
	}
	if err := p.cmd.Start(); err != nil {
		c.q.t.Error(err)
		return nil
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		c.q.t.Errorf("the worker said nothing: %v", lines.Err())
		return nil
	}
	fmt.Sscanf(lines.Text(), "worker %s", &p.worker)
	p.over.Go(func() {
		for lines.Scan() {
			var h claimKey
			var stage registry.Stage
			if n, _ := fmt.Sscan(lines.Text(), &h.item, &h.token, &stage); n == 3 { // a killed process leaves half a line
				c.acknowledged(h, stage)
			}
		}
	})
	return p
}

// end lets the process finish its items.
func (p *child) end(t *testing.T) {
	t.Helper()
	p.stdin.Close()
	p.over.Wait()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("worker %s: %v", p.worker, err)
	}
}

func (p *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Errorf("worker %s: %v", p.worker, err)
	}
}

// open is how many items have not come to their end.
func (c *crew) open() int {
	c.q.t.Helper()
	return value[int](c.q, `SELECT count(*) FROM work_items WHERE retry`)
}

// holding is how many items a worker has.
func (c *crew) holding(worker string) int {
	c.q.t.Helper()
	return value[int](c.q, `SELECT count(*) FROM work_items WHERE status = 'Started' AND worker = $1`, worker)
}

func newChildren(t *testing.T, items int) *crew {
	t.Helper()
	c := newCrew(t, testenv.Database(t), items)
	c.q.exec(`UPDATE stage_settings SET heartbeat = '200 milliseconds', lease = '600 milliseconds'`)
	return c
}

// Workers are stopped while they hold items until others have claimed these, and then
// continue as if nothing had happened. Nothing that they believe to own still
// counts, and nothing that counted is undone.
func TestStoppedWorkersChangeNothing(t *testing.T) {
	t.Parallel()
	const processes = 4
	c := newChildren(t, 60**stops)
	ctx, cancel := context.WithCancel(context.Background())
	defer c.start(ctx, c.q.db, 1).Wait() // one that is never stopped
	defer cancel()
	var running sync.WaitGroup
	for range processes {
		running.Go(func() {
			p := c.child()
			if p == nil {
				return
			}
			defer p.end(t)
			defer p.signal(t, syscall.SIGCONT) // should the test fail in the meantime
			for done := 0; done < *stops/processes && c.open() > 0; {
				<-time.After(rand.N(50 * time.Millisecond)) // at any point of its work
				p.signal(t, syscall.SIGSTOP)
				if c.holding(p.worker) > 0 {
					done++
				}
				testenv.Eventually(t, "others to take over", func() bool { return c.holding(p.worker) == 0 })
				p.signal(t, syscall.SIGCONT)
			}
		})
	}
	running.Wait()
	c.finish()
	if c.lost = value[int](c.q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'lease expired'`); c.lost < *stops/2 {
		t.Errorf("only %d claims were lost in %d stops", c.lost, *stops)
	}
	c.account()
}

// finish works off what is left.
func (c *crew) finish() {
	c.q.t.Helper()
	p := c.child()
	if p == nil {
		c.q.t.FailNow()
	}
	for c.open() > 0 { // items come to their end only after all have come to the last stage
		n := c.ended()
		testenv.Eventually(c.q.t, "more claims to end", func() bool { return c.ended() > n+100 || c.open() == 0 })
	}
	p.stdin.Close()
	p.over.Wait()
	if err := p.cmd.Wait(); err != nil {
		c.q.t.Error(err)
	}
}

// Workers are killed while they hold items, and others started in their place. Each
// item comes to its end, once, and none is given up on.
func TestKilledWorkersLoseNothing(t *testing.T) {
	t.Parallel()
	const processes = 4
	c := newChildren(t, 20**kills)
	var running sync.WaitGroup
	for range processes {
		running.Go(func() {
			for range *kills / processes {
				p := c.child()
				if p == nil {
					return
				}
				testenv.Eventually(t, "the worker to have work", func() bool {
					return c.holding(p.worker) > 0 || value[int](c.q, `SELECT count(*) FROM work_items WHERE status = 'Pending'`) == 0
				})
				p.signal(t, syscall.SIGKILL)
				p.over.Wait()
				p.cmd.Wait()
			}
		})
	}
	running.Wait()
	c.finish()
	if n := value[int](c.q, `SELECT count(DISTINCT worker) FROM work_item_attempts WHERE outcome IN ('killed', 'lease expired')`); n < *kills/2 {
		t.Errorf("only %d of %d workers held an item when they were killed", n, *kills)
	}
	c.account()
}
