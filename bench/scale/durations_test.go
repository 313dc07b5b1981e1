package scale

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
)

const twoSizes = `stage,size,bags,p0,p10,p25,p50,p75,p90,p99,p100
Receive,1024,3,1,1,1,1,1,1,1,1
Store,1024,3,0,2,2,2,2,2,2,2
Receive,4096,1,10,10,10,10,10,10,10,10
`

// What is drawn often enough has the mean that the load is computed from.
func TestDrawsHaveTheirMean(t *testing.T) {
	t.Parallel()
	q := quantiles{0, 1, 1, 4, 8, 9, 20, 100}
	const n = 100_000
	sum := 0.0
	for i := range n {
		sum += q.at((float64(i) + 0.5) / n).Seconds()
	}
	if got, want := sum/n, q.mean().Seconds(); math.Abs(got-want) > 0.001*want {
		t.Errorf("the mean of draws is %v, computed %v", got, want)
	}
	for u, want := range map[float64]time.Duration{0: 0, 0.5: 4 * time.Second, 0.95: 9*time.Second + 11*time.Second*5/9, 1: 100 * time.Second} {
		if got := q.at(u); (got - want).Abs() > time.Microsecond {
			t.Errorf("at %v it is %v, want %v", u, got, want)
		}
	}
}

// A bag is like the largest that was measured and is not larger.
func TestBagsAreLikeThoseThatWereMeasured(t *testing.T) {
	t.Parallel()
	d, err := parseDurations(twoSizes)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]int64{1: 1024, 1024: 1024, 4095: 1024, 4096: 4096, 1 << 40: 4096} {
		if got := d.near(size); got != want {
			t.Errorf("a bag of %d bytes is like one of %d, want %d", size, got, want)
		}
	}
	if got := d.total(2000, nil); got != 2900*time.Millisecond { // 1 s, and 2 s but for the lowest tenth, which is 1 s on average
		t.Errorf("a bag takes %v", got)
	}
	if got := d.draw("Cleanup", 2000); got != 0 {
		t.Errorf("a stage without figures takes %v", got)
	}
}

func TestDurationsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	head, _, _ := strings.Cut(twoSizes, "\n")
	for name, text := range map[string]string{
		"nothing":            "",
		"only a heading":     head + "\n",
		"a column too few":   "stage,size\nReceive,1024\n",
		"no number":          head + "\nReceive,1024,3,1,1,1,x,1,1,1,1\n",
		"times that shrink":  head + "\nReceive,1024,3,1,1,1,1,1,1,1,0.5\n",
		"times before zero":  head + "\nReceive,1024,3,-1,1,1,1,1,1,1,1\n",
		"a size of no bytes": head + "\nReceive,big,3,1,1,1,1,1,1,1,1\n",
	} {
		if _, err := parseDurations(text); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

// Each stage has figures for each size that can be asked for by name.
func TestAllStagesWereMeasured(t *testing.T) {
	t.Parallel()
	d, err := readDurations("")
	if err != nil {
		t.Fatal(err)
	}
	for name, weights := range mixes() {
		for size := range weights {
			if near := d.near(size); near*4 <= size || near > size {
				t.Errorf("%s: bags of %d bytes are like those of %d", name, size, near)
			}
			for _, s := range ingest.Steps(pipeline.Deps{}) {
				if d.of[stageOf{s.Name(), d.near(size)}] == nil {
					t.Errorf("%s: %s has no figures for %d bytes", name, s.Name(), size)
				}
			}
		}
	}
}

// The load is what the busiest pool can do, and requests have pools of their own.
func TestLoadIsWhatTheBusiestPoolCanDo(t *testing.T) {
	t.Parallel()
	d, err := parseDurations(twoSizes)
	if err != nil {
		t.Fatal(err)
	}
	bags := mix{sizes: []int64{1024, 4096}, weights: []float64{0.5, 0.5}} // 2.9 s and 10 s each
	pools, err := settings.ParsePools("few=Receive..Cleanup;max=4KiB;slots=8\nlarge=Receive..Cleanup;min=4KiB;slots=2\nrequests=Delete;slots=100")
	if err != nil {
		t.Fatal(err)
	}
	if rate, slots := offer(pools, bags, d); math.Abs(rate-0.4) > 1e-9 || slots != 10 { // 2 slots, 5 s for each bag of any size
		t.Errorf("a worker could do %v bags a second with %d slots, want 0.4 with 10", rate, slots)
	}
	if rate, slots := offer(pools[:1], mix{sizes: []int64{1024}, weights: []float64{1}}, d); math.Abs(rate-8/2.9) > 1e-9 || slots != 8 {
		t.Errorf("a worker could do %v bags a second with %d slots", rate, slots)
	}
	split := []pipeline.Pool{{Stages: []string{"Receive"}, Slots: 8}, {Stages: []string{"Store"}, Slots: 1}}
	if rate, slots := offer(split, bags, d); math.Abs(rate-1/0.95) > 1e-9 || slots != 8 { // half of all bags take 1.9 s at Store
		t.Errorf("a worker with a pool for each stage could do %v bags a second and has %d slots for new ones", rate, slots)
	}
	if rate, _ := offer(pools[2:], bags, d); rate != 0 {
		t.Errorf("a worker without pools for bags could do %v bags a second", rate)
	}
}

// Bags are deposited as often as their weights say.
func TestMixIsDrawnByItsWeights(t *testing.T) {
	t.Parallel()
	d, err := parseDurations(twoSizes)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMix("file", d)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(m.sizes, 1024)
	if len(m.sizes) != 2 || i < 0 || m.weights[i] != 0.75 || m.weights[1-i] != 0.25 {
		t.Errorf("sizes %v have weights %v", m.sizes, m.weights)
	}
	const n = 10_000
	small := 0
	for range n {
		if m.draw() == 1024 {
			small++
		}
	}
	if share := float64(small) / n; math.Abs(share-0.75) > 0.05 { // ten standard deviations
		t.Errorf("%v of the bags are small, want 0.75", share)
	}
	if _, err := newMix("enormous", d); err == nil {
		t.Error("a mix that there is not was accepted")
	}
}
