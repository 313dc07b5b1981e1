package browse_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// flatIDs reads a slice of a filter's records with what they refer to.
func flatIDs(b browse.Records, f browse.Filter, s browse.Slice) (list []int64, p browse.Part[struct{}], err error) {
	switch f := f.(type) {
	case browse.ItemFilter:
		return onlyIDs(b.FlatItems(ctx, f, s))(func(x browse.FlatItem) int64 { return x.ID })
	case browse.ObjectFilter:
		return onlyIDs(b.FlatObjects(ctx, f, s))(func(x browse.FlatObject) int64 { return x.ID })
	case browse.FileFilter:
		return onlyIDs(b.FlatFiles(ctx, f, s))(func(x browse.FlatFile) int64 { return x.ID })
	case browse.ChecksumFilter:
		return onlyIDs(b.FlatChecksums(ctx, f, s))(func(x browse.FlatChecksum) int64 { return x.ID })
	case browse.EventFilter:
		return onlyIDs(b.FlatEvents(ctx, f, s))(func(x browse.FlatEvent) int64 { return x.ID })
	case browse.DeletionFilter:
		return onlyIDs(b.FlatDeletions(ctx, f, s))(func(x browse.FlatDeletion) int64 { return x.ID })
	case browse.AlertFilter:
		return onlyIDs(b.FlatAlerts(ctx, f, s))(func(x browse.FlatAlert) int64 { return x.ID })
	}
	return nil, p, errors.ErrUnsupported
}

func onlyIDs[T any](p browse.Part[T], err error) func(func(T) int64) ([]int64, browse.Part[struct{}], error) {
	return func(id func(T) int64) ([]int64, browse.Part[struct{}], error) {
		return ids(p.Rows, id), browse.Part[struct{}]{More: p.More, Next: p.Next, Count: p.Count, Exact: p.Exact, Sorted: p.Sorted}, err
	}
}

// A list with what its records refer to has the rows of the plain list, in its order or by
// their IDs, from any row or any key on, and counts them.
func testFlat(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	scopes := []registry.Scope{registry.Only(a.ins[0]), registry.Only(a.ins[1]), registry.Everything(), {}}
	for range 1500 {
		q := pick(r, o.questions())(r)
		if _, copies := q.filter.(browse.CopyFilter); copies {
			continue
		}
		scope := pick(r, scopes)
		if err := askFlat(r, browse.In(a.Registry, scope), scope, q); err != nil {
			t.Fatalf("%T%+v in %+v: %v", q.filter, q.filter, scope, err)
		}
	}
}

func askFlat(r *rand.Rand, b browse.Records, scope registry.Scope, q question) error {
	own := slices.DeleteFunc(slices.Clone(q.places), func(p place) bool { return !scope.All() && !scope.Has(p.institution) })
	s := browse.Slice{Limit: 1 + r.IntN(20), Count: 100_000}
	switch r.IntN(3) {
	case 0:
		s.Sort = []browse.Order{{Column: "id", Desc: r.IntN(2) == 0}}
		slices.SortFunc(own, func(a, b place) int {
			if s.Sort[0].Desc {
				a, b = b, a
			}
			return int(a.id - b.id)
		})
		s.Offset = r.IntN(len(own) + 2)
	case 1:
		s.Offset = r.IntN(len(own) + 2)
	default:
		if len(own) > 0 {
			s.Offset = 1 + r.IntN(len(own))
			s.After = own[s.Offset-1].key
		}
	}
	want := own[min(s.Offset, len(own)):]
	if s.After != (browse.Key{}) {
		s.Offset = 0
	}
	more := len(want) > s.Limit
	want = want[:min(s.Limit, len(want))]
	got, p, err := flatIDs(b, q.filter, s)
	if err != nil {
		return err
	}
	if !slices.Equal(got, ids(want, func(p place) int64 { return p.id })) || p.More != more || !p.Sorted || !p.Exact || p.Count != int64(len(own)) {
		return fmt.Errorf("%+v has %v and %+v, want %v of %d, more: %v", s, got, p, ids(want, func(p place) int64 { return p.id }), len(own), more)
	}
	if more && len(s.Sort) == 0 && p.Next.ID != want[len(want)-1].key.ID {
		return fmt.Errorf("%+v ends at %+v, want %+v", s, p.Next, want[len(want)-1].key)
	}
	return nil
}

// What a slice cannot be is refused, and so is a column that is not there.
func testSlices(t *testing.T, a *archive, _ *oracle) {
	t.Helper()
	for _, s := range []browse.Slice{
		{},
		{Limit: -1},
		{Limit: browse.MostRows + 1},
		{Limit: 1, Offset: -1},
		{Limit: 1, Offset: browse.MostSkipped + 1},
		{Limit: 1, Sort: []browse.Order{{Column: "id; --"}}},
		{Limit: 1, Sort: []browse.Order{{Column: ""}}},
	} {
		if _, err := a.everything().FlatItems(ctx, browse.ItemFilter{}, s); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	one, err := a.everything().FlatItems(ctx, browse.ItemFilter{}, browse.Slice{Limit: 1, Offset: browse.MostSkipped})
	if err != nil || one.More || len(one.Rows) > 0 {
		t.Errorf("%+v: %v", one, err)
	}
	n, exact, err := a.everything().CountTo(ctx, browse.ItemFilter{}, 10)
	if n != 10 || exact || err != nil {
		t.Errorf("counted %d, exactly: %v, %v", n, exact, err)
	}
}

// A list that cannot be counted in time is shown in its own order, and says so.
func testUncounted(t *testing.T, a *archive, _ *oracle) {
	t.Helper()
	slow := browse.Sleep{SQL: `SELECT w.* FROM all_work_items w, pg_sleep(CASE WHEN @n::integer > 1000 THEN 5 ELSE 0 END) WHERE w.id < 10 ORDER BY w.id DESC LIMIT @n`}
	p, err := slow.Items(ctx, a.everything(), browse.Slice{Limit: 3, Offset: 2, Count: 100_000, Sort: []browse.Order{{Column: "id"}}})
	if err != nil || len(p.Rows) != 3 || p.Rows[0].ID < p.Rows[2].ID || p.Sorted || p.Exact || p.Count != 6 || !p.More || p.Next.ID != p.Rows[2].ID {
		t.Errorf("%+v: %v", p, err)
	}
	slow.SQL = `SELECT w.* FROM all_work_items w, pg_sleep(5) LIMIT @n`
	if p, err := slow.Items(ctx, a.everything(), browse.Slice{Limit: 3}); !errors.Is(err, browse.ErrTooBroad) {
		t.Errorf("%+v: %v", p, err)
	}
}
