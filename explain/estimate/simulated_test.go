package estimate

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// simulation is a queue with all that makes waits uneven: institutions that deposit in bursts
// and share the queue fairly, sizes over six powers of ten, bags that are slow throughout,
// stages that others' workers have, a stage with a cap, and workers that come and go.
type simulation struct {
	random  *rand.Rand
	now     float64
	events  events
	bags    []*simulated
	queues  [][]queue // by stage and band
	workers []*worker
	served  [bands]int64
	running []int // by stage
	turn    int
}

const bands = 3

// stages of the simulation: seconds that a bag takes at least, bytes that it goes through in a
// second, and how many bags may be there at once.
func simulatedStages() []struct {
	name  registry.Stage
	least float64
	bytes float64
	cap   int
} {
	return []struct {
		name  registry.Stage
		least float64
		bytes float64
		cap   int
	}{
		{registry.Receive, 20, 30e6, 0},
		{registry.Validate, 5, 2e9, 0},
		{registry.FormatIdentification, 30, 50e6, 0},
		{registry.Store, 40, 15e6, 0},
		{registry.Record, 15, 10e9, 2},
		{registry.Cleanup, 4, math.Inf(1), 0},
	}
}

const storeStage = 3

// simulated is a bag with the times of its stages.
type simulated struct {
	id, size              int64
	band, institution     int
	virtual               int64
	slow                  float64
	created, end          float64
	stage                 int
	ready, claimed, ended []float64
	bend                  []float64 // how its progress within a stage is not even
}

type worker struct {
	store, large bool
	slots        int
	comes, goes  float64
	busy         int
}

func (w worker) here(t float64) bool { return w.comes <= t && t < w.goes }

func (w worker) takes(stage, band int) bool {
	return w.store == (stage == storeStage) && (w.store || w.large == (band == 2))
}

func (w worker) pool() record.Pool {
	p := record.Pool{Slots: w.slots, Actions: []registry.Action{registry.Ingest}}
	for i, s := range simulatedStages() {
		if w.store == (i == storeStage) {
			p.Stages = append(p.Stages, s.name)
		}
	}
	switch {
	case w.store:
	case w.large:
		p.MinSize = 1 << 30
	default:
		p.MaxSize = 1 << 30
	}
	return p
}

type queue []*simulated

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].before(q[j]) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*simulated)) }
func (q *queue) Pop() any          { x := (*q)[len(*q)-1]; *q = (*q)[:len(*q)-1]; return x }

func (b *simulated) before(o *simulated) bool {
	return cmp.Or(cmp.Compare(b.virtual, o.virtual), cmp.Compare(b.id, o.id)) < 0
}

type event struct {
	at float64
	do func()
}

type events []event

func (q events) Len() int           { return len(q) }
func (q events) Less(i, j int) bool { return q[i].at < q[j].at }
func (q events) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)        { *q = append(*q, x.(event)) }
func (q *events) Pop() any          { x := (*q)[len(*q)-1]; *q = (*q)[:len(*q)-1]; return x }

func (s *simulation) at(t float64, do func()) { heap.Push(&s.events, event{t, do}) }

// lognormal is 1 in the middle.
func (s *simulation) lognormal(sigma float64) float64 {
	return math.Exp(sigma * s.random.NormFloat64())
}

// simulate has so many bags through the queue, to the end of the last one.
func simulate(seed uint64, bags int) *simulation {
	s := &simulation{random: rand.New(rand.NewPCG(seed, 1)), running: make([]int, len(simulatedStages()))}
	for range simulatedStages() {
		s.queues = append(s.queues, make([]queue, bands))
	}
	s.deposit(bags)
	s.employ()
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
		s.dispatch()
	}
	return s
}

// deposit has institutions deposit bags in bursts.
func (s *simulation) deposit(bags int) {
	const institutions = 6
	reached := [institutions][bands]int64{}
	var t float64
	for n := 0; n < bags; {
		t += s.random.ExpFloat64() * 1500
		institution, began := s.random.IntN(institutions), t
		large := s.random.Float64() < 0.3
		for range min(1+int(s.random.ExpFloat64()*40), bags-n) {
			n++
			size := int64(20e6 * s.lognormal(1.8))
			if large {
				size = int64(1.5e9 * s.lognormal(1.2))
			}
			b := &simulated{id: int64(n), size: min(size, 60<<30), institution: institution, slow: s.lognormal(0.3)}
			switch {
			case b.size >= 1<<30:
				b.band = 2
			case b.size >= 64<<20:
				b.band = 1
			}
			began += s.random.ExpFloat64() * 2
			s.at(began, func() {
				b.created, b.virtual = s.now, max(reached[institution][b.band], s.served[b.band])
				reached[institution][b.band] = b.virtual + b.size + overhead
				s.bags = append(s.bags, b)
				s.enter(b)
			})
		}
	}
}

// employ has workers come and go, and some always there.
func (s *simulation) employ() {
	for _, kind := range []worker{{slots: 3}, {slots: 3}, {slots: 3}, {large: true, slots: 3}, {large: true, slots: 3}, {store: true, slots: 5}, {store: true, slots: 5}} {
		always := kind
		always.goes = math.Inf(1)
		if len(s.workers) == 0 || kind != (worker{slots: 3}) && s.workers[len(s.workers)-1].large != kind.large || kind.store && !s.hasStore() {
			s.workers = append(s.workers, &always)
			continue
		}
		for t := 0.0; t < 60*86400; {
			w := kind
			w.comes = t + s.random.ExpFloat64()*3*3600
			w.goes = w.comes + s.random.ExpFloat64()*8*3600
			t = w.goes
			s.workers = append(s.workers, &w)
			s.at(w.comes, func() {})
		}
	}
}

func (s *simulation) hasStore() bool {
	return slices.ContainsFunc(s.workers, func(w *worker) bool { return w.store })
}

func (s *simulation) enter(b *simulated) {
	b.ready = append(b.ready, s.now)
	heap.Push(&s.queues[b.stage][b.band], b)
}

// dispatch has free slots claim, late stages first and the bands in turn.
func (s *simulation) dispatch() {
	for _, w := range s.workers {
		for w.here(s.now) && w.busy < w.slots && s.claim(w) {
		}
	}
}

func (s *simulation) claim(w *worker) bool {
	stages := simulatedStages()
	for stage := len(stages) - 1; stage >= 0; stage-- {
		if limit := stages[stage].cap; limit > 0 && s.running[stage] >= limit {
			continue
		}
		for range bands {
			s.turn++
			band := s.turn % bands
			if w.takes(stage, band) && len(s.queues[stage][band]) > 0 {
				s.begin(w, heap.Pop(&s.queues[stage][band]).(*simulated))
				return true
			}
		}
	}
	return false
}

func (s *simulation) begin(w *worker, b *simulated) {
	stage := simulatedStages()[b.stage]
	took := (stage.least + float64(b.size)/stage.bytes) * b.slow * s.lognormal(0.4)
	b.claimed = append(b.claimed, s.now)
	b.ended = append(b.ended, s.now+took)
	b.bend = append(b.bend, s.lognormal(0.2))
	s.served[b.band] = max(s.served[b.band], b.virtual)
	w.busy++
	s.running[b.stage]++
	s.at(s.now+took, func() {
		w.busy--
		s.running[b.stage]--
		if b.stage++; b.stage < len(simulatedStages()) {
			s.enter(b)
			return
		}
		b.end = s.now
	})
}

// epoch is when the simulation began.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func clock(t float64) time.Time { return epoch().Add(time.Duration(t * float64(time.Second))) }

// stood is where a bag stood: at which stage, and whether it ran.
func (b *simulated) stood(t float64) (stage int, runs bool) {
	for i := range b.ended {
		if t < b.ended[i] {
			return i, t >= b.claimed[i]
		}
	}
	return len(b.ended), false
}

// recent is what the registry would have said at a time: the same rows within the same bounds.
func (s *simulation) recent(t float64) registry.Recent {
	const alike = 500
	r := registry.Recent{At: clock(t)}
	stages := simulatedStages()
	for _, stage := range stages {
		r.Stages = append(r.Stages, record.StageSettings{QueueStage: record.QueueStage{Action: registry.Ingest, Stage: stage.name, Cap: stage.cap}})
	}
	var ended [bands][]*simulated
	for _, b := range s.bags {
		switch {
		case b.created > t:
		case b.end <= t:
			ended[b.band] = append(ended[b.band], b)
		default:
			if i, runs := b.stood(t); i > 0 || runs {
				r.Passes = append(r.Passes, b.passes(t)...)
			}
		}
	}
	for _, list := range ended {
		slices.SortFunc(list, func(a, b *simulated) int { return cmp.Compare(b.end, a.end) })
		for _, b := range list[:min(len(list), alike)] {
			r.Passes = append(r.Passes, b.passes(t)...)
		}
	}
	r.Bands, r.Fronts = s.bands(t), s.fronts(t)
	for _, w := range s.workers {
		if w.here(t) {
			r.Pools = append(r.Pools, w.pool())
		}
	}
	return r
}

// bands says how many bags stood where.
func (s *simulation) bands(t float64) (list []registry.BandFigures) {
	for _, stage := range simulatedStages() {
		for band := range bands {
			list = append(list, registry.BandFigures{Action: registry.Ingest, Stage: stage.name, SizeBand: int16(band)})
		}
	}
	for _, b := range s.bags {
		if b.created > t || b.end <= t {
			continue
		}
		i, runs := b.stood(t)
		if of := &list[i*bands+b.band]; runs {
			of.Running++
		} else {
			of.Due++
		}
	}
	return list
}

// fronts says which bags waited where, as many of them as the registry reads.
func (s *simulation) fronts(t float64) (list []registry.Front) {
	var here []*simulated
	for _, b := range s.bags {
		if _, runs := b.stood(t); b.created <= t && t < b.end && !runs {
			here = append(here, b)
		}
	}
	slices.SortFunc(here, func(a, b *simulated) int { return cmp.Or(cmp.Compare(a.virtual, b.virtual), cmp.Compare(a.id, b.id)) })
	waiting := map[[2]int]int64{}
	for _, b := range here {
		i, _ := b.stood(t)
		n := waiting[[2]int{i, b.band}]
		waiting[[2]int{i, b.band}]++
		if n%max(n/64, 1) == 0 {
			list = append(list, registry.Front{
				Action: registry.Ingest, Stage: simulatedStages()[i].name, SizeBand: int16(b.band), Ahead: n,
				Place: registry.Place{VirtualStart: b.virtual, ID: b.id},
			})
		}
	}
	return list
}

// passes are those of a bag as the ledger had them at a time.
func (b *simulated) passes(t float64) (list []registry.Pass) {
	for i := range b.claimed {
		if b.claimed[i] > t {
			break
		}
		p := registry.Pass{
			Item: b.id, Action: registry.Ingest, Stage: simulatedStages()[i].name, SizeBand: int16(b.band), Size: b.size, VirtualStart: b.virtual,
			Ready: clock(b.ready[i]), Claimed: clock(b.claimed[i]), Succeeded: b.end <= t,
		}
		if b.ended[i] <= t {
			at := clock(b.ended[i])
			p.Ended = &at
		}
		list = append(list, p)
	}
	return list
}

// standing is how a bag stood at a time, and what its progress said of the rest of its stage:
// the rate until then is not that which follows.
func (s *simulation) standing(b *simulated, t float64) (v registry.Standing, left *float64) {
	i, runs := b.stood(t)
	v = registry.Standing{
		Place: registry.Place{VirtualStart: b.virtual, ID: b.id}, At: clock(t), Action: registry.Ingest, Stage: simulatedStages()[i].name, Status: registry.Pending, SizeBand: int16(b.band), Size: b.size,
	}
	due := clock(b.ready[i])
	v.Due = &due
	if runs {
		started := clock(b.claimed[i])
		v.Started, v.Status = &started, registry.Started
		elapsed := t - b.claimed[i]
		if done := math.Pow(elapsed/(b.ended[i]-b.claimed[i]), b.bend[i]); elapsed > 5 && done > 0.01 {
			rest := elapsed * (1 - done) / done
			left = &rest
		}
		return v, left
	}
	return v, nil
}
