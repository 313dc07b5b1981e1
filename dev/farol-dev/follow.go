package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
)

// follower draws a bar for each bag on a terminal, and elsewhere prints a line
// when a bag ends, and when a stage takes so long that its figures are known.
type follower struct {
	out      io.Writer
	progress *mpb.Progress
	bars     map[string]*mpb.Bar
	ended    map[int64]bool
	began    time.Time
	bytes    int64 // of the bags that ended
	all      *mpb.Bar
	printed  map[string]bool // items at stages

	mu sync.Mutex // bars are drawn by another goroutine
	at map[string]string
}

func newFollower(out io.Writer, round []sample) *follower {
	f := &follower{out: out, bars: map[string]*mpb.Bar{}, at: map[string]string{}, ended: map[int64]bool{}, printed: map[string]bool{}, began: time.Now()}
	if file, ok := out.(*os.File); !ok || !cli.IsTerminal(file) {
		return f
	}
	f.progress = mpb.New(mpb.WithOutput(out), mpb.WithWidth(max(cli.TerminalWidth(out), 20)), mpb.WithRefreshRate(100*time.Millisecond))
	width := min(34, max(cli.TerminalWidth(out)/3, 10))
	for _, s := range round {
		name := s.institution + "/" + s.key
		f.at[name] = "waiting"
		f.bars[name] = f.progress.AddBar(int64(len(settings.StageNames())),
			mpb.BarWidth(12), mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-*s", width, human.Shorten(name, width)))),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + f.where(name) })))
	}
	f.all = f.progress.AddBar(int64(len(round)), mpb.BarWidth(12), mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-*s", width, "all bags"))),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + f.sum() })))
	return f
}

func (f *follower) where(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[name]
}

// sum is how far all bags together are: what has ended, its bytes, their rate, and time.
func (f *follower) sum() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := time.Since(f.began)
	return fmt.Sprintf("%d ended, %s, %s/s, %s", len(f.ended), human.Bytes(f.bytes), human.Bytes(int64(float64(f.bytes)/max(took.Seconds(), 0.1))), human.Duration(took))
}

func (f *follower) update(item record.WorkItem, stage explain.Stage) {
	name := item.Institution + "/" + item.Name
	if f.progress == nil {
		f.print(name, item, stage)
		return
	}
	bar, ok := f.bars[name]
	if !ok {
		return
	}
	f.mu.Lock()
	f.at[name] = fmt.Sprintf("%s %s, %s", item.Stage, strings.ToLower(string(item.Status)), human.Bytes(item.Size))
	if !item.Retry && !f.ended[item.ID] {
		f.ended[item.ID] = true
		f.bytes += item.Size
	}
	ended := len(f.ended)
	if item.Status == "Started" && stage.FilesDone != nil {
		f.at[name] = fmt.Sprintf("%s %s, %s", item.Stage, stage.Done(), stage.Pace())
	}
	f.mu.Unlock()
	f.all.SetCurrent(int64(ended))
	for i, stage := range settings.StageNames() {
		if stage == string(item.Stage) {
			bar.SetCurrent(int64(i))
		}
	}
	switch {
	case item.Status == "Success":
		bar.SetCurrent(int64(len(settings.StageNames())))
	case !item.Retry:
		bar.Abort(false)
	}
}

// print prints what has changed.
func (f *follower) print(name string, item record.WorkItem, stage explain.Stage) {
	at := fmt.Sprint(item.ID, item.Stage)
	switch {
	case !item.Retry && !f.ended[item.ID]:
		f.ended[item.ID] = true
		f.line(fmt.Sprintf("  %-34s %s at %s", name, item.Status, item.Stage))
	case item.Status == "Started" && stage.FilesDone != nil && !f.printed[at]:
		f.printed[at] = true
		f.line(fmt.Sprintf("  %-34s %s: %s, %s", name, stage.Place(), stage.Done(), stage.Pace()))
	}
}

func (f *follower) line(text string) { fmt.Fprintln(f.out, cli.CutTo(text, cli.TerminalWidth(f.out))) }

func (f *follower) close() {
	if f.progress == nil {
		return
	}
	for _, b := range f.bars { // one that has not ended would be waited for
		b.Abort(false)
	}
	f.all.Abort(false)
	f.progress.Wait()
}
