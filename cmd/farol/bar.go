package main

import (
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar shows how far something long has come, if there is somebody to see it. Its
// methods work on nil too.
type bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// newBar counts up to total, as counters writes it.
func newBar(total int64, counters decor.Decorator) *bar {
	if !isTerminal(os.Stderr) {
		return nil
	}
	p := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(60), mpb.WithRefreshRate(200*time.Millisecond))
	return &bar{p, p.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(counters),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)))}
}

func (b *bar) set(n int64) {
	if b != nil {
		b.bar.SetCurrent(n)
	}
}

func (b *bar) end() {
	if b != nil {
		b.bar.Abort(true)
		b.progress.Wait()
	}
}
