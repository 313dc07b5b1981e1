package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A Stage is how far an item has come with the stage that it is at. What is
// null is not known.
type Stage struct {
	Stage  registry.Stage `json:"stage"`
	Number int            `json:"number"` // of the stages of its action, from 1; 0 if it has no order
	Of     int            `json:"of"`

	FilesDone  *int64 `json:"files_done"` // by earlier attempts too
	FilesTotal *int64 `json:"files_total"`
	BytesDone  *int64 `json:"bytes_done"`
	BytesTotal *int64 `json:"bytes_total"`

	// Of this attempt alone, without what earlier ones had done.
	Seconds        *float64 `json:"seconds"`
	FilesPerSecond *float64 `json:"files_per_second"`
	BytesPerSecond *float64 `json:"bytes_per_second"`
	SecondsLeft    *float64 `json:"seconds_left"`
	IdleSeconds    *float64 `json:"idle_seconds"` // since a figure changed

	InProgress int    `json:"in_hand_count"` // files that the attempt works on
	Files      []File `json:"in_hand"`       // the largest of them

	Measure progress.Measure `json:"measured_by"` // "bytes", "files", or "": it takes a moment
}

// A File is one in progress, or a group of small ones by its first.
type File struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes_done"`
	Size  *int64 `json:"bytes_total"`
}

// newStage puts together where an item is and what was counted of it, if
// anything was. Figures of another stage or attempt say nothing of this one; those
// of an attempt that has ended say how far it came.
func newStage(i record.WorkItem, m progress.Measure, c progress.Counters, age time.Duration, counted bool) Stage {
	v := Stage{Stage: i.Stage, Measure: m, Files: []File{}}
	if n := slices.Index(i.Order, i.Stage); i.Action == "Ingest" && n >= 0 {
		v.Number, v.Of = n+1, len(i.Order)
	}
	running := i.Status == "Started"
	if !counted || c.Stage != i.Stage || running && c.Token != i.ClaimToken || i.Status == "Success" {
		return v
	}
	v.FilesDone, v.BytesDone, v.BytesTotal = &c.Files, &c.Bytes, &c.BytesTotal
	if c.FilesTotal >= 0 {
		v.FilesTotal = &c.FilesTotal
	}
	if !running {
		return v
	}
	v.InProgress = c.Busy
	for _, h := range c.CurrentFiles {
		f := File{Path: h.Path, Files: h.Files, Bytes: h.Bytes}
		if h.Size >= 0 {
			f.Size = &h.Size
		}
		v.Files = append(v.Files, f)
	}
	v.rate(c, age)
	return v
}

const (
	// Less time says nothing of the time to come.
	leastBasis = 5 * time.Second
	// Nor does a rate while nothing moves.
	mostIdle = 2 * time.Minute
	// perFile is what a file costs beside its bytes, as so many bytes.
	perFile = 64 << 10
)

// rate adds what follows from the figures of this attempt.
func (v *Stage) rate(c progress.Counters, age time.Duration) {
	seconds, idle := (c.Elapsed + age).Seconds(), (c.Elapsed - c.Moved + age).Seconds()
	v.Seconds, v.IdleSeconds = &seconds, &idle
	spent := c.Elapsed.Seconds()
	files, bytes := c.Files-c.FilesBefore, max(c.Bytes-c.BytesBefore, 0)
	if spent < 1 || files+bytes == 0 {
		return
	}
	perSecond := func(n int64) *float64 {
		rate := float64(n) / spent
		return &rate
	}
	v.FilesPerSecond, v.BytesPerSecond = perSecond(files), perSecond(bytes)

	cost := func(files, bytes int64) float64 { return float64(files)*perFile + float64(bytes) }
	switch {
	case c.FilesTotal < 0:
		cost = func(_, bytes int64) float64 { return float64(bytes) }
	case v.Measure == progress.ByFiles:
		cost = func(files, _ int64) float64 { return float64(files) }
	}
	did, todo := cost(files, bytes), cost(max(c.FilesTotal-c.Files, 0), c.BytesTotal-c.Bytes)
	enough := c.Elapsed >= leastBasis && (did >= todo/100 || c.Elapsed >= time.Minute)
	if did <= 0 || !enough || idle > mostIdle.Seconds() {
		return
	}
	left := max(todo/did*spent-age.Seconds(), 0)
	v.SecondsLeft = &left
}

// Counts reports whether the stage has figures at all: others take a moment, or
// one statement.
func (v Stage) Counts() bool {
	return v.Measure != progress.Unmeasured
}

// Place is "stage 4 of 9, Copy To Staging".
func (v Stage) Place() string {
	if v.Of == 0 {
		return string(v.Stage)
	}
	return fmt.Sprintf("stage %d of %d, %s", v.Number, v.Of, v.Stage)
}

// Share is how much of the stage is done, from 0 to 1; false if that is not known.
func (v Stage) Share() (float64, bool) {
	switch {
	case v.BytesTotal != nil && *v.BytesTotal > 0 && (v.Measure != progress.ByFiles || v.FilesTotal == nil):
		return float64(*v.BytesDone) / float64(*v.BytesTotal), true
	case v.FilesTotal != nil && *v.FilesTotal > 0:
		return float64(*v.FilesDone) / float64(*v.FilesTotal), true
	case v.FilesTotal != nil:
		return 1, true // there is nothing to do
	}
	return 0, false
}

// Done is "12 of 40 files, 1.2 GiB of 4.0 GiB (30%)".
func (v Stage) Done() string {
	if v.FilesDone == nil {
		return "not known yet"
	}
	files := human.Count(*v.FilesDone, "file", "files")
	if v.FilesTotal != nil {
		files = fmt.Sprintf("%d of %s", *v.FilesDone, human.Count(*v.FilesTotal, "file", "files"))
	}
	text := fmt.Sprintf("%s, %s of %s", files, human.Bytes(*v.BytesDone), human.Bytes(*v.BytesTotal))
	if share, ok := v.Share(); ok {
		text += fmt.Sprintf(" (%d%%)", int(100*share))
	}
	return text
}

// Pace is "52.1 MiB/s, 14.0 files/s; about 2m50s left".
func (v Stage) Pace() string {
	var parts []string
	if v.BytesPerSecond != nil && *v.BytesPerSecond > 0 {
		parts = append(parts, human.Bytes(int64(*v.BytesPerSecond))+"/s")
	}
	if v.FilesPerSecond != nil && *v.FilesPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%.1f files/s", *v.FilesPerSecond))
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "rate not known yet"
	}
	if v.IdleSeconds != nil && *v.IdleSeconds > mostIdle.Seconds() {
		return text + "; no progress for " + human.Duration(human.Seconds(*v.IdleSeconds))
	}
	if v.SecondsLeft == nil {
		return text + "; remaining time not known yet"
	}
	return text + "; about " + human.Duration(human.Seconds(*v.SecondsLeft)) + " left"
}

// FileLines has a line for each file in progress.
func (v Stage) FileLines() (lines []string) {
	for _, f := range v.Files {
		line := human.Line(f.Path)
		if f.Files > 1 {
			line += fmt.Sprintf(" and %d more", f.Files-1)
		}
		switch {
		case f.Size == nil:
		case f.Bytes > 0 && *f.Size > 0:
			line += fmt.Sprintf(": %s of %s (%d%%)", human.Bytes(f.Bytes), human.Bytes(*f.Size), 100*f.Bytes / *f.Size)
		default:
			line += ", " + human.Bytes(*f.Size)
		}
		lines = append(lines, line)
	}
	if more := v.InProgress - len(v.Files); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}

// Stage reads how far an item has come with its stage. An error is that of
// Redis; the view is good without it.
func (s Source) Stage(ctx context.Context, i record.WorkItem) (Stage, error) {
	measure := s.Measures[i.Stage]
	if s.Progress == nil {
		return newStage(i, measure, progress.Counters{}, 0, false), nil
	}
	ctx, cancel := context.WithTimeout(ctx, mostAsked)
	defer cancel()
	c, age, ok, err := s.Progress.Counters(ctx, i.ID)
	return newStage(i, measure, c, age, ok), err
}
