package claim_test

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// cost is what an item adds to its institution's virtual time: its bytes, and a
// mebibyte for the work that any item makes.
func cost(size int64) int64 { return size + mib }

// arrival is an item in the simulation of one band that one server works on, one
// item at a time, at a byte of cost a tick.
type arrival struct {
	id, institution, size int64
	servedBefore          int64 // bytes of cost that were served before it came
	ownAhead              int64 // bytes of cost that its institution had waiting before it
	inHand                int64 // bytes of cost of the item that was being served when it came
}

// However institutions flood the queue, no item waits for more than its bound:
// its own institution's bytes ahead of it, as many of each other institution, one
// item of each, and the item that is being served. (Goyal, Vin, Cheng: Start-time Fair
// Queueing, 1996, Theorem 4, with one server and equal shares.)
func TestWaitIsBoundedWhateverArrives(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		SELECT 'I' || i, 'i' || i || '.edu', 'r' || i, 's' || i FROM generate_series(1, 3) i`)
	longest := 0.0
	rapid.Check(t, func(rt *rapid.T) {
		testenv.Scene(t, q.db, `TRUNCATE work_items, work_item_attempts, work_item_audit, topic_messages, retired_copies, uploads_in_work, institution_virtual_times`)
		q.exec(`UPDATE size_bands SET virtual_time = 0`)
		e, err := claim.New(context.Background(), q.db, claim.DefaultOptions()) // without cursors and virtual times of the last check
		if err != nil {
			rt.Fatal(err)
		}
		defer e.Close()
		s := &bandSim{rt: rt, q: q, e: e, waiting: map[int64]arrival{}}
		for range rapid.IntRange(3, 15).Draw(rt, "steps") {
			// One floods with large items, one with small ones, the others come as they like.
			for institution := range int64(4) {
				for range rapid.IntRange(0, []int{4, 6, 1, 1}[institution]).Draw(rt, "arrivals") {
					s.arrive(institution+1, rapid.Int64Range(0, []int64{60 * mib, mib, 60 * mib, 1000}[institution]).Draw(rt, "size"))
				}
			}
			for range rapid.IntRange(1, 3).Draw(rt, "served") {
				longest = max(longest, s.serve())
			}
		}
		for len(s.waiting) > 0 {
			longest = max(longest, s.serve())
		}
	})
	t.Logf("the longest wait was %.0f %% of its bound", 100*longest)
}

type bandSim struct {
	rt      *rapid.T
	q       *queue
	e       *claim.Engine
	served  int64
	last    int64 // cost of the item that was served last
	waiting map[int64]arrival
}

func (s *bandSim) arrive(institution, size int64) {
	a := arrival{institution: institution, size: size, servedBefore: s.served, inHand: s.last}
	for _, w := range s.waiting {
		if w.institution == institution {
			a.ownAhead += cost(w.size)
		}
	}
	a.id = value[int64](s.q, `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		VALUES ($1, 'Ingest', 'Receive', $2, 'receiving', repeat('e', 32), $3, now()) RETURNING id`,
		institution, fmt.Sprintf("bag-%d.tar", bags.Add(1)), size)
	s.waiting[a.id] = a
}

// serve claims the next item, checks that its wait was within its bound, and
// returns what part of the bound it was.
func (s *bandSim) serve() float64 {
	if len(s.waiting) == 0 {
		s.last = 0
		return 0
	}
	h := s.q.claimOne(s.e, "Receive")
	a := s.waiting[h.Item.ID]
	delete(s.waiting, a.id)
	const others, largest = 3, 60*mib + mib
	waited, bound := s.served-a.servedBefore, a.ownAhead+others*(a.ownAhead+largest)+a.inHand
	if waited > bound {
		s.rt.Fatalf("item %d of institution %d waited for %d bytes, more than %d: %+v", a.id, a.institution, waited, bound, a)
	}
	s.served += cost(a.size)
	s.last = cost(a.size)
	must.Do(s.rt, s.e.RecordServed(context.Background()))
	s.q.settle(h, claim.Done{Next: "Validate"}, nil)
	return float64(waited) / float64(bound)
}

// An institution that comes seldom is served next, however much another has
// queued before it, and two that flood share by bytes, not by items.
func TestInstitutionsShareByBytes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		SELECT 'I' || i, 'i' || i || '.edu', 'r' || i, 's' || i FROM generate_series(2, 3) i`)
	put := func(institution int, n int, size int64) {
		q.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT $1::bigint, 'Ingest', 'Receive', 'bag-' || $1::bigint || '-' || n || '-' || $3::bigint || '.tar', 'receiving', repeat('e', 32), $3, now()
			FROM generate_series(1, $2::int) n`, institution, n, size)
	}
	e := q.engine()
	claimed := func(n int) map[int64]int {
		of := map[int64]int{}
		for range n {
			h := q.claimOne(e, "Receive")
			of[h.Item.InstitutionID]++
			must.Do(t, e.RecordServed(context.Background()))
		}
		return of
	}
	put(1, 200, 3*mib) // costs four mebibytes each
	claimed(50)
	put(2, 200, mib) // costs two
	of := claimed(60)
	if of[1] < 18 || of[1] > 22 {
		t.Errorf("of 60 items %d were the larger ones, want a third", of[1])
	}
	put(3, 1, 60*mib)
	if of := claimed(3); of[3] != 1 {
		t.Errorf("the institution that came last was not among the next three: %v", of)
	}
}

// Within an institution, and where there is only one, the order is that of
// arrival.
func TestOneInstitutionsItemsGoInTheirOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var want, got []int64
	for _, size := range []int64{5 * mib, 1, 60 * mib, 7, mib} {
		want = append(want, q.put("Receive", size))
	}
	for e := q.engine(); len(got) < len(want); {
		got = append(got, q.claimOne(e, "Receive").Item.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// What overtakes its institution's queue gets the virtual time that is being served, so
// that later items need not wait for all that it has overtaken.
func TestOvertakingMovesNoStartTimes(t *testing.T) {
	t.Parallel()
	const flood = 20
	for name, overtake := range map[string][]string{
		"by a function":    {`SELECT set_priority($1, -5)`},
		"by hand":          {`UPDATE work_items SET priority = -5 WHERE id = $1`},
		"and is requeued":  {`SELECT set_priority($1, -5)`, `UPDATE work_items SET status = 'Suspended' WHERE id = $1`, `SELECT requeue($1)`},
		"when it comes in": {`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, `UPDATE work_items SET status = 'Pending', priority = -5 WHERE id = $1`},
		"and goes back":    {`SELECT set_priority($1, 5)`, `SELECT set_priority($1, 0)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			var last int64
			for range flood {
				last = q.put("Receive", 60*mib)
			}
			q.exec(`UPDATE size_bands SET virtual_time = 7`)
			if start := value[int64](q, `SELECT virtual_start FROM work_items WHERE id = $1`, last); start < (flood-2)*60*mib {
				t.Fatalf("the last virtual start time of a flood is %d", start)
			}
			for _, sql := range overtake {
				q.exec(sql, last)
			}
			e := q.engine()
			claimed := map[int64]bool{}
			for range 2 { // the first of the flood has an earlier virtual start time than one that was put back
				claimed[q.claimOne(e, "Receive").Item.ID] = true
			}
			must.Do(t, e.RecordServed(context.Background()))
			if start := value[int64](q, `SELECT virtual_time FROM size_bands WHERE band = 0`); !claimed[last] || start > 61*mib {
				t.Errorf("the item is claimed: %v, and then the virtual time %d is served; want at most that of the second item", claimed[last], start)
			}
		})
	}
}

// What came behind a flood of better priority is claimed too, once it is overdue.
func TestOverduePriorityGetsEverySecondClaim(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var low []int64
	for range 5 {
		low = append(low, q.put("Receive", 1))
	}
	q.exec(`UPDATE work_items SET priority = 50, run_at = now() - interval '2 hours'`)
	for range 30 {
		q.put("Receive", 1)
	}
	e := q.engine()
	if first := q.claimOne(e, "Receive").Item.ID; slices.Contains(low, first) {
		t.Fatal("the worse priority was claimed before anyone found it overdue")
	}
	must.Do(t, e.FindOverdue(context.Background()))
	var got []int64
	for range 10 {
		if id := q.claimOne(e, "Receive").Item.ID; slices.Contains(low, id) {
			got = append(got, id)
		}
	}
	if !slices.Equal(got, low) {
		t.Errorf("of ten claims %v were of the overdue priority, want half of them, in their order: %v", got, low)
	}
}

// A claim that starts at an overdue priority fills its slots with what lies before that: who
// gets less than he asked for may take it that there is no more.
func TestClaimAtAnOverduePriorityIsFilled(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, size := range []int64{1, 100 * mib} {
		for range 2 {
			q.put("Receive", size)
		}
	}
	q.exec(`UPDATE work_items SET priority = 50, run_at = now() - interval '2 hours'`)
	for range 20 {
		q.put("Receive", 1)
	}
	e := q.engine()
	q.claimOne(e, "Receive") // a partition is looked at for overdue priorities once it has been claimed from
	must.Do(t, e.FindOverdue(context.Background()))
	for i, want := range []int{8, 8, 7, 0, 0} {
		items, err := e.Claim(t.Context(), at("Receive", 8), 8)
		if err != nil || len(items) != want {
			t.Errorf("claim %d of 8 got %d items, %v; want %d", i+1, len(items), err, want)
		}
	}
}

// A bag of 5 TB holds a slot for days. A thousand small ones of another
// institution do not notice.
func TestSmallBagsDoNotWaitForAHugeOne(t *testing.T) {
	t.Parallel()
	alone, beside := drainTime(t, false), drainTime(t, true)
	if float64(beside) > 1.1*float64(alone) {
		t.Errorf("p95 of the small bags is %d beside a bag of 5 TB, and %d alone", beside, alone)
	}
}

// drainTime lets a small and a large pool work off a thousand small bags in
// virtual time, an item taking a tick for each MiB, and returns the 95th
// percentile of when they were through.
func drainTime(t *testing.T, huge bool) int64 {
	t.Helper()
	const gib = 1 << 30
	q := newQueue(t)
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Other', 'other.edu', 'r2', 's2')`)
	if huge {
		q.put("Receive", 5<<40)
	}
	q.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT 2, 'Ingest', 'Receive', 'small-' || n || '.tar', 'receiving', repeat('e', 32), (1 + n % 40) * 1048576, now()
		FROM generate_series(1, 1000) n`)
	e := q.engine()
	pools := []*poolSim{{max: gib, free: 8}, {min: gib, free: 2}}
	var running finishes
	var through []int64
	for now := int64(0); ; {
		for _, p := range pools {
			items := must.Get(e.Claim(context.Background(), claim.Filter{
				Stages: at("Receive", p.free).Stages, MinSize: p.min, MaxSize: p.max,
			}, p.free))(t)
			p.free -= len(items)
			for _, item := range items {
				heap.Push(&running, finish{now + item.Size/mib, e.Hold(context.Background(), item), p})
			}
		}
		if len(through) == 1000 || running.Len() == 0 {
			break
		}
		// All that end at this moment end together.
		for first := running[0].at; running.Len() > 0 && running[0].at == first; {
			f := heap.Pop(&running).(finish) //nolint:forcetypeassert // nothing else is in it
			now = f.at
			f.pool.free++
			q.settle(f.hold, claim.Done{Next: "Validate"}, nil)
			if f.hold.Item.Size < gib {
				through = append(through, now)
			}
		}
	}
	if len(through) != 1000 {
		t.Fatalf("%d small bags are through, want 1000", len(through))
	}
	slices.Sort(through)
	return through[950]
}

type poolSim struct {
	min, max int64
	free     int
}

// finish is an item that will be done with a stage.
type finish struct {
	at   int64
	hold *claim.Hold
	pool *poolSim
}

// finishes is a heap, the earliest first.
type finishes []finish

func (f finishes) Len() int           { return len(f) }
func (f finishes) Less(i, j int) bool { return cmp.Less(f[i].at, f[j].at) }
func (f finishes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *finishes) Push(x any)        { *f = append(*f, x.(finish)) } //nolint:forcetypeassert // container/heap's interface
func (f *finishes) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// The bands of a pool come first in turn, of stages with a cap as of others, which the same call
// claims: if both took their turns from one number, a full band would keep the other from all slots.
func TestBandsTakeTurnsBesideACap(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET cap = 100 WHERE stage = 'Record'`)
	e := q.engine()
	const turns = 6
	for range turns {
		for _, stage := range []registry.Stage{"Receive", "Record"} {
			q.put(stage, mib)
			q.put(stage, 100<<30)
		}
	}
	got := map[string]int{}
	for range turns {
		items := must.Get(e.Claim(t.Context(), claim.Filter{Stages: []claim.Want{{Stage: "Receive", Most: 1}, {Stage: "Record", Most: 1}}}, 2))(t)
		for _, item := range items {
			got[fmt.Sprint(item.Stage, " large ", item.Size > mib)]++
		}
	}
	for _, kind := range []string{"Receive large true", "Receive large false", "Record large true", "Record large false"} {
		if got[kind] < turns/2-1 {
			t.Errorf("%d claims got %v", turns, got)
		}
	}
}
