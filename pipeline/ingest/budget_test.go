package ingest

import (
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
)

// What a large bag costs of the network and the store, in bytes for each byte of its payload: one is
// read, at Receive, and two are written, one for each copy. To identify formats takes a little more.
// Where the store cannot copy out of the receiving bucket, the bytes pass through the worker once
// more, for the first copy; the store makes the second of that.
func TestBytesOfALargeBag(t *testing.T) {
	t.Parallel()
	const size = 264 << 20 // more than fits into one part
	for name, again := range map[string]float64{"that the store copies": 0, "that passes through the worker": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Deposit("large.tar", a.Bag(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/film", Size: size - 8<<20}, {Path: "data/sound", Size: 8 << 20}}}))
			wires := []interface{ Moved() pipelinetest.Moved }{a.Wired()}
			if receiving := a.Deps.Receiving; again > 0 {
				wires = append(wires, a.Wired())
				a.Deps.Receiving = receiving // at another endpoint
			}
			engine := a.Engine()
			var before pipelinetest.Moved
			read, written := 0.0, 0.0 // for each byte of the payload
			for _, step := range Steps(a.Deps) {
				a.One(engine, step.Stage)
				var all pipelinetest.Moved
				for _, w := range wires {
					m := w.Moved()
					all.Read, all.Written = all.Read+m.Read, all.Written+m.Written
				}
				passed := all.Since(before)
				before = all
				const lists, heads = 0.001, 0.02
				want := map[registry.Stage][2]float64{
					"Receive": {1 + lists, lists}, "Format Identification": {heads, lists}, "Store": {again + lists, 2 + lists},
				}
				most, ok := want[step.Stage]
				if !ok {
					most = [2]float64{lists, lists}
				}
				r, wr := float64(passed.Read)/size, float64(passed.Written)/size
				t.Logf("%s: %.4f read and %.4f written for each byte", step.Stage, r, wr)
				if r > most[0] || wr > most[1] {
					t.Errorf("%s: %.4f bytes were read and %.4f written for each byte of the payload, want %.4f and %.4f at most", step.Stage, r, wr, most[0], most[1])
				}
				read, written = read+r, written+wr
			}
			if item := a.Item(1); item.Status != "Success" || read < 1 || written < 2 {
				t.Errorf("%.4f bytes were read and %.4f written for each byte, which cannot be; item %+v", read, written, item)
			}
		})
	}
}
