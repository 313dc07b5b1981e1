package queue

import (
	"strings"
	"testing"
)

func cell(system string, workers, batch int, hops ...int64) *result {
	r := &result{Workload: "steady", System: system, Durable: "yes", Load: load{Workers: workers, Batch: batch}}
	for _, n := range hops {
		r.Runs = append(r.Runs, figures{Hops: n, Seconds: 1})
	}
	return r
}

// One slow run must not make a system look slow, nor one fast run fast.
func TestTheMedianIsPrintedWithTheRange(t *testing.T) {
	t.Parallel()
	mid, low, high := cell("nsq", 64, 0, 900, 10, 1000).median()
	if mid.Hops != 900 || low != 10 || high != 1000 {
		t.Errorf("median %d of %v–%v", mid.Hops, low, high)
	}
}

// A peer that hands out single messages is compared with single claims, and in
// the summary with Farol's best, by its own best.
func TestPeersAreComparedWithTheirLikes(t *testing.T) {
	t.Parallel()
	table := []*result{
		cell("farol", 64, 1, 200), cell("farol", 64, 100, 1000), cell("farol", 8, 100, 800),
		cell("nsq", 64, 0, 100), cell("nsq", 512, 0, 500), cell("nats", 8, 100, 400),
	}
	for i, want := range []string{"–", "–", "–", "2.00×", "–", "2.00×"} {
		if got := ahead(table, table[i]); got != want {
			t.Errorf("%s %+v: %s, want %s", table[i].System, table[i].Load, got, want)
		}
	}
	var out strings.Builder
	bests(&out, table)
	for _, want := range []string{
		"farol\tyes\t64\t100\t1000\t–\n", "nsq\tyes\t512\t–\t500\t2.00×\n", "nats\tyes\t8\t100\t400\t2.50×\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}

// A failed cell has no figure that could be taken for one.
func TestFailuresStandInTheTable(t *testing.T) {
	t.Parallel()
	bad := cell("river", 64, 0, 5000)
	bad.Failed = "item 3 left\nstage 2 twice"
	table := []*result{cell("farol", 64, 1, 200), bad}
	var out strings.Builder
	rates(&out, table)
	if !strings.Contains(out.String(), "FAILED: item 3 left stage 2 twice") || strings.Contains(out.String(), "5000") {
		t.Errorf("got %s", out.String())
	}
	b := &bench{results: table}
	if err := b.failures(); err == nil {
		t.Error("the program would succeed")
	}
}
