package estimate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const (
	// fewest is how many items like it must have ended for an estimate.
	fewest = 20
	// enough items of the last day make those of the days before unnecessary.
	enough = 100
	// mostBags is how many of them are asked: those that are nearest in size.
	mostBags = 100
	// overhead is what an item costs apart from its bytes, as so many bytes.
	overhead = 1 << 20
	hour     = 3600 // seconds
)

// kindOf names items that are alike.
type kindOf struct {
	action registry.Action
	band   int16
}

// Model is what is known of the queue at one moment. It may be used concurrently.
type Model struct {
	time  float64 // in seconds of its clock
	kinds map[kindOf]*kind
	bands map[*line]registry.BandFigures
	front map[*line][]registry.Front
	read  time.Time // when bands and front were so
	stage map[registry.Action]map[registry.Stage]record.StageSettings
	pools []record.Pool
}

// kind has what happened to the items that are alike.
type kind struct {
	kindOf

	order  []registry.Stage
	lines  []*line // by stage, as all of these
	power  []float64
	mean   []float64 // seconds that it takes
	hold   []float64 // seconds for which an item that is claimed there keeps its slot
	limit  []int     // of items at once; 0: none
	rivals [][]rival // what is claimed by the same slots
	shared [][]*line // what takes them
	bags   []bag     // by size
	median int64     // of the sizes
	scales map[phase]scale
}

// rival is a queue partition whose items are claimed by the same slots.
type rival struct {
	kind  *kind
	stage int

	first   bool // all that is due there goes first
	chained bool // what comes there is carried on, and keeps its slot
	capped  bool // one limit is for both
}

// bag is an item that succeeded.
type bag struct {
	size int64
	took []float64 // by stage; NaN: it was not there
}

// New makes a model of what happened lately.
func New(r registry.Recent) *Model {
	epoch := r.At.Add(-8 * 24 * time.Hour)
	m := &Model{
		time: r.At.Sub(epoch).Seconds(), kinds: map[kindOf]*kind{}, bands: map[*line]registry.BandFigures{},
		front: map[*line][]registry.Front{}, stage: map[registry.Action]map[registry.Stage]record.StageSettings{}, pools: r.Pools,
	}
	order := map[registry.Action][]registry.Stage{}
	for _, s := range r.Stages {
		if m.stage[s.Action] == nil {
			m.stage[s.Action] = map[registry.Stage]record.StageSettings{}
		}
		m.stage[s.Action][s.Stage] = s
		order[s.Action] = append(order[s.Action], s.Stage)
	}
	passes := map[kindOf][]registry.Pass{}
	for _, p := range r.Passes {
		of := kindOf{p.Action, p.SizeBand}
		passes[of] = append(passes[of], p)
	}
	for _, b := range r.Bands { // each stage and band has one
		if of := (kindOf{b.Action, b.SizeBand}); m.kinds[of] == nil {
			m.kinds[of] = newKind(of, order[b.Action], passes[of], r.At, epoch)
		}
	}
	m.stands(r)
	kinds := slices.SortedFunc(maps.Values(m.kinds), func(a, b *kind) int {
		return cmp.Or(cmp.Compare(a.action, b.action), cmp.Compare(a.band, b.band))
	})
	for _, k := range kinds {
		m.share(k, kinds)
	}
	for _, k := range kinds {
		k.learnWaits()
	}
	for _, k := range kinds {
		k.learn()
	}
	return m
}

// stands says how many items stand where now, and in which order.
func (m *Model) stands(r registry.Recent) {
	m.read = r.At
	clear(m.front)
	for _, b := range r.Bands {
		if l := m.line(b.Action, b.SizeBand, b.Stage); l != nil {
			m.bands[l] = b
		}
	}
	for _, f := range r.Fronts {
		if l := m.line(f.Action, f.SizeBand, f.Stage); l != nil {
			m.front[l] = append(m.front[l], f)
		}
	}
}

// line is a queue partition; nil: the stage was added since the stages were read.
func (m *Model) line(action registry.Action, band int16, stage registry.Stage) *line {
	k := m.kinds[kindOf{action, band}]
	if k == nil || k.at(stage) < 0 {
		return nil
	}
	return k.lines[k.at(stage)]
}

func newKind(of kindOf, order []registry.Stage, passes []registry.Pass, now, epoch time.Time) *kind {
	k := &kind{kindOf: of, order: order, scales: map[phase]scale{}}
	byStage := make([][]registry.Pass, len(order))
	byItem := map[int64][]registry.Pass{}
	for _, p := range passes {
		if n := k.at(p.Stage); n >= 0 {
			byStage[n] = append(byStage[n], p)
			byItem[p.Item] = append(byItem[p.Item], p)
		}
	}
	k.bags = k.ended(byItem, now)
	slices.SortStableFunc(k.bags, func(a, b bag) int { return cmp.Compare(a.size, b.size) })
	if n := len(k.bags); n > 0 {
		k.median = k.bags[n/2].size
	}
	for i, list := range byStage {
		k.lines = append(k.lines, newLine(list, epoch))
		k.power = append(k.power, power(k.bags, i))
		k.mean = append(k.mean, mean(k.bags, i))
	}
	return k
}

// at is the place of a stage in the order; -1: it has none.
func (k *kind) at(stage registry.Stage) int { return slices.Index(k.order, stage) }

// ended are the items that succeeded in the last day or, if these are too few, all there are.
func (k *kind) ended(byItem map[int64][]registry.Pass, now time.Time) []bag {
	var all, recent []bag
	for _, id := range slices.Sorted(maps.Keys(byItem)) {
		b := bag{size: byItem[id][0].Size, took: make([]float64, len(k.order))}
		for i := range b.took {
			b.took[i] = math.NaN()
		}
		var end time.Time
		for _, p := range byItem[id] {
			if p.Succeeded && p.Ended != nil && !p.Ended.Before(end) {
				end, b.took[k.at(p.Stage)] = *p.Ended, max(p.Ended.Sub(p.Claimed).Seconds(), 0)
			}
		}
		if end.IsZero() {
			continue
		}
		all = append(all, b)
		if now.Sub(end) < 24*time.Hour {
			recent = append(recent, b)
		}
	}
	if len(recent) >= enough {
		return recent
	}
	return all
}

// power is the power of the size with which durations of a stage grow, from 0 to 1, by least
// squares of the logarithms; 0 if the size explains next to nothing.
func power(bags []bag, stage int) float64 {
	var n, sx, sy, sxx, sxy, syy float64
	for _, b := range bags {
		if math.IsNaN(b.took[stage]) {
			continue
		}
		x, y := math.Log(float64(b.size+overhead)), math.Log(b.took[stage]+0.01)
		n, sx, sy, sxx, sxy, syy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y, syy+y*y
	}
	vx, vy, c := n*sxx-sx*sx, n*syy-sy*sy, n*sxy-sx*sy
	if n < fewest || vx <= 1e-9 || vy <= 1e-9 || c*c < 0.05*vx*vy {
		return 0
	}
	return min(max(c/vx, 0), 1)
}

// mean is how long a stage takes.
func mean(bags []bag, stage int) float64 {
	var sum, n float64
	for _, b := range bags {
		if !math.IsNaN(b.took[stage]) {
			sum, n = sum+b.took[stage], n+1
		}
	}
	return sum / max(n, 1)
}

// share finds out how long items of a kind keep their slots, and with what they share them.
func (m *Model) share(k *kind, kinds []*kind) {
	for stage := range k.order {
		pools := m.takers(k, stage)
		hold, next := k.mean[stage], stage+1
		for ; next < len(k.order) && len(pools) > 0 && takes(pools[0], k.action, k.order[next], k.median); next++ {
			hold += k.mean[next] // a slot carries an item on while its pool takes the next stage
		}
		var rivals []rival
		shared := []*line{k.lines[stage]}
		for _, r := range others(k, stage, next, kinds) {
			taken := func(p record.Pool) bool {
				return takes(p, r.kind.action, r.kind.order[r.stage], r.kind.median)
			}
			if !r.capped && !slices.ContainsFunc(pools, taken) {
				continue
			}
			shared = append(shared, r.kind.lines[r.stage])
			if r.first || r.capped || r.kind.action != k.action { // early stages go last
				rivals = append(rivals, r)
			}
		}
		k.limit = append(k.limit, m.stage[k.action][k.order[stage]].Cap)
		k.hold, k.rivals, k.shared = append(k.hold, hold), append(k.rivals, rivals), append(k.shared, shared)
	}
}

// others are all queue partitions but one, whose items are carried on up to the stage next.
func others(k *kind, stage, next int, kinds []*kind) (list []rival) {
	for _, other := range kinds {
		same := other.action == k.action
		for i := range other.order {
			if other != k || i != stage {
				list = append(list, rival{other, i, same && i > stage, same && i > stage && i < next, same && i == stage})
			}
		}
	}
	return list
}

// takers are the pools that take a kind at a stage.
func (m *Model) takers(k *kind, stage int) (pools []record.Pool) {
	for _, p := range m.pools {
		if takes(p, k.action, k.order[stage], k.median) {
			pools = append(pools, p)
		}
	}
	return pools
}

// now is how the queue stands.
type now struct{ *Model }

func (m now) due(l *line) int     { return int(m.bands[l].Due) }
func (m now) running(l *line) int { return int(m.bands[l].Running) }
func (m now) at() float64         { return math.Inf(1) }

func (m now) rate(l *line) float64 { return then(m.time).rate(l) }

// slots are those that take a kind at a stage. Programs that ask over HTTP do not say how many
// they have: those that are taken are known.
func (m now) slots(k *kind, stage int) (n int) {
	if m.stage[k.action][k.order[stage]].Worker == "http" {
		return m.running(k.lines[stage])
	}
	for _, p := range m.takers(k, stage) {
		n += p.Slots
	}
	return n
}

// then is how it stood at a time.
type then float64

func (t then) due(l *line) int     { return l.waiting(float64(t)) }
func (t then) running(l *line) int { return l.running(float64(t)) }
func (t then) at() float64         { return float64(t) }

// rate is how many were claimed in a second of the last hour.
func (t then) rate(l *line) float64 {
	return float64(upTo(l.claims, float64(t))-upTo(l.claims, float64(t)-hour)) / hour
}

// slots are those that were taken: if an item waited, all were.
func (t then) slots(k *kind, stage int) (n int) {
	for _, l := range k.shared[stage] {
		n += l.running(float64(t))
	}
	return n
}
