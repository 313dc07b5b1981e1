package estimate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// tally counts how often the real end was in the interval.
type tally struct {
	asked, below, above int
	widths, lefts       []float64
	loss                float64 // interval scores (Gneiting and Raftery 2007), added up
}

func (c *tally) add(low, high, came float64) {
	c.asked++
	c.loss += high - low
	if came < low {
		c.below++
		c.loss += (low - came) * 2 / 0.2
	} else if came > high+1 { // times are shown in seconds
		c.above++
		c.loss += (came - high) * 2 / 0.2
	}
	c.widths, c.lefts = append(c.widths, high-low), append(c.lefts, came)
}

func (c *tally) within() float64 { return 100 - c.percent(c.below) - c.percent(c.above) }

func (c *tally) percent(n int) float64 { return 100 * float64(n) / float64(c.asked) }

func (c *tally) width() float64 { slices.Sort(c.widths); return quantile(c.widths, 0.5) }

func (c *tally) String() string {
	return fmt.Sprintf("%4d asked, %4.1f%% within, %4.1f%% sooner, %4.1f%% later; median width %4.0f s, interval score %.0f",
		c.asked, c.within(), c.percent(c.below), c.percent(c.above), c.width(), c.loss/float64(c.asked))
}

// ask is a question at a random moment of the life of a bag.
type ask struct {
	bag *simulated
	at  float64
}

// calibrate asks once about each of so many bags, after those by which the estimates learn. How
// the queue stands is up to a minute old, as in use, and what was learned a quarter of an hour.
func calibrate(t *testing.T, seed uint64, warm, bags int) map[string]*tally {
	t.Helper()
	s := simulate(seed, warm+bags)
	var asks []ask
	for i, b := range s.bags[warm:] {
		asks = append(asks, ask{b, b.created + chance(i)*(b.end-b.created)})
	}
	slices.SortFunc(asks, func(a, b ask) int { return cmp.Compare(a.at, b.at) })
	groups := map[string]*tally{}
	of := func(name string, i Interval, at, end float64) {
		if groups[name] == nil {
			groups[name] = &tally{}
		}
		groups[name].add(i.Low.Sub(clock(at)).Seconds(), i.High.Sub(clock(at)).Seconds(), end-at)
	}
	var m *Model
	unknown, made := map[string]int{}, math.Inf(-1)
	for n, a := range asks {
		if a.at-made > 900 {
			m, made = New(s.recent(a.at)), a.at
		}
		read := max(math.Floor(a.at/60)*60, made)
		m.stands(registry.Recent{At: clock(read), Bands: s.bands(read), Fronts: s.fronts(read)})
		v, left := s.standing(a.bag, a.at)
		phase := "waiting"
		switch {
		case v.Started != nil && left != nil && n%2 == 0:
			phase = "running, with progress"
		case v.Started != nil:
			phase, left = "running", nil
		}
		got := m.Of(v, left)
		if got.End == nil {
			unknown[got.Unknown]++
			continue
		}
		stage, _ := a.bag.stood(a.at)
		for _, name := range []string{
			"all", phase, fmt.Sprintf("stage %d, %s", stage+1, phase), fmt.Sprintf("band %d", a.bag.band), fmt.Sprintf("half %d", 1+2*n/len(asks)),
		} {
			of(name, *got.End, a.at, a.bag.end)
		}
		of("end of the stage, "+phase, *got.StageEnd, a.at, a.bag.ended[stage])
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		t.Logf("%-33s %v", name, groups[name])
	}
	t.Logf("not known: %v", unknown)
	for reason, n := range unknown {
		if n > bags/50 {
			t.Errorf("%d of %d are not known: %s", n, bags, reason)
		}
	}
	return groups
}

// Eight of ten bags must end in the interval, and not because it is so wide that it says
// nothing: an interval that is the same for all bags would be several times as wide.
func TestEightOfTenEndInTheInterval(t *testing.T) {
	t.Parallel()
	groups := calibrate(t, 1, 1500, 5000)
	for name, g := range groups {
		least, most := 65.0, 95.0 // of a part, there are fewer and their errors are alike
		switch {
		case name == "all":
			least, most = 75, 85
		case !strings.HasPrefix(name, "stage "):
			least, most = 70, 93
		case g.asked < 150:
			continue
		}
		if in := g.within(); in < least || in > most {
			t.Errorf("%s: %.1f%% end in the interval, want %.0f to %.0f", name, in, least, most)
		}
	}
	all := groups["all"]
	slices.Sort(all.lefts)
	naive := &tally{}
	for _, left := range all.lefts {
		naive.add(quantile(all.lefts, 0.1), quantile(all.lefts, 0.9), left)
	}
	t.Logf("the same interval for all: %v", naive)
	if all.width() > naive.width()/4 || all.loss > naive.loss*3/4 {
		t.Errorf("the intervals are too wide: %v; the same for all would be: %v", all, naive)
	}
}
