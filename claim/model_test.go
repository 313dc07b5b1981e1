package claim_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
)

// However workers claim, die, come back late, and people interfere: an item runs
// under one claim at a time, only the latest claim can write, and the row, the
// ledger and the topic log always tell the same story.
func TestOneOwnerWhateverHappens(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	rapid.Check(t, func(t *rapid.T) {
		q.exec(`TRUNCATE work_items, work_item_attempts, work_item_audit, topic_messages, retired_copies`)
		m := &model{t: t, q: q, e: e, id: q.put("Receive", 1), latest: -1}
		t.Repeat(map[string]func(*rapid.T){
			"claim":     func(*rapid.T) { m.claim() },
			"lapse":     func(*rapid.T) { m.lapse() },
			"done":      func(t *rapid.T) { m.settle(t, nil, 0) },
			"transient": func(t *rapid.T) { m.settle(t, errors.New("trouble"), -1) },
			"release":   func(t *rapid.T) { m.settle(t, claim.Release("stop"), +1) },
			"requeue":   func(t *rapid.T) { m.byHand(t, `SELECT requeue($1)`) },
			"type stage": func(t *rapid.T) {
				m.byHand(t, `UPDATE work_items SET stage = 'Receive', status = 'Pending' WHERE id = $1`)
			},
			"fail": func(t *rapid.T) { m.byHand(t, `UPDATE work_items SET status = 'Failed' WHERE id = $1`) },
			"":     func(*rapid.T) { m.check() },
		})
	})
}

type model struct {
	t      *rapid.T
	q      *queue
	e      *claim.Engine
	id     int64
	holds  []*claim.Hold // all there ever were
	latest int           // index of the one that may write; -1: none
	failed bool          // parked
	spent  int           // attempts that count at this stage
	stage  int
}

func (m *model) claim() {
	m.q.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
	var wants []claim.Want
	for _, s := range modelStages() {
		wants = append(wants, claim.Want{Stage: s, Most: 1})
	}
	items, err := m.e.Claim(context.Background(), claim.Filter{Stages: wants}, 1)
	if err != nil {
		m.t.Fatal(err)
	}
	free := m.latest < 0 && !m.failed
	if free != (len(items) == 1) {
		m.t.Fatalf("claimed %d items while free = %v", len(items), free)
	}
	if free {
		m.spent++
		if items[0].Attempt != m.spent || items[0].Stage != modelStages()[m.stage] {
			m.t.Fatalf("claimed attempt %d of %s, want %d of %s", items[0].Attempt, items[0].Stage, m.spent, modelStages()[m.stage])
		}
		m.holds, m.latest = append(m.holds, m.e.Hold(context.Background(), items[0])), len(m.holds)
	}
}

func (m *model) lapse() {
	m.q.lapse()
	want := 0
	if m.latest >= 0 {
		want = 1
		m.latest, m.failed = -1, m.spent >= 3
	}
	if n := m.q.reap(m.e); n != want {
		m.t.Fatalf("reaped %d, want %d", n, want)
	}
}

// settle lets any claim there ever was report a result. kind: 0 done, -1
// transient, +1 released.
func (m *model) settle(t *rapid.T, result error, kind int) {
	if len(m.holds) == 0 {
		return // nobody has anything to report yet
	}
	i := rapid.IntRange(0, len(m.holds)-1).Draw(t, "claim")
	next := (m.stage + 1) % len(modelStages())
	err := m.holds[i].Settle(context.Background(), claim.Done{Next: modelStages()[next]}, result)
	switch {
	case i != m.latest:
		if !errors.Is(err, claim.ErrLost) {
			t.Fatalf("a stale claim wrote: %v", err)
		}
		return
	case err != nil:
		t.Fatalf("the latest claim cannot write: %v", err)
	}
	m.latest = -1
	switch kind {
	case 0:
		m.stage, m.spent = next, 0
	case -1:
		m.failed = m.spent >= 3
	case +1:
		m.spent--
	}
}

func (m *model) byHand(t *rapid.T, sql string) {
	before := m.q.row(m.id)
	m.q.exec(sql, m.id)
	after := m.q.row(m.id)
	if after.Stage == before.Stage && after.Status == before.Status && after.Attempt == before.Attempt {
		return // it was so already
	}
	m.latest = -1
	switch after.Status {
	case "Pending":
		m.spent, m.failed = 0, false
	case "Failed":
		m.failed = true
	default:
		t.Fatalf("by hand from %+v to %+v", before, after)
	}
	for i, s := range modelStages() {
		if s == after.Stage {
			m.stage = i
		}
	}
}

func (m *model) check() {
	r := m.q.row(m.id)
	running := value[int](m.q, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`)
	if want := m.latest >= 0; r.Leased != want || (running == 1) != want || running > 1 {
		m.t.Fatalf("leased %v, %d attempts running, want %v", r.Leased, running, want)
	}
	if parked := r.Status == "Suspended" || r.Status == "Failed"; parked != m.failed || r.Retry == parked {
		m.t.Fatalf("parked = %v, want %v: %+v", parked, m.failed, r)
	}
	if n := value[int](m.q, `SELECT count(*) FROM work_item_attempts`); n != len(m.holds) {
		m.t.Fatalf("the ledger has %d claims, there were %d", n, len(m.holds))
	}
}

func modelStages() []string { return []string{"Receive", "Validate", "Store"} }
