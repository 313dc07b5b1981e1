// Package picture draws figures. In come numbers by day or hour; out go the coordinates of bars
// and lines, for templates that have the same figures as a table, too.
package picture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/web/console/words"
)

// Size of a chart, in the units of its own coordinates.
const (
	chartWidth  = 720
	chartHeight = 200
	chartLeft   = 72 // for the labels of values
	chartBottom = 24 // for the labels of bars
	chartRight  = 24
	widestBar   = 64
	MostBars    = 120
)

// Bar is a value of a chart, with the values that are stacked on it.
type Bar struct {
	Label string
	Parts []float64
}

// Chart is a picture of figures that are also in a table.
type Chart struct {
	Title  string
	Width  int
	Height int
	Left   int
	Base   float64 // where bars stand
	Rects  []rect
	Lines  []gridLine
	Labels []chartLabel
	Line   string // path of a line over the bars; "": none
	Keys   []string
}

type (
	rect struct {
		X, Y, W, H float64
		Part       int
		About      string // what it stands for
	}
	gridLine struct {
		Y, TextY float64
		Text     string
	}
	chartLabel struct {
		X    float64
		Text string
	}
)

// NewChart draws bars, up to mostBars of the last. keys name the parts of a bar; line has a
// value for each bar, or none. Where all is 0 there is nothing to draw: nil.
func NewChart(title string, keys []string, bars []Bar, line []float64, unit unit) *Chart {
	word := unit.word
	if len(bars) > MostBars {
		if line != nil {
			line = line[len(line)-MostBars:]
		}
		bars = bars[len(bars)-MostBars:]
	}
	c := &Chart{Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Base: chartHeight - chartBottom, Keys: keys}
	most := 0.0
	for i, b := range bars {
		sum := 0.0
		for _, v := range b.Parts {
			sum += v
		}
		most = max(most, sum)
		if line != nil {
			most = max(most, line[i])
		}
	}
	if most == 0 {
		return nil
	}
	top := unit.roundUp(most)
	y := func(v float64) float64 { return tenth(c.Base - v/top*(c.Base-8)) }
	for _, share := range []float64{0, 0.5, 1} {
		at := y(top * share)
		c.Lines = append(c.Lines, gridLine{at, at + 4, word(top * share)})
	}
	step := min(float64(chartWidth-chartLeft-chartRight)/float64(max(len(bars), 1)), widestBar)
	every := max(len(bars)/8, 1)
	var path strings.Builder
	for i, b := range bars {
		x, at := chartLeft+float64(i)*step, 0.0
		for part, v := range b.Parts {
			if v > 0 && part < len(keys) {
				c.Rects = append(c.Rects, rect{
					tenth(x + step*0.1), y(at + v), tenth(max(step*0.8, 1)), tenth(y(at) - y(at+v)), part, b.Label + ", " + keys[part] + ": " + word(v),
				})
			}
			at += v
		}
		if i%every == 0 {
			c.Labels = append(c.Labels, chartLabel{tenth(x + step/2), b.Label})
		}
		if line != nil {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x+step/2, y(line[i]))
		}
	}
	c.Line = path.String()
	return c
}

func tenth(v float64) float64 { return math.Round(v*10) / 10 }

// unit is what a chart shows.
type unit string

// What a chart can show.
const (
	OfBytes  unit = "bytes"
	OfCounts unit = "counts"
)

// word makes a value readable.
func (u unit) word(v float64) string {
	if u == OfBytes {
		return words.Bytes(v).Short()
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// roundUp is the next round number, for the end of an axis.
func (u unit) roundUp(v float64) float64 {
	base, of := 1.0, 10.0
	if u == OfBytes {
		of = 1024
	}
	for base*of <= v {
		base *= of
	}
	for _, m := range []float64{1, 2, 4, 10, 20, 50, 100, 200, 500} {
		if m < of && v <= m*base {
			return m * base
		}
	}
	return of * base
}
