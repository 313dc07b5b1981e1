package picture

import (
	"strings"
	"testing"
)

// Bars stand on the base, reach no higher than the chart, and no chart has more than 120.
func TestChartsFit(t *testing.T) {
	t.Parallel()
	var bars []Bar
	var line []float64
	for i := range 300 {
		bars = append(bars, Bar{"day", []float64{float64(i), 7}})
		line = append(line, float64(2*i))
	}
	c := NewChart("Trials", []string{"a", "b"}, bars, line, OfCounts)
	if n := len(c.Rects); n != 2*MostBars {
		t.Errorf("%d bars", n)
	}
	for _, r := range c.Rects {
		if r.Y < 0 || r.Y+r.H > c.Base+0.2 || r.X < chartLeft || r.X+r.W > chartWidth {
			t.Errorf("%+v is outside of the chart", r)
		}
	}
	if n := strings.Count(c.Line, "L"); n != MostBars-1 || !strings.HasPrefix(c.Line, "M") {
		t.Errorf("the line has %d parts", n)
	}
	for v, want := range map[float64]float64{0.5: 1, 1: 1, 3: 4, 30: 40, 41: 100, 950: 1000, 1000: 1000, 1001: 2000} {
		if got := OfCounts.roundUp(v); got != want {
			t.Errorf("an axis up to %v ends at %v, not %v", v, got, want)
		}
	}
	if got := OfBytes.roundUp(3 << 20); got != 4<<20 {
		t.Errorf("an axis of bytes ends at %v", got)
	}
	if c := NewChart("Nothing", []string{"a"}, []Bar{{"x", []float64{0}}}, nil, OfCounts); c != nil {
		t.Errorf("nothing is drawn as %+v", c)
	}
}
