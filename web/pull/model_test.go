package pull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// modelQueue is NQ's rules, written down once more: a queue with one receiver's view
// of it for each name.
type modelQueue struct {
	messages  []string
	receivers map[string]*modelReceiver
}

type modelReceiver struct {
	position int
	rows     map[int]*modelRow
}

type modelRow struct {
	status string
	fails  int
	age    int // steps of the model's clock since it was given
}

func (q *modelQueue) receiver(name string) *modelReceiver {
	if q.receivers[name] == nil {
		q.receivers[name] = &modelReceiver{rows: map[int]*modelRow{}}
	}
	return q.receivers[name]
}

// pull returns the numbers that are given.
func (q *modelQueue) pull(name string, start, most, retries, timeout int) (given []int) {
	r, last := q.receiver(name), len(q.messages)
	switch {
	case start > last: // nothing new before that, and nothing is passed over
		return q.again(r, most, retries, timeout)
	case start > 0:
		r.position = max(r.position, start-1)
	case start == -1 && last > r.position:
		r.position = last - 1
	case start == -2:
		r.position = max(r.position, last)
	}
	for r.position < last && len(given) < most {
		r.position++
		status := "processing"
		if retries == 0 {
			status = "failed"
		}
		r.rows[r.position] = &modelRow{status: status}
		given = append(given, r.position)
	}
	if len(given) > 0 {
		return given
	}
	return q.again(r, most, retries, timeout)
}

// again returns the numbers that are given once more.
func (q *modelQueue) again(r *modelReceiver, most, retries, timeout int) (given []int) {
	for n := 1; n <= len(q.messages) && len(given) < most; n++ {
		row := r.rows[n]
		if row == nil || row.status != "processing" || row.age < timeout {
			continue
		}
		row.fails++
		row.age = 0
		if row.fails >= retries {
			row.status = "failed"
		}
		given = append(given, n)
	}
	return given
}

// answer reports whether the result is to a message that was given.
func (q *modelQueue) answer(name string, n int) bool {
	row := q.receiver(name).rows[n]
	if row != nil {
		row.status = "finished"
	}
	return row != nil
}

// Whatever is posted, pulled and answered, by whom and when: it is as NQ's rules say.
func TestQueuesDoWhatTheirModelSays(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	q := newBroker(db, Options{})
	ctx := context.Background()
	round := 0
	// A step of the model's clock is an hour; the database's is moved by hand.
	const tick = time.Hour
	rapid.Check(t, func(t *rapid.T) {
		round++
		queue := fmt.Sprint("q", round)
		m := modelQueue{receivers: map[string]*modelReceiver{}}
		names := rapid.SampledFrom([]string{"a", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) {
				var messages []string
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					messages = append(messages, fmt.Sprint("m", len(m.messages)+len(messages)+1))
				}
				firsts, err := q.post(ctx, postRequest{postings: []posting{{queue, messages}}})
				if err != nil || firsts[0] != int64(len(m.messages)+1) {
					t.Fatalf("Post = %v, %v; want %d", firsts, err, len(m.messages)+1)
				}
				m.messages = append(m.messages, messages...)
			},
			"pull": func(t *rapid.T) {
				name := names.Draw(t, "name")
				start := rapid.SampledFrom([]int{0, 0, 0, -1, -2, 1, 2, 5}).Draw(t, "start")
				most, retries, timeout := rapid.IntRange(1, 3).Draw(t, "max"), rapid.IntRange(0, 3).Draw(t, "retry_num"), rapid.IntRange(1, 3).Draw(t, "fail_timeout")
				var results []result
				unknown := 0
				for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 2, rapid.ID).Draw(t, "results") {
					results = append(results, result{Queue: queue, Message: int64(n), Text: "ok"})
					if !m.answer(name, n) {
						unknown++
					}
				}
				got, err := q.pull(ctx, name, broughtResults{results: results}, []wanted{{queue, int64(start), most, retries, time.Duration(timeout) * tick}}, 0)
				if unknown > 0 {
					var is *unknownResultsError
					if !errors.As(err, &is) || is.Unknown != unknown {
						t.Fatalf("Pull = %v, %v; want %d unknown results", got, err, unknown)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var list, want []string
				for _, message := range got[0] {
					list = append(list, fmt.Sprint(message.ID, message.Message))
				}
				for _, n := range m.pull(name, start, most, retries, timeout) {
					want = append(want, fmt.Sprint(n, m.messages[n-1]))
				}
				if fmt.Sprint(list) != fmt.Sprint(want) {
					t.Fatalf("pull = %q, want %q", list, want)
				}
			},
			"answer": func(t *rapid.T) {
				name, n := names.Draw(t, "name"), rapid.IntRange(1, 6).Draw(t, "message")
				saved, err := q.saveResults(ctx, name, []result{{Queue: queue, Message: int64(n), Text: "ok"}})
				if given := m.answer(name, n); err != nil || (saved == 1) != given {
					t.Fatalf("SaveResults = %d, %v; want it saved: %t", saved, err, given)
				}
			},
			"wait": func(t *rapid.T) {
				must.Get(db.Exec(ctx, `UPDATE topic_deliveries SET updated_at = updated_at - $1::interval
					WHERE receiver_id IN (SELECT id FROM topic_receivers WHERE topic = $2)`, tick, queue))(t)
				for _, r := range m.receivers {
					for _, row := range r.rows {
						row.age++
					}
				}
			},
			"": func(t *rapid.T) {
				var got string
				must.Do(t, db.QueryRow(ctx, `SELECT coalesce(string_agg(concat_ws(' ', receiver, message, status, fail_count), ', ' ORDER BY receiver, message), '')
					FROM deliveries WHERE queue = $1`, queue).Scan(&got))
				var want []string
				for _, name := range []string{"a", "b"} {
					for n := 1; n <= len(m.messages); n++ {
						if row := m.receiver(name).rows[n]; row != nil {
							want = append(want, fmt.Sprint(name, " ", n, " ", row.status, " ", row.fails))
						}
					}
				}
				if got != strings.Join(want, ", ") {
					t.Fatalf("rows are %q, want %q", got, strings.Join(want, ", "))
				}
			},
		})
	})
}
