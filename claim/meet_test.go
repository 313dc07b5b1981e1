package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// slowToClaim notes what each transaction takes, and answers the first when it is told to.
type slowToClaim struct {
	store

	mu     sync.Mutex
	of     [][]take
	begun  chan struct{}
	answer chan struct{}
}

func (s *slowToClaim) rules(context.Context) (rules, error) {
	return rules{bands: []stages.Band{{}}}, nil
}

func (s *slowToClaim) claim(_ context.Context, takes []take) ([][]Item, error) {
	s.mu.Lock()
	s.of = append(s.of, takes)
	first := len(s.of) == 1
	s.mu.Unlock()
	if first {
		close(s.begun)
		<-s.answer
	}
	return make([][]Item, len(takes)), nil
}

// Calls that come while a claim runs share the next transaction, whatever stages they prefer: one
// statement for those that take the same, one more for each other filter, kind and claimant.
func TestClaimsThatMeetShareATransaction(t *testing.T) {
	t.Parallel()
	s := &slowToClaim{begun: make(chan struct{}), answer: make(chan struct{})}
	e := must.Get(newEngine(t.Context(), on(s), process.Kernel{}, Options{Poll: 1, Log: slog.New(slog.DiscardHandler)}))(t)
	order := []registry.Stage{"Receive", "Validate", "Store"}
	wanting := func(first, n int) (wants []Want) {
		for i := range order {
			wants = append(wants, Want{order[(first+i)%len(order)], n})
		}
		return wants
	}
	var calls sync.WaitGroup
	ask := func(f Filter, n int, who Claimant) {
		calls.Go(func() { must.Get(e.ClaimFor(context.Background(), f, n, who))(t) })
	}
	ask(Filter{Stages: wanting(0, 1)}, 1, Claimant{})
	<-s.begun
	const each = 9
	for i := range each {
		ask(Filter{Stages: wanting(i, 2)}, 2, Claimant{})
		ask(Filter{Stages: wanting(i, 1), MinSize: 1 << 30}, 1, Claimant{})
		ask(Filter{Stages: []Want{{"Requested", 1}}, Action: registry.Delete}, 1, Claimant{})
		ask(Filter{Stages: wanting(i, 1)}, 1, Claimant{Worker: "anna"})
	}
	testenv.Eventually(t, "all calls to wait", func() bool { return e.claims.free.Waiting() == 4*each })
	close(s.answer)
	calls.Wait()
	if len(s.of) != 2 {
		t.Fatalf("%d transactions, want one for the first call and one for the others", len(s.of))
	}
	var got []string
	for _, p := range s.of[1] {
		got = append(got, fmt.Sprintf("%s from %d bytes for %q: %d of %d stages", p.filter.action(), p.filter.MinSize, p.who.worker, p.n, len(p.scans)))
	}
	slices.Sort(got)
	want := []string{
		`Delete from 0 bytes for "` + e.Worker() + `": 9 of 1 stages`,
		`Ingest from 0 bytes for "anna": 9 of 3 stages`,
		`Ingest from 0 bytes for "` + e.Worker() + `": 18 of 3 stages`,
		`Ingest from 1073741824 bytes for "` + e.Worker() + `": 9 of 3 stages`,
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the calls were claims of\n%q, want\n%q", got, want)
	}
}

// Claims that end in different ways end in one transaction. One that is lost harms no other.
func TestMixedEndsAreOneTransaction(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	must.Get(db.Exec(t.Context(), `
		WITH i AS (INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore') RETURNING id)
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Cleanup', n || '.tar', 'receiving', 'e', 1, now() FROM i, generate_series(1, 6) n`))(t)
	e := must.Get(New(t.Context(), db, DefaultOptions()))(t)
	t.Cleanup(e.Close)
	items := must.Get(e.Claim(t.Context(), Filter{Stages: []Want{{"Cleanup", 6}}}, 6))(t)
	ends := make([]Ending, len(items))
	for i, item := range items {
		ends[i] = Ending{Item: item, Result: []error{
			nil, Release("stopping"), errors.New("connection reset"), Fatal("bad-bag", "no manifest"), SendBack("Validate", "results are gone"), nil,
		}[i]}
	}
	ends[5].Item.Token++ // it is another's
	for i, err := range e.Settle(t.Context(), ends) {
		if errors.Is(err, ErrLost) != (i == 5) || err != nil && i != 5 {
			t.Errorf("end %d: %v", i, err)
		}
	}
	var ended []string
	var transactions int
	must.Do(t, db.QueryRow(t.Context(), `
		SELECT array_agg(w.status || ' at ' || w.stage || ', ' || a.outcome ORDER BY w.id), count(DISTINCT w.xmin::text)
		FROM work_items w JOIN work_item_attempts a ON a.work_item_id = w.id WHERE a.outcome IS NOT NULL`).Scan(&ended, &transactions))
	want := []string{"Success at Cleanup, done", "Pending at Cleanup, released", "Pending at Cleanup, transient", "Failed at Cleanup, fatal", "Pending at Validate, sent back"}
	if !slices.Equal(ended, want) || transactions != 1 {
		t.Errorf("the claims ended as %q in %d transactions, want %q in one", ended, transactions, want)
	}
}

// Claims of one transaction get what is theirs. Where the database refuses what one asks for, the
// others get theirs all the same.
func TestClaimsOfOneTransaction(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	must.Get(db.Exec(t.Context(), `
		WITH i AS (INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore') RETURNING id)
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Receive', n || '.tar', 'receiving', 'e', n::bigint << 30, now() FROM i, generate_series(0, 3) n`))(t)
	e := must.Get(New(t.Context(), db, DefaultOptions()))(t)
	t.Cleanup(e.Close)
	of := func(f Filter, n int, who string) request {
		f.Stages = []Want{{"Receive", n}}
		r := request{of: e.claims.claimer(f), wants: f.Stages, n: n}
		if who != "" {
			r.as = Claimant{Worker: who, Node: "attic", PID: 7}
		}
		return r
	}
	answers := must.Get(e.claims.serve(t.Context(), []request{
		of(Filter{MinSize: 1, MaxSize: 1<<30 + 1}, 5, ""),
		of(Filter{Institutions: []string{"\x00"}}, 5, ""), // no text in a database
		of(Filter{MinSize: 2 << 30}, 1, "anna"),
		of(Filter{}, 1, "berta"),
		of(Filter{}, 5, ""),
	}))(t)
	for i, want := range []struct {
		names  []string
		worker string
		fails  bool
	}{
		{[]string{"1.tar"}, e.Worker(), false},
		{nil, "", true},
		{[]string{"2.tar"}, "anna", false},
		{[]string{"0.tar"}, "berta", false},
		{[]string{"3.tar"}, e.Worker(), false},
	} {
		var names []string
		for _, item := range answers[i].items {
			names = append(names, item.Name)
			var worker string
			must.Do(t, db.QueryRow(t.Context(), `SELECT worker FROM work_items WHERE id = $1`, item.ID).Scan(&worker))
			if worker != want.worker {
				t.Errorf("claim %d: item %s is %s's, want %s's", i, item.Name, worker, want.worker)
			}
		}
		if !slices.Equal(names, want.names) || (answers[i].err != nil) != want.fails {
			t.Errorf("claim %d got %q, %v; want %q", i, names, answers[i].err, want.names)
		}
	}
}
