package pull

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A start beyond the last message waits for that message, and loses none before it.
func TestStartBeyondTheEndMovesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b")
	for _, start := range []string{"3", "1000", "9223372036854775807"} {
		s.wants("start "+start, s.pull("r", "q", `"start": `+start), "nothing")
	}
	s.wants("from the first", s.pull("r", "q", ""), "q: 1 a")
	s.wants("beyond the end again", s.pull("r", "q", `"start": 99`), "nothing")
	waiting := make(chan string, 1)
	go func() {
		waiting <- given(s.ask("/pull", `{"receiver": "r", "timeout": 60, "queues": {"q": {"start": 4}}}`))
	}()
	testenv.Eventually(t, "it waits", func() bool { return s.api.Waiting() == 1 })
	s.post("q", 3, "c")
	s.wants("those before it belong to another", s.pull("other", "q", `"start": 3`), "q: 3 c")
	s.post("q", 4, "d")
	s.wants("that it waited for", <-waiting, "q: 4 d")

	testenv.PutMessages(t, s.db, "fixity_check", "7")
	s.readable()
	s.wants("a topic, beyond the end", s.pull("r", "fixity_check", `"start": 1000000`), "nothing")
	s.wants("a topic", s.pull("r", "fixity_check", ""), "fixity_check: 1 7")
}

// A call that waits for the newest message is given the last of those that come
// together, and one that waits behind all the first.
func TestWaitingForTheNewest(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	var done atomic.Int64 // calls that have passed over what was there
	b := s.api.broker
	b.fetches = batch.New(2, mostTogether, func(ctx context.Context, calls []fetch) ([]fetched, error) {
		got, err := b.fetchAll(ctx, calls)
		done.Add(int64(len(calls)))
		return got, err
	})
	for _, before := range []int64{0, 2} { // of a queue that there is not yet, and of one that there is
		for start, want := range map[int]int64{-1: before + 2, -2: before + 1} {
			queue, receiver := fmt.Sprintf("q%d%d", before, start), fmt.Sprint("r", start)
			if before > 0 {
				s.post(queue, 1, "old", "older")
				s.wants("the newest", s.pull(receiver, queue, `"start": -1`), queue+": 2 older")
			}
			waiting, first := make(chan string, 1), done.Load()+1
			go func() {
				waiting <- given(s.ask("/pull", fmt.Sprintf(`{"receiver": %q, "timeout": 60, "queues": {%q: {"start": %d}}}`, receiver, queue, start)))
			}()
			testenv.Eventually(t, "it waits", func() bool { return s.api.Waiting() == 1 && done.Load() >= first })
			s.post(queue, before+1, "m", "m")
			s.wants(fmt.Sprint("start ", start, " behind ", before), <-waiting, fmt.Sprintf("%s: %d m", queue, want))
		}
	}
}

// Pulls that bring nothing leave nothing behind, whatever they name.
func TestNothingIsWrittenBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	for _, start := range []string{"-2", "-1", "0", "1", "5"} {
		for _, queue := range []string{"nowhere", "fixity_check"} {
			s.wants(queue, s.pull("r"+start, queue, `"start": `+start), "nothing")
		}
	}
	s.post("q", 1, "a")
	s.wants("beyond the end", s.pull("late", "q", `"start": 2`), "nothing")
	testenv.PutMessages(t, s.db, "ingest09_cleanup", "1")
	s.readable()
	s.wants("a topic with nothing in it", s.pull("r", "fixity_check", ""), "nothing")
	var rows int
	if err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM topic_receivers`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d receivers are on record, %v; want none", rows, err)
	}
	s.wants("one that passes over what there is", s.pull("new", "q", `"start": -2`), "nothing")
	s.wants("it has", s.pull("new", "q", ""), "nothing")
}

// A result may be anything but an object or a list, and one that cannot be saved
// loses none of the others.
func TestResultsOfAnyKind(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b", "c", "d", "e", "f", "g")
	s.wants("all", s.pull("r", "q", `"max": 6`), "q: 1 a, 2 b, 3 c, 4 d, 5 e, 6 f")
	status, answer := s.ask("/pull", `{"receiver": "r", "results": {"q": {"1": 5.50, "2": true, "3": null, "4": "text", "5": ["x"], "6": "\u0000", "x": "y"}, "_p": {"1": ""}, "p": 7}}`)
	want := `4 results are saved; these are not: results.q.5 is ["x"]; it must be a string, a number, true, false or null; ` +
		`results.q.6 contains the character U+0000, which cannot be stored; results.q has a key "x", which is not the id of a message; ` +
		`the queue name "_p" must be 1 to 255 letters, digits and . _ @ : / - and must not begin with _; results.p: 7 is not an object`
	if status != http.StatusBadRequest || refusal(t, answer) != want {
		t.Errorf("results = %d %s\nwant %s", status, answer, want)
	}
	var got string
	must.Do(t, s.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', message, status, coalesce(result, 'NULL')), ', ' ORDER BY message) FROM deliveries`).Scan(&got))
	s.wants("rows", got, "1 finished 5.50, 2 finished true, 3 finished NULL, 4 finished text, 5 processing NULL, 6 processing NULL")
	status, answer = s.ask("/pull", `{"receiver": "r", "timeout": 0, "results": {"q": {"5": false, "7": {}}}, "queues": {"q": {}}}`)
	s.wants("with a pull", fmt.Sprint(status, " ", refusal(t, answer)), `400 1 results are saved; these are not: results.q.7 is {}; it must be a string, a number, true, false or null`)
	s.wants("nothing was given to who did not hear of it", s.pull("r", "q", ""), "q: 7 g")
}
