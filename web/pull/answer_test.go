package pull

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Those who answer, and those who are given messages again that are just being
// answered, never wait for each other in a ring: the database would see it after a
// second only, and fail one of them.
func TestAnswersAndPullsDoNotWaitInARing(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	own := must.Get(pgxpool.NewWithConfig(t.Context(), db.Config()))(t)
	closed := sync.OnceFunc(own.Close)
	defer closed()
	queues := []string{"a", "b", "c"}
	const messages = 30
	var servers []*broker
	for range 2 {
		servers = append(servers, newBroker(own, Options{}))
	}
	for _, queue := range queues {
		must.Get(servers[0].post(t.Context(), postRequest{postings: []posting{{queue, testenv.Numbers(1, messages)}}}))(t)
	}
	for n := range 3 {
		for _, queue := range queues {
			if got, err := servers[0].pull(t.Context(), fmt.Sprint("r", n), broughtResults{}, []wanted{{Queue: queue, Max: messages, RetryNum: 1}}, 0); err != nil || len(got[0]) != messages {
				t.Fatalf("%d messages, %v", len(got[0]), err)
			}
		}
	}
	answers := func(r *rand.Rand) (list []result) {
		for _, n := range r.Perm(messages)[:1+r.IntN(4)] {
			list = append(list, result{Queue: queues[r.IntN(len(queues))], Message: int64(1 + n), Text: "ok"})
		}
		return list
	}
	var running sync.WaitGroup
	for n := range 12 {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			q, receiver := servers[n%2], fmt.Sprint("r", n%3)
			again := func(queue string) wanted { // all that was given and not answered, at once
				return wanted{Queue: queue, Max: 1 + r.IntN(5), RetryNum: 1_000_000}
			}
			for range 60 {
				queue := queues[r.IntN(len(queues))]
				same := answers(r)
				for i := range same {
					same[i].Queue = queue
				}
				_, err := q.pull(context.Background(), receiver, broughtResults{results: same}, []wanted{again(queue)}, 0)
				if err != nil {
					t.Error(err)
				}
				_, err = q.pull(context.Background(), receiver, broughtResults{results: answers(r)}, []wanted{again("a"), again("b"), again("c")}, 0)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	closed() // a connection reports its deadlocks when it ends
	testenv.Eventually(t, "the end of the connections", func() (gone bool) {
		must.Do(t, db.QueryRow(t.Context(), `SELECT count(*) <= $1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`,
			db.Stat().TotalConns()).Scan(&gone))
		return gone
	})
	var deadlocks, finished int
	must.Do(t, db.QueryRow(t.Context(), `
		SELECT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()), (SELECT count(*) FROM deliveries WHERE status = 'finished')`,
	).Scan(&deadlocks, &finished))
	if deadlocks != 0 || finished == 0 {
		t.Errorf("%d deadlocks, %d answers", deadlocks, finished)
	}
}

// Results and the messages that are asked for with them are saved and given both, or
// neither.
func TestAnswerAndPullIsOneTransaction(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	q := newBroker(db, Options{})
	must.Get(q.post(t.Context(), postRequest{postings: []posting{{"q", testenv.Numbers(1, 2)}}}))(t)
	want := []wanted{{Queue: "q", Max: 1, RetryNum: 2, FailTimeout: time.Hour}}
	must.Get(q.pull(t.Context(), "r", broughtResults{}, want, 0))(t)
	testenv.Exec(t, db, `CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	testenv.Exec(t, db, `CREATE TRIGGER broken BEFORE INSERT ON topic_deliveries FOR EACH ROW EXECUTE FUNCTION broken()`)
	results := []result{{Queue: "q", Message: 1, Text: "done"}}
	if got, err := q.pull(t.Context(), "r", broughtResults{results: results}, want, 0); err == nil {
		t.Fatalf("Pull = %v although the message could not be noted", got)
	}
	row := func() (s string) {
		must.Do(t, db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', message, status, result), ', ' ORDER BY message) FROM deliveries`).Scan(&s))
		return s
	}
	if got := row(); got != "1 processing" {
		t.Errorf("deliveries are %q", got)
	}
	testenv.Exec(t, db, `DROP TRIGGER broken ON topic_deliveries`)
	got, err := q.pull(t.Context(), "r", broughtResults{results: results}, want, 0)
	if err != nil || len(got[0]) != 1 || got[0][0].ID != 2 {
		t.Errorf("Pull = %v, %v; want message 2", got, err)
	}
	if got := row(); got != "1 finished done, 2 processing" {
		t.Errorf("deliveries are %q", got)
	}
}
