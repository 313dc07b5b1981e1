package cli

import (
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Bar shows how far something long has come, if there is someone to see it. Its
// methods work on nil too.
type Bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// NewBar counts up to total, as counters writes it.
func NewBar(total int64, counters decor.Decorator) *Bar {
	if !IsTerminal(os.Stderr) {
		return nil
	}
	p := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(60), mpb.WithRefreshRate(200*time.Millisecond))
	return &Bar{p, p.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(counters),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)))}
}

// Set moves the bar to n.
func (b *Bar) Set(n int64) {
	if b != nil {
		b.bar.SetCurrent(n)
	}
}

// End removes the bar.
func (b *Bar) End() {
	if b != nil {
		b.bar.Abort(true)
		b.progress.Wait()
	}
}
