package nsqcompat

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// churn does something at random that people and workers do, n times, and returns
// how many claims ended as retries, and how many were given back.
func (q *queue) churn(r *rand.Rand, n int) (retries, releases int64) {
	q.t.Helper()
	ids := func(where string) string {
		return `(SELECT id FROM work_items WHERE ` + where + ` ORDER BY random() LIMIT 1)`
	}
	for range n {
		stage := []string{"Receive", "Validate"}[r.IntN(2)]
		some := 1 + r.IntN(5)
		was := q.value(`SELECT count(*)::text FROM work_items WHERE status = 'Started' AND stage = $1`, stage)
		running := int64(0)
		fmt.Sscan(was, &running)
		switch r.IntN(12) {
		case 0, 1:
			q.items(some)
		case 2, 3, 4:
			q.claim(stage, some)
		case 5, 6:
			if stage == "Receive" {
				q.end(stage, some, done)
			} else {
				q.end(stage, some, `status = 'Cancelled', retry = false`)
			}
		case 7:
			q.end(stage, some, retried)
			retries += min(running, int64(some))
		case 8:
			q.end(stage, some, released)
			releases += min(running, int64(some))
		case 9:
			q.end(stage, 1, failed)
		case 10:
			q.exec(`SELECT requeue(` + ids(`status = 'Failed'`) + `) WHERE EXISTS (SELECT FROM work_items WHERE status = 'Failed')`)
		case 11:
			q.exec(`SELECT cancel(id) FROM work_items WHERE id = ` + ids(`status IN ('Pending', 'Failed')`))
		}
	}
	return retries, releases
}

// agrees waits until nsqd shows what the registry has, and returns the figures of
// both stages.
func (q *queue) agrees() (list []TopicFigures, took time.Duration) {
	q.t.Helper()
	began := time.Now()
	defer func() {
		if q.t.Failed() {
			q.t.Logf("figures = %+v", list)
		}
	}()
	testenv.Eventually(q.t, "the same figures on both sides", func() bool {
		is := must.Get(count(q.t.Context(), q.db, topiclog.Position{XID: 1 << 62}, 90))(q.t)
		stats, err := at(q.nsqd).stats(q.t.Context())
		if err != nil {
			return false
		}
		list = list[:0]
		same := true
		for _, c := range is {
			t, _ := stats.topic(c.Topic)
			f := figuresOf(c, t)
			if c.Topic == receiveTopic || c.Topic == validateTopic {
				list = append(list, f)
			}
			same = same && f.Drift == 0 && f.Deferred == f.Later
		}
		return same
	})
	return list, time.Since(began)
}

// Whatever happens in the queue, and in whatever order, nsqd shows it.
func TestFiguresFollowAnyChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.linked(q.options())
			r := rand.New(rand.NewPCG(seed, 1))
			var retries, releases int64
			var longest time.Duration
			for range 12 {
				a, b := q.churn(r, 30)
				retries, releases = retries+a, releases+b
				list, took := q.agrees()
				longest = max(longest, took)
				// Claims that are given back and made again at once nobody sees.
				if got := list[0].Requeued + list[1].Requeued; got < retries || got > retries+releases {
					t.Fatalf("nsqd has %d requeues, want %d, and up to %d more", got, retries, releases)
				}
			}
			t.Logf("nsqd agreed after %v at most, with %d retries and %d releases", longest, retries, releases)
		})
	}
}

// The same while nsqd goes and loses what it had: what it shows is right again
// within seconds.
func TestFiguresFollowWhileNSQDGoesAndComes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	r := rand.New(rand.NewPCG(7, 1))
	for round := range 4 {
		q.churn(r, 30)
		q.agrees()
		q.nsqd.Stop(t)
		q.churn(r, 30)
		if round%2 == 1 {
			q.nsqd.Wipe(t)
		}
		q.nsqd.Start(t)
		q.churn(r, 10)
		_, took := q.agrees()
		t.Logf("right again after %v", took)
	}
}
