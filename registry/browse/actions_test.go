package browse_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

type actionRow struct {
	ID, Of, By             int64
	At                     time.Time
	Actor, Operation       string
	Type, Subject, Outcome string
}

// newActions makes many actions in three months; one institution has few of them.
func newActions(t *testing.T) (*archive, []actionRow) {
	t.Helper()
	a := newArchive(t)
	must.Get(a.db.Exec(t.Context(), `
		INSERT INTO actions (at, actor, user_id, operation, subject_type, subject_id, institution_id, actor_institution_id, outcome)
		SELECT timestamptz '2026-01-01' + (n % 1000) * interval '2 hours', 'p' || n % 50 || '@test.edu', n % 50,
			(ARRAY['items.cancel', 'users.add', 'stages.set'])[1 + n % 3], (ARRAY['item', 'user'])[1 + n % 2], (n % 300)::text,
			CASE WHEN n % 200 = 7 THEN $2::bigint WHEN n % 5 = 0 THEN $1 END, CASE WHEN n % 200 = 9 THEN $2 WHEN n % 7 = 0 THEN $1 END,
			CASE WHEN n % 11 = 0 THEN 'refused' ELSE 'done' END
		FROM generate_series(1, 20000) n`, a.ins[0].ID, a.ins[1].ID))(t)
	must.Get(a.db.Exec(t.Context(), `ANALYZE actions`))(t)
	return a, rows[actionRow](a, `SELECT id, coalesce(institution_id, 0) AS of, coalesce(actor_institution_id, 0) AS by, at, actor, operation,
		subject_type AS type, subject_id AS subject, outcome FROM actions ORDER BY at DESC, id DESC`)
}

// Whatever is asked, and on whichever page, a scope has its own actions, each once and in
// their order.
func TestActionsOfAScope(t *testing.T) {
	t.Parallel()
	a, all := newActions(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var f browse.ActionFilter
		scope := pick(r, []registry.Scope{registry.Only(a.ins[0]), registry.Only(a.ins[1]), registry.Everything(), {}})
		like := pick(r, all)
		some(r, 3, &f.Institution, pick(r, a.ins).Identifier)
		some(r, 3, &f.Actor, like.Actor)
		if r.IntN(3) == 0 {
			f.SubjectType = like.Type
			some(r, 2, &f.SubjectID, like.Subject)
		}
		some(r, 3, &f.Operation, like.Operation)
		some(r, 5, &f.Outcome, like.Outcome)
		some(r, 4, &f.Since, like.At)
		some(r, 4, &f.Before, like.At.AddDate(0, 0, 20))
		some(r, 4, &f.Queue, true)
		var want []int64
		for _, x := range all {
			if x.meets(a, f, scope) {
				want = append(want, x.ID)
			}
		}
		if err := walk(browse.In(a.Registry, scope), f, want, 1+r.IntN(300)); err != nil {
			t.Errorf("%+v in %+v: %v", f, scope, err)
		}
	}
}

func (x actionRow) meets(a *archive, f browse.ActionFilter, s registry.Scope) bool {
	of := func(id int64) bool { return x.Of == id || x.By == id }
	own, _ := s.Institution()
	for _, in := range a.ins {
		if f.Institution == in.Identifier && !of(in.ID) {
			return false
		}
		if own == in.ID && f.Institution != "" && f.Institution != in.Identifier {
			return false
		}
	}
	return !s.None() && or(!s.All(), own != 0 && of(own)) && or(f.Actor != "", x.Actor == f.Actor) && or(f.SubjectType != "", x.Type == f.SubjectType) &&
		or(f.SubjectID != "", x.Subject == f.SubjectID) && or(f.Operation != "", x.Operation == f.Operation) && or(f.Outcome != "", x.Outcome == f.Outcome) &&
		between(x.At, f.Since, f.Before) && or(f.Queue, x.Operation != "users.add")
}

// walk reads up to ten pages.
func walk(b browse.Records, f browse.ActionFilter, want []int64, limit int) error {
	var after browse.Key
	for n := range 10 {
		list, next, err := b.Actions(ctx, f, browse.Page{Limit: limit, After: after})
		if err != nil {
			return err
		}
		expected := want[min(n*limit, len(want)):min((n+1)*limit, len(want))]
		if got := ids(list, func(x record.ListedAction) int64 { return x.ID }); !slices.Equal(got, expected) {
			return fmt.Errorf("page %d of %d rows has %v, want %v", n, limit, got, expected)
		}
		if (next == browse.Key{}) != (len(want) <= (n+1)*limit) {
			return fmt.Errorf("page %d: more rows follow: %v, of %d", n, next, len(want))
		}
		if after = next; after == (browse.Key{}) {
			break
		}
	}
	n, exact, err := b.Count(ctx, f)
	if err != nil || exact && n != int64(len(want)) || !exact && n != browse.MostCounted {
		return fmt.Errorf("%d are counted (%v), want %d, %w", n, exact, len(want), err)
	}
	return nil
}

// Each leading filter of actions has its index in every partition.
func TestActionsHaveTheirIndexes(t *testing.T) {
	t.Parallel()
	a, _ := newActions(t)
	own := registry.Only(a.ins[1])
	for _, tc := range []struct {
		filter browse.ActionFilter
		scope  registry.Scope
		want   string
	}{
		{browse.ActionFilter{}, registry.Everything(), "_at_id_idx"},
		{browse.ActionFilter{}, own, "_institution_id_at_id_idx _actor_institution_id_at_id_idx"},
		{browse.ActionFilter{Actor: "p7@test.edu"}, registry.Everything(), "_actor_at_id_idx"},
		{browse.ActionFilter{SubjectType: "user", SubjectID: "7"}, registry.Everything(), "_subject_type_subject_id_at_id_idx"},
		{browse.ActionFilter{Institution: "test.edu.org"}, registry.Everything(), "_institution_id_at_id_idx _actor_institution_id_at_id_idx"},
		{browse.ActionFilter{Actor: "p7@test.edu"}, own, "_institution_id_at_id_idx _actor_institution_id_at_id_idx"},
	} {
		for _, after := range []browse.Key{{}, {ID: 500, At: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}} {
			plan := a.plan(browse.Statement, tc.filter, tc.scope, after)
			for _, index := range strings.Fields(tc.want) {
				if !regexp.MustCompile(`(using|on) actions_(rest|\d{6})` + index + `\b`).MatchString(plan) {
					t.Errorf("%+v in %+v after %+v does not use %s:\n%s", tc.filter, tc.scope, after, index, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan on actions") {
				t.Errorf("%+v in %+v reads the table:\n%s", tc.filter, tc.scope, plan)
			}
		}
	}
}
