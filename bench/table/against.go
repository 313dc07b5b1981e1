package table

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/farol-preservation/farol/bench/rig"
)

// side is a build of Farol that is measured. This program measures all of them, against the
// limits of the same run.
type side struct {
	of    string // a commit, or this tree
	farol string
	queue func(ctx context.Context, args ...string) ([]byte, error) // the program queue
}

// sideOf builds another commit in dir; its queue, too, if that is measured.
func sideOf(ctx context.Context, rev, dir string, queue bool) (s side, err error) {
	tree, err := rig.Checkout(ctx, "..", rev, dir)
	if err != nil {
		return s, err
	}
	if queue {
		if err := tree.BuildBench(ctx, "queue"); err != nil {
			return s, err
		}
	}
	s = side{of: tree.Commit, queue: tree.Bench}
	s.farol, err = tree.BuildFarol(ctx, filepath.Join(dir, "built"))
	return s, err
}

// inTurn measures this tree, the other, the other and this tree: if the machine gets slower
// in the course of a run, it does so for both.
func inTurn(sides []side, measure func(side) (result, error)) (result, error) {
	if len(sides) == 1 {
		return measure(sides[0])
	}
	var turns []result
	for _, i := range []int{0, 1, 1, 0} {
		r, err := measure(sides[i])
		if err != nil {
			return r, err
		}
		turns = append(turns, r)
	}
	now, before := turns[0].mean(turns[3]), turns[1].mean(turns[2])
	before.of, now.before = sides[1].of, &before
	return now, nil
}

// mean is the mean of two runs; the counts are of both, and the peaks those of the larger.
func (r result) mean(b result) result {
	r.counts = r.plus(b.counts, 1)
	r.wall, r.rate, r.neighbours = (r.wall+b.wall)/2, (r.rate+b.rate)/2, (r.neighbours+b.neighbours)/2
	r.least.seconds = (r.least.seconds + b.least.seconds) / 2
	if r.used.cpu == nil { // no bag was ingested
		return r
	}
	all := usage{cpu: map[string]float64{}, peak: map[string]float64{}}
	for _, u := range []usage{r.used, b.used} {
		for name, seconds := range u.cpu {
			all.cpu[name] += seconds / 2
			all.peak[name] = max(all.peak[name], u.peak[name])
		}
	}
	r.used = all
	return r
}

// loss is how many times as long as before is named in the end: less may be noise.
const loss = 1.1

// compared prints the other commit next to this tree, and what got slower.
func compared(w io.Writer, results []result) {
	if len(results) == 0 || results[0].before == nil {
		return
	}
	fmt.Fprintf(w, "\nnext to %s\twall s\tbefore\tnow/before\twall/least\tbefore\tCPU s\tbefore\tnow/before\ttransitions/s\tbefore\n", results[0].before.of)
	var lost []string
	for _, r := range results {
		b := r.before
		wall, wallBefore, time, cpu := r.wall, b.wall, r.wall/b.wall, r.cpu()/b.cpu()
		if r.name == transitionsName {
			wall, wallBefore, time = math.NaN(), math.NaN(), b.rate/r.rate
		}
		fmt.Fprint(w, r.name)
		for _, x := range []float64{wall, wallBefore, time, r.ratio(), b.ratio(), r.cpu(), b.cpu(), cpu, r.rate, b.rate} {
			fmt.Fprintf(w, "\t%s", figure(x))
		}
		fmt.Fprintln(w)
		if time >= loss {
			lost = append(lost, fmt.Sprintf("%s (time × %s)", r.name, figure(time)))
		}
		if cpu >= loss {
			lost = append(lost, fmt.Sprintf("%s (CPU × %s)", r.name, figure(cpu)))
		}
	}
	if lost == nil {
		lost = []string{"nothing"}
	}
	fmt.Fprintf(w, "\nSlower by a tenth or more: %s.\n", strings.Join(lost, ", "))
}
