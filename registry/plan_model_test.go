package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
)

// However plans, workers and people cross each other: what a plan did it did once
// and noted, and what it takes back is exactly what it did.
func TestPlansKeepTheirWordWhateverHappens(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		a.scene(`TRUNCATE work_items, uploads_in_work, plans, plan_items, work_item_audit, institution_virtual_times RESTART IDENTITY CASCADE`)
		m := &planModel{a: a, seen: seen, made: map[planned]snapshot{}, done: map[planned]snapshot{}}
		for i := range modelItems {
			a.put(fmt.Sprint("bag", i), "e", "Store", rapid.SampledFrom([]string{"Pending", "Failed", "Suspended", "Started"}).Draw(rt, "status"))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if wrong := value[string](a, miscounted); wrong != "" {
					t.Fatalf("plans are miscounted: %s", wrong)
				}
			},
			"plan":  m.plan,
			"apply": m.apply,
			"undo":  m.undo,
			"work": func(t *rapid.T) {
				id, to := modelItem(t), rapid.SampledFrom([]string{"Pending", "Started"}).Draw(t, "to")
				a.bring(id, "Store", "Pending") // from one claim to the next it is Pending
				a.bring(id, "Store", to)
			},
			"prefer": func(t *rapid.T) {
				a.exec(`UPDATE work_items SET priority = $2 WHERE id = $1 AND status NOT IN ('Success', 'Cancelled')`, modelItem(t), rapid.IntRange(-2, 2).Draw(t, "priority"))
			},
		})
	})
	for _, must := range []string{"done", "changed", "refused", "undone", "not undone"} {
		if seen[must] == 0 {
			t.Errorf("no item was ever %s: %v", must, seen)
		}
	}
}

// miscounted are the plans whose counts are not those of their items.
const miscounted = `
SELECT coalesce(string_agg(format('%s: %s, not %s', p.id, p.counts, c.counts), '; '), '')
FROM plans p CROSS JOIN LATERAL (
	SELECT coalesce(jsonb_object_agg(i.state, i.n), '{}') AS counts
	FROM (SELECT state, count(*) AS n FROM plan_items WHERE plan_id = p.id GROUP BY state) i
) c
WHERE p.counts <> c.counts`

const modelItems = 4

func modelItem(t *rapid.T) int64 { return rapid.Int64Range(1, modelItems).Draw(t, "item") }

// planned names an item in a plan.
type planned struct{ plan, item int64 }

// snapshot is an item at one moment: its columns without what only moves on and
// without its priority, which only plans that set it touch.
type snapshot struct {
	row      string
	token    int64
	priority int
	after    int64 // its token when the plan had changed it
}

type planModel struct {
	a     *archive
	plans []record.Plan
	made  map[planned]snapshot // how items were when plans were made
	done  map[planned]snapshot // how they were when plans came to change them
	seen  map[string]int
}

func (m *planModel) item(id int64) (s snapshot) {
	s.row = value[string](m.a, `SELECT (to_jsonb(w) - '{claim_token,updated_at,virtual_start,priority}'::text[])::text FROM work_items w WHERE id = $1`, id)
	s.token = value[int64](m.a, `SELECT claim_token FROM work_items WHERE id = $1`, id)
	s.priority = value[int](m.a, `SELECT priority FROM work_items WHERE id = $1`, id)
	return s
}

func (m *planModel) plan(t *rapid.T) {
	q := plans.Request{Action: rapid.SampledFrom([]string{"requeue", "cancel", "set priority"}).Draw(t, "action"), Where: "id <> 1"}
	switch q.Action {
	case "requeue":
		q.Stage = rapid.SampledFrom([]registry.Stage{"", "Receive"}).Draw(t, "to")
	case "set priority":
		n := rapid.IntRange(-2, 2).Draw(t, "priority")
		q.Priority = &n
	}
	p := m.a.plan(q)
	m.plans = append(m.plans, p)
	for id := int64(1); id <= modelItems; id++ {
		m.made[planned{p.ID, id}] = m.item(id)
	}
}

// run calls a function of the schema for some items of a plan, and reports what the
// items and the plan's word of them were before.
func (m *planModel) run(t *rapid.T, sql string) (p record.Plan, was map[int64]snapshot, said map[int64]string, ok bool) {
	if len(m.plans) == 0 {
		m.plan(t)
	}
	p = rapid.SampledFrom(m.plans).Draw(t, "plan")
	was, said = map[int64]snapshot{}, map[int64]string{}
	for id := int64(1); id <= modelItems; id++ {
		was[id], said[id] = m.item(id), m.said(p, id)
	}
	_, err := m.a.db.Exec(context.Background(), sql, p.ID, rapid.IntRange(1, 3).Draw(t, "most"))
	return p, was, said, err == nil // else it is not in the state for it
}

// said is what a plan says of an item, without why.
func (m *planModel) said(p record.Plan, id int64) string {
	if id == 1 {
		return "nothing"
	}
	state, _, _ := strings.Cut(m.a.inPlan(p, id), ":")
	return state
}

func (m *planModel) apply(t *rapid.T) {
	p, was, said, ok := m.run(t, `SELECT plan_apply($1, $2, 100)`)
	for id := int64(1); ok && id <= modelItems; id++ {
		now, says := m.item(id), m.said(p, id)
		m.seen[says]++
		did := said[id] == "planned" && says == "done"
		if (now != was[id]) != did {
			t.Fatalf("plan %d says item %d is %s after %s\nit was %+v\nit is  %+v", p.ID, id, says, said[id], was[id], now)
		}
		made := m.made[planned{p.ID, id}]
		if was[id].token != made.token || was[id].priority != made.priority {
			if said[id] == "planned" && says != "planned" && says != "changed" {
				t.Fatalf("plan %d says item %d is %s, which had changed from %+v to %+v", p.ID, id, says, made, was[id])
			}
		}
		if did {
			s := was[id]
			s.after = now.token
			m.done[planned{p.ID, id}] = s
		}
	}
}

func (m *planModel) undo(t *rapid.T) {
	p, was, said, ok := m.run(t, `SELECT plan_undo($1, $2)`)
	for id := int64(1); ok && id <= modelItems; id++ {
		now, says := m.item(id), m.said(p, id)
		m.seen[says]++
		before := m.done[planned{p.ID, id}]
		wrong := ""
		switch {
		case said[id] != "done" || says != "undone":
			if now != was[id] {
				wrong = "changed"
			} else if says == "not undone" && said[id] == "done" && p.Action != "set priority" && was[id].token == before.after {
				wrong = "left alone though nobody had had it"
			}
		case p.Action == "set priority":
			if now.row != was[id].row || now.priority != before.priority {
				wrong = "not given back its priority alone"
			}
		case was[id].token != before.after:
			wrong = "undone though somebody had had it"
		case strings.Contains(before.row, `"status": "Started"`):
			if !strings.Contains(now.row, `"status": "Pending"`) {
				wrong = "not made Pending"
			}
		case now.row != before.row || now.priority != was[id].priority:
			wrong = "not given back"
		}
		if wrong != "" {
			t.Fatalf("plan %d says item %d is %s after %s; it was %s\nat first %+v\nbefore   %+v\nnow      %+v", p.ID, id, says, said[id], wrong, before, was[id], now)
		}
	}
}
