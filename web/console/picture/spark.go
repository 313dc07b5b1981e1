package picture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Size of a spark line, in units of its drawing.
const (
	sparkWide = 480
	sparkHigh = 64

	sparkHours = 24
)

// Spark is a line of numbers over hours, as an SVG and as a table.
type Spark struct {
	Title  string // what is counted
	Hours  []sparkHour
	Line   string // path of the line
	Area   string // path of the area below it
	Most   int64  // in one hour
	Sum    int64
	Recent int64 // in the last 60 minutes
	Bytes  int64
	Height int
	Width  int
}

// sparkHour is an hour, with how many.
type sparkHour struct {
	At time.Time
	N  int64
}

// SparkOf counts the items that ended in one of the statuses in each of the last 24 hours.
func SparkOf(title string, now time.Time, ended []record.Ended, statuses ...registry.Status) Spark {
	s := Spark{Title: title, Height: sparkHigh, Width: sparkWide}
	first := now.UTC().Truncate(time.Hour).Add(-(sparkHours - 1) * time.Hour)
	for i := range sparkHours {
		s.Hours = append(s.Hours, sparkHour{At: first.Add(time.Duration(i) * time.Hour)})
	}
	for _, e := range ended {
		i := int(e.Hour.Sub(first) / time.Hour)
		if e.Hour.Before(first) || i >= sparkHours || !slices.Contains(statuses, e.Status) {
			continue
		}
		s.Hours[i].N += e.Items
		s.Sum, s.Recent, s.Bytes, s.Most = s.Sum+e.Items, s.Recent+e.Recent, s.Bytes+e.Bytes, max(s.Most, s.Hours[i].N)
	}
	var line strings.Builder
	for i, h := range s.Hours {
		x, y := float64(i)*sparkWide/(sparkHours-1), float64(sparkHigh-2)
		if s.Most > 0 {
			y -= float64(h.N) * (sparkHigh - 6) / float64(s.Most)
		}
		fmt.Fprintf(&line, "%c%.1f %.1f", map[bool]rune{true: 'M', false: 'L'}[i == 0], x, y)
	}
	s.Line = line.String()
	s.Area = fmt.Sprintf("%sL%d %dL0 %dZ", s.Line, sparkWide, sparkHigh, sparkHigh)
	return s
}
