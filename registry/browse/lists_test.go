package browse_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

var ctx = context.Background() // of lists that are read in goroutines, which end before the test does

// questions makes random ones for all lists.
func (o *oracle) questions() []func(*rand.Rand) question {
	return []func(*rand.Rand) question{
		o.itemQuestion, o.itemQuestion, o.objectQuestion, o.fileQuestion, o.checksumQuestion, o.copyQuestion, o.eventQuestion,
		o.eventQuestion, o.deletionQuestion, o.alertQuestion,
	}
}

// The lists of two institutions; each is asked about everything.
func TestLists(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	o := newOracle(a)
	for name, test := range map[string]func(*testing.T, *archive, *oracle){
		"random lists find what is in the scope":     testRandomLists,
		"a walk over all pages has each row once":    testWalks,
		"lists with what they refer to":              testFlat,
		"a list that takes too long to count":        testUncounted,
		"slices that cannot be are refused":          testSlices,
		"the zero scope has nothing":                 testZeroScope,
		"items that are named":                       testItemsOf,
		"what others have is what does not exist":    testLookUps,
		"objects can be read upwards":                testUpwards,
		"lists that would read a table are refused":  testTooBroad,
		"statements read only, and not for too long": testLimits,
		"a pooler's sessions keep no setting":        testPooled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, a, o)
		})
	}
}

// Whatever is asked, each scope sees its own rows, all of them and in their order, and
// nothing of others: neither a row, nor a key, nor a count.
func testRandomLists(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	scopes := []registry.Scope{registry.Only(a.ins[0]), registry.Only(a.ins[1]), registry.Everything(), {}}
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 7))
			for range 2500 {
				q := pick(r, o.questions())(r)
				scope := pick(r, scopes)
				if err := ask(r, browse.In(a.Registry, scope), scope, q); err != nil {
					t.Errorf("%+v in %+v: %v", q.filter, scope, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// ask reads a page of a question from any row of the scope on, and at times counts.
func ask(r *rand.Rand, b browse.Records, scope registry.Scope, q question) error {
	own := slices.DeleteFunc(q.places, func(p place) bool { return !scope.All() && !scope.Has(p.institution) })
	p := browse.Page{Limit: 1 + r.IntN(20)}
	if r.IntN(20) == 0 {
		p.Limit = browse.MostRows
	}
	from := 0
	if len(own) > 0 && r.IntN(2) == 0 {
		from = 1 + r.IntN(len(own))
		p.After = own[from-1].key
	}
	want, next := own[from:], browse.Key{}
	if len(want) > p.Limit {
		want = want[:p.Limit]
		next = want[p.Limit-1].key
	}
	got, key, err := q.list(b, p)
	if err != nil {
		return err
	}
	if !slices.Equal(got, ids(want, func(p place) int64 { return p.id })) {
		return fmt.Errorf("page %+v has %v, want %v", p, got, ids(want, func(p place) int64 { return p.id }))
	}
	if key.ID != next.ID || key.Of != next.Of || key.Identifier != next.Identifier || !key.At.Equal(next.At) {
		return fmt.Errorf("page %+v ends at %+v, want %+v", p, key, next)
	}
	if r.IntN(10) > 0 {
		return nil
	}
	n, exact, err := b.Count(ctx, q.filter)
	if err != nil || n != int64(len(own)) || !exact {
		return fmt.Errorf("counted %d, exactly: %v, want %d; %w", n, exact, len(own), err)
	}
	return nil
}

// A walk from page to page has each row once.
func testWalks(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		q := o.questions()[n%len(o.questions())](r)
		var walked []int64
		for p := (browse.Page{Limit: min(1+len(q.places)/7, browse.MostRows)}); ; {
			page, next, err := q.list(a.everything(), p)
			if err != nil {
				t.Fatalf("%+v: %v", q.filter, err)
			}
			walked = append(walked, page...)
			if next == (browse.Key{}) {
				break
			}
			p.After = next
		}
		if want := ids(q.places, func(p place) int64 { return p.id }); !slices.Equal(walked, want) {
			t.Errorf("%+v: %v, want %v", q.filter, walked, want)
		}
	}
}
