package claim_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// modelFilters are what the pools of the model take.
func modelFilters() []claim.Filter {
	late := slices.Clone(modelStages())
	slices.Reverse(late)
	of := func(stages ...registry.Stage) (wants []claim.Want) {
		for _, s := range stages {
			wants = append(wants, claim.Want{Stage: s})
		}
		return wants
	}
	return []claim.Filter{
		{Stages: of(late...)},
		{Stages: of("Receive", "Validate")},
		{Stages: of("Record", "Store")},
		{Stages: of(late...), MaxSize: modelSmall + 1},
		{Stages: of("Store", "Receive"), MinSize: modelSmall + 1, MaxSize: modelLarge + 1},
		{Stages: of(late...), Institutions: []string{"a.edu"}},
		{Stages: of(late...), StorageOptions: []string{"Standard"}},
	}
}

// claims lets a process claim, with or without the notifications of what happened.
func (r *modelRun) claims(t *rapid.T) {
	engine := rapid.IntRange(0, 1).Draw(t, "engine")
	filters := modelFilters()
	f := filters[rapid.IntRange(0, len(filters)-1).Draw(t, "filter")]
	n := rapid.IntRange(1, 5).Draw(t, "n")
	for i := range f.Stages {
		f.Stages[i].Most = rapid.IntRange(0, 4).Draw(t, "most")
	}
	informed := rapid.IntRange(0, 3).Draw(t, "informed") > 0
	if informed {
		r.engines[engine].Reset()
	}
	got, err := r.engines[engine].Claim(context.Background(), f, n)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	r.clock++
	wrong := r.wrong(f, n, engine, informed, got)
	if wrong != "" {
		t.Fatalf("%d items of %+v, informed %t: %s; the cursors are %s, and the rows\n%s", n, f, informed, wrong, r.engines[engine].Cursors(f),
			value[string](r.queue, `SELECT coalesce(string_agg(concat_ws(' ', id, stage, status, size_band, priority, virtual_start, run_at), E'\n' ORDER BY id), '')
				FROM work_items WHERE retry`))
	}
	for _, item := range got {
		i := r.items[slices.IndexFunc(r.items, func(i *modelItem) bool { return i.id == item.ID })]
		if r.takes(t, engine, i, item); item.Size != i.size {
			t.Fatalf("claimed an item of %d bytes that has %d", item.Size, i.size)
		}
	}
}

// wrong says why a claim cannot have come to what it did; "" if it can. Size bands come first in
// turn, those of stages with a cap and those of others.
func (r *modelRun) wrong(f claim.Filter, n, engine int, informed bool, got []claim.Item) (why string) {
	turns := [][]int16{{0, 1}, {1, 0}}
	for _, capped := range turns {
		for _, free := range turns {
			if why = r.explain(f, n, engine, informed, got, capped, free); why == "" {
				return ""
			}
		}
	}
	return why
}

// takes checks what a process was told of an item that it got, and holds it.
func (r *modelRun) takes(t *rapid.T, engine int, i *modelItem, item claim.Item) {
	entered := i.entered
	c := r.claim(engine, i, item)
	if item.Token != i.token || item.Attempt != i.attempt || item.Entered != entered || item.Stage != i.stage ||
		item.Institution != i.institution || item.Topic != topicOf(i.stage) || item.MaxAttempts != mostAttempts(i.stage, engine) ||
		item.ObjectIdentifier != i.object || item.Name != i.name {
		t.Fatalf("claimed %+v, want %+v", item, *i)
	}
	c.hold = r.engines[engine].Hold(context.Background(), item)
	if before := r.held[engine][item.ID]; before != nil && !errors.Is(context.Cause(before.hold.Context()), claim.ErrLost) {
		t.Fatalf("item %d is held a second time, and the first hold did not end", item.ID)
	}
	r.held[engine][item.ID] = c
}

// explain says why a claim cannot have come to what it did; "" if it can. A
// stage with a cap is asked before the others. Of each partition it takes the first
// in order, but may skip items that the process was not notified of.
func (r *modelRun) explain(f claim.Filter, n, engine int, informed bool, got []claim.Item, capped, free []int16) string {
	left := n
	taken := 0
	stages := slices.Clone(f.Stages)
	slices.SortStableFunc(stages, func(a, b claim.Want) int { return rank(a.Stage) - rank(b.Stage) })
	for _, w := range stages {
		room := min(w.Most, n)
		bands := free
		if w.Stage == "Record" {
			room, bands = min(room, r.cap-r.running("Record")), capped
		}
		for _, band := range bands {
			line := r.claimable(f, w.Stage, band)
			r.asStated(line)
			first := 0
			for first < len(line) && !has(got, line[first]) && !informed && line[first].unseen[engine] {
				first++
			}
			want := line[first:min(len(line), first+max(0, min(room, left)))]
			for _, i := range want {
				if !has(got, i) {
					return fmt.Sprintf("item %d of %s is missing among %v, that is next of %v", i.id, w.Stage, ids(got), lineOf(line))
				}
			}
			left -= len(want)
			room -= len(want)
			taken += len(want)
		}
	}
	if taken != len(got) {
		return fmt.Sprintf("%v are too many, %d of them are next in line", ids(got), taken)
	}
	return ""
}

// asStated puts items that are ready since the same call into the order of its statements:
// ends that are unlike are ended by several, and each has its own moment.
func (r *modelRun) asStated(line []*modelItem) {
	if len(line) < 2 {
		return
	}
	order := value[[]int64](r.queue, `SELECT array_agg(id ORDER BY run_at, id) FROM work_items`)
	slices.SortStableFunc(line, func(a, b *modelItem) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.virtualStart, b.virtualStart), cmp.Compare(a.ready, b.ready),
			cmp.Compare(slices.Index(order, a.id), slices.Index(order, b.id)))
	})
}

func rank(stage registry.Stage) int {
	if stage == "Record" {
		return 0
	}
	return 1
}

func has(got []claim.Item, i *modelItem) bool {
	return slices.ContainsFunc(got, func(item claim.Item) bool { return item.ID == i.id })
}

func ids(got []claim.Item) (list []int64) {
	for _, item := range got {
		list = append(list, item.ID)
	}
	return list
}

func lineOf(line []*modelItem) (list []int64) {
	for _, i := range line {
		list = append(list, i.id)
	}
	return list
}

// anyClaim draws one of all claims that there ever were, mostly a late one.
func (r *modelRun) anyClaim(t *rapid.T) *modelClaim {
	back := min(len(r.model.claims), rapid.SampledFrom([]int{1, 2, 3, 4, 6, 10, 100}).Draw(t, "back"))
	return r.model.claims[len(r.model.claims)-rapid.IntRange(1, back).Draw(t, "claim")]
}

// carries ends one claim, of all there ever were, whose stage is done, and has its process
// begin the next stage.
func (r *modelRun) carries(t *rapid.T) {
	if len(r.model.claims) == 0 {
		return
	}
	c := r.anyClaim(t)
	at := slices.Index(modelStages(), c.of.Stage) + 1
	if at == len(modelStages()) {
		return
	}
	i, e := c.item, modelEnd{kind: "done", to: modelStages()[at]}
	e.done = claim.Done{Next: e.to, StorageOption: rapid.SampledFrom([]string{"", "Standard", "Glacier-OH"}).Draw(t, "option")}
	begins := !r.paused[e.to] && (e.to != "Record" || r.running("Record") < r.cap)
	r.clock++
	next, err := c.hold.Carry(context.Background(), e.done)
	if r.held[c.engine][i.id] == c {
		delete(r.held[c.engine], i.id)
	}
	switch {
	case i.token != c.of.Token:
		if !errors.Is(err, claim.ErrLost) || next != nil {
			t.Fatalf("a stale claim was carried on: %+v, %v", next, err)
		}
		return
	case err != nil:
		t.Fatalf("the latest claim cannot be carried on: %v", err)
	case (next != nil) != begins:
		t.Fatalf("carried on to %s: %+v; it may begin there: %v", e.to, next, begins)
	}
	r.settle(c, e, c.engine, 0)
	if begins {
		r.takes(t, c.engine, i, *next)
	}
}

// settles ends some claims at once, of all there ever were, and maybe one twice.
func (r *modelRun) settles(t *rapid.T) {
	if len(r.model.claims) == 0 {
		return
	}
	engine := rapid.IntRange(0, 1).Draw(t, "engine")
	n := rapid.IntRange(1, 4).Draw(t, "n")
	claims, ends, endings := make([]*modelClaim, n), make([]modelEnd, n), make([]claim.Ending, n)
	for i := range n {
		claims[i] = r.anyClaim(t)
		ends[i] = r.drawEnd(t, claims[i])
		endings[i] = claim.Ending{Item: claims[i].of, Done: ends[i].done, Result: ends[i].result}
	}
	counts := map[*modelItem]int{}
	oneByOne := false // what is refused of one has each sent by itself, in this order
	for i, c := range claims {
		counts[c.item] = c.item.sentBack
		oneByOne = oneByOne || ends[i].refused && c.item.token == c.of.Token
	}
	r.clock++
	for i, err := range r.engines[engine].Settle(context.Background(), endings) {
		c := claims[i]
		if oneByOne {
			r.clock++
		}
		switch {
		case c.item.token != c.of.Token:
			if !errors.Is(err, claim.ErrLost) {
				t.Fatalf("ending %d of %d: a stale claim wrote: %v", i, n, err)
			}
		case ends[i].refused:
			if err == nil || errors.Is(err, claim.ErrLost) {
				t.Fatalf("ending %d of %d, which breaks a rule of the database: %v", i, n, err)
			}
		case err != nil:
			t.Fatalf("ending %d of %d: the latest claim cannot write: %v", i, n, err)
		default:
			r.settle(c, ends[i], engine, counts[c.item])
		}
	}
}

// modelEnd is what a stage's work came to.
type modelEnd struct {
	kind    string
	done    claim.Done
	result  error
	refused bool
	to      registry.Stage
	hours   int
}

func (r *modelRun) drawEnd(t *rapid.T, c *modelClaim) modelEnd {
	at := slices.Index(modelStages(), c.of.Stage)
	e := modelEnd{kind: rapid.SampledFrom([]string{
		"done", "done", "done", "done", "transient", "transient", "release", "snooze", "send back", "cancel", "suspend", "fatal", "broken",
	}).Draw(t, "end")}
	switch e.kind {
	case "done":
		if at+1 < len(modelStages()) {
			e.to = modelStages()[at+1]
			e.done.Next = e.to
		}
		e.done.StorageOption = rapid.SampledFrom([]string{"", "Standard", "Glacier-OH"}).Draw(t, "option")
	case "transient":
		e.result = errors.New("trouble")
	case "release":
		e.result = claim.Release("stopping")
	case "snooze":
		e.hours = rapid.IntRange(0, 2).Draw(t, "hours")
		e.result = claim.Snooze(time.Duration(e.hours)*time.Hour, "later")
	case "send back":
		e.to = modelStages()[rapid.IntRange(0, at).Draw(t, "to")]
		e.result = claim.SendBack(e.to, "gone")
	case "cancel":
		e.result = claim.Cancel("unwanted", "no longer wanted")
	case "suspend":
		e.result = claim.Suspend("doubtful", "a person must decide")
	case "fatal":
		e.result = claim.Fatal("bad-bag", "it is bad")
	case "broken":
		e.done.Next, e.refused = "Nowhere", true
	}
	return e
}

// settle is what the end of a claim that is not stale does.
func (m *model) settle(c *modelClaim, e modelEnd, engine, sentBackBefore int) {
	i, attempt := c.item, c.of.Attempt
	ended := func(outcome, code string) {
		if m.leave(i, outcome, code); outcome == "fatal" {
			i.sentBack = 0 // a person decides now
		}
	}
	again := func(attempt, hours int, code string) {
		i.status, i.attempt, i.code = "Pending", attempt, code
		notified := hours == 0 && !i.unseen[engine] // where it was claimed
		m.due(i)
		i.delay, i.unseen[engine] = hours, !notified
	}
	move := func() {
		if i.stage != e.to {
			i.stage, i.entered = e.to, i.token
		}
		m.messages = append(m.messages, fmt.Sprintf("%s %d", topicOf(e.to), i.id))
	}
	switch {
	case e.kind == "send back" && sentBackBefore >= 3:
		ended("fatal", "sent-back")
		m.end(i, "Suspended", "sent-back")
	case e.kind == "send back":
		ended("sent back", "sent-back")
		i.sentBack++
		move()
		again(0, 0, "sent-back")
	case e.kind == "done":
		ended("done", "")
		if e.done.StorageOption != "" {
			i.option = e.done.StorageOption
		}
		if e.to == "" {
			i.attempt = 0
			m.end(i, "Success", "")
			return
		}
		move()
		again(0, 0, "")
	case e.kind == "transient":
		ended("transient", "transient")
		if attempt >= c.of.MaxAttempts {
			m.end(i, "Suspended", "transient")
			return
		}
		again(attempt, backoffHours(attempt), "transient")
	case e.kind == "release":
		ended("released", "released")
		again(attempt-1, 0, "released")
	case e.kind == "snooze":
		ended("snoozed", "snoozed")
		again(attempt-1, e.hours, "snoozed")
	case e.kind == "cancel":
		ended("cancelled", "unwanted")
		m.end(i, "Cancelled", "unwanted")
	case e.kind == "suspend":
		ended("fatal", "doubtful")
		m.end(i, "Suspended", "doubtful")
	case e.kind == "fatal":
		ended("fatal", "bad-bag")
		m.end(i, "Failed", "bad-bag")
	}
}
