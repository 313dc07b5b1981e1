package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/registry"
)

// follower draws a bar for each bag on a terminal, and elsewhere prints a line
// when a bag ends.
type follower struct {
	out      io.Writer
	progress *mpb.Progress
	bars     map[string]*mpb.Bar
	at       map[string]string
	ended    map[int64]bool
}

func newFollower(out io.Writer, round []sample) *follower {
	f := &follower{out: out, bars: map[string]*mpb.Bar{}, at: map[string]string{}, ended: map[int64]bool{}}
	if file, ok := out.(*os.File); !ok || !isTerminal(file) {
		return f
	}
	f.progress = mpb.New(mpb.WithOutput(out), mpb.WithWidth(30), mpb.WithRefreshRate(100*time.Millisecond))
	for _, s := range round {
		name := s.institution + "/" + s.key
		f.at[name] = "waiting"
		f.bars[name] = f.progress.AddBar(int64(len(stageNames())),
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-34s", name))),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return f.at[name] })))
	}
	return f
}

func (f *follower) update(item registry.WorkItem) {
	name := item.Institution + "/" + item.Name
	if f.progress == nil {
		if !item.Retry && !f.ended[item.ID] {
			f.ended[item.ID] = true
			fmt.Fprintf(f.out, "  %-34s %s at %s\n", name, item.Status, item.Stage)
		}
		return
	}
	bar, ok := f.bars[name]
	if !ok {
		return
	}
	f.at[name] = item.Stage + " " + strings.ToLower(item.Status)
	for i, stage := range stageNames() {
		if stage == item.Stage {
			bar.SetCurrent(int64(i))
		}
	}
	switch {
	case item.Status == "Success":
		bar.SetCurrent(int64(len(stageNames())))
	case !item.Retry:
		bar.Abort(false)
	}
}

func (f *follower) close() {
	if f.progress != nil {
		f.progress.Wait()
	}
}
