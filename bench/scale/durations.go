package scale

import (
	_ "embed" // the durations that were measured
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measured has how long the stages of bags lasted that were ingested one at a time on the
// development stack, by durations.sql.
//
//go:embed durations.csv
var measured string

// durations are how long stages last, by the size of the bag.
type durations struct {
	text  string // for the workers, as it was read
	sizes []int64
	bags  map[int64]int // that the figures of a size are from
	of    map[stageOf]quantiles
}

type stageOf struct {
	stage string
	size  int64
}

// percents are the columns of a line behind stage, size and bags.
func percents() []float64 { return []float64{0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99, 1} }

// quantiles are seconds at each of the percents.
type quantiles []float64

// at is the time that a share u of the stages do not exceed.
func (q quantiles) at(u float64) time.Duration {
	p := percents()
	i := 1
	for i < len(p)-1 && u > p[i] {
		i++
	}
	s := q[i-1] + (q[i]-q[i-1])*(u-p[i-1])/(p[i]-p[i-1])
	return time.Duration(s * float64(time.Second))
}

// mean is what at is on average.
func (q quantiles) mean() time.Duration {
	p, s := percents(), 0.0
	for i := 1; i < len(p); i++ {
		s += (q[i-1] + q[i]) / 2 * (p[i] - p[i-1])
	}
	return time.Duration(s * float64(time.Second))
}

// readDurations reads a file made by durations.sql; "" is what is built in.
func readDurations(path string) (durations, error) {
	text := measured
	if path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return durations{}, fmt.Errorf("read the durations: %w", err)
		}
		text = string(b)
	}
	return parseDurations(text)
}

func parseDurations(text string) (durations, error) {
	d := durations{text: text, bags: map[int64]int{}, of: map[stageOf]quantiles{}}
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return d, fmt.Errorf("read the durations: %w", err)
	}
	if len(lines) < 2 {
		return d, errors.New("read the durations: there is no line behind the heading")
	}
	for i, line := range lines[1:] {
		if len(line) != 3+len(percents()) {
			return d, fmt.Errorf("line %d of the durations has %d columns", i+2, len(line))
		}
		var q quantiles
		for _, word := range line[3:] {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return d, fmt.Errorf("line %d of the durations: %w", i+2, err)
			}
			q = append(q, v)
		}
		size, sizeErr := strconv.ParseInt(line[1], 10, 64)
		bags, bagsErr := strconv.Atoi(line[2])
		if err := errors.Join(sizeErr, bagsErr); err != nil {
			return d, fmt.Errorf("line %d of the durations: %w", i+2, err)
		}
		if !slices.IsSorted(q) || q[0] < 0 {
			return d, fmt.Errorf("line %d of the durations: times must grow from column to column", i+2)
		}
		d.of[stageOf{line[0], size}] = q
		d.bags[size] = max(d.bags[size], bags)
		if !slices.Contains(d.sizes, size) {
			d.sizes = append(d.sizes, size)
		}
	}
	slices.Sort(d.sizes)
	return d, nil
}

// near is the largest size that there are figures for and that is not above size, or the smallest.
func (d durations) near(size int64) int64 {
	i, found := slices.BinarySearch(d.sizes, size)
	if !found {
		i = max(i-1, 0)
	}
	return d.sizes[i]
}

// draw is how long a stage of a bag lasts this time. A stage without figures takes no time.
func (d durations) draw(stage string, size int64) time.Duration {
	q := d.of[stageOf{stage, d.near(size)}]
	if q == nil {
		return 0
	}
	return q.at(rand.Float64())
}

// total is how long some stages of a bag last on average; nil: all.
func (d durations) total(size int64, stages []string) (sum time.Duration) {
	size = d.near(size)
	for of, q := range d.of {
		if of.size == size && (stages == nil || slices.Contains(stages, of.stage)) {
			sum += q.mean()
		}
	}
	return sum
}

// mix is what is deposited: bags of some sizes, each as often as its weight says.
type mix struct {
	name    string
	sizes   []int64
	weights []float64 // they add up to 1
}

// mixes are the sizes of the bags in the built-in durations, and one with all of them. The sizes
// are those of bags of 3 files of 4 KiB, 20 of 64 KiB, 3,000 of 1 KiB, and one of 512 MiB and of 2 GiB.
func mixes() map[string]map[int64]float64 {
	const tiny, small, many, large, huge = 16 << 10, 1 << 20, 4 << 20, 512 << 20, 2 << 30
	return map[string]map[int64]float64{
		"tiny": {tiny: 1}, "small": {small: 1}, "many": {many: 1}, "large": {large: 1}, "huge": {huge: 1},
		"mixed": {tiny: 40, small: 40, many: 12, large: 7, huge: 1},
	}
}

func newMix(name string, d durations) (mix, error) {
	weights := mixes()[name]
	if name == "file" {
		weights = map[int64]float64{}
		for size, bags := range d.bags {
			weights[size] = float64(bags)
		}
	}
	if weights == nil {
		return mix{}, fmt.Errorf("there are no %q bags", name)
	}
	m := mix{name: name}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for size, w := range weights {
		m.sizes, m.weights = append(m.sizes, size), append(m.weights, w/sum)
	}
	return m, nil
}

// draw is the size of a bag.
func (m mix) draw() int64 {
	u := rand.Float64()
	for i, w := range m.weights {
		if u -= w; u < 0 {
			return m.sizes[i]
		}
	}
	return m.sizes[len(m.sizes)-1]
}

// time is how long some stages of a bag (nil: all) last on average, of those of the sizes from least to below
// most (0: no bound), as a share of all bags.
func (m mix) time(d durations, least, most int64, stages []string) (sum time.Duration) {
	for i, size := range m.sizes {
		if size >= least && (most == 0 || size < most) {
			sum += time.Duration(m.weights[i] * float64(d.total(size, stages)))
		}
	}
	return sum
}
