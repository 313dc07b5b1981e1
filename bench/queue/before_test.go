package queue

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/bench/rig"
)

// A round of the other commit has all cells of a workload, also of variants that nobody asked for. Each is
// given out once, so that the next round is measured again.
func TestCellsOfAnotherCommitAreGivenOutOnce(t *testing.T) {
	t.Parallel()
	o := &before{}
	err := o.read([]byte(`{"cores": 2, "results": [
		{"workload": "drain", "system": "farol-carried", "backlog": 500, "load": {"workers": 8, "batch": 100, "drain": true}, "runs": [{"hops": 1, "seconds": 1}]},
		{"workload": "drain", "system": "farol", "backlog": 500, "load": {"workers": 64, "batch": 1, "drain": true}, "runs": [{"hops": 2}], "failed": "item 3 left"},
		{"workload": "drain", "system": "farol", "backlog": 500, "load": {"workers": 8, "batch": 100, "drain": true},
			"runs": [{"hops": 4500, "seconds": 2, "p50_ms": 7, "commits": 9, "wal_bytes": 99}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	cell := &result{Workload: "drain", System: "farol-before", Backlog: 500, Load: load{Workers: 8, Batch: 100, Drain: true}}
	f, found, err := o.take(cell)
	if !found || err != nil || f.rate() != 2250 || f.P50 != 7 || f.Commits != 9 || f.WAL != 99 {
		t.Errorf("the cell is %+v, %v, %v", f, found, err)
	}
	if f, found, err = o.take(cell); found || err != nil {
		t.Errorf("a second time the cell is %+v, %v", f, err)
	}
	cell.Load = load{Workers: 64, Batch: 1, Drain: true}
	if f, found, err = o.take(cell); !found || err == nil || err.Error() != "item 3 left" {
		t.Errorf("the failed cell is %+v, %v, %v", f, found, err)
	}
	if err := o.read(nil); err == nil {
		t.Error("a program that printed nothing has figures")
	}
}

// Without its history a repository can still be measured, but not without a commit that is asked for.
func TestOnlyTheUsualCommitMayBeMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	for rev, skipped := range map[string]bool{fastest: true, "v1": false} {
		_, err := (&before{rev: rev}).start(t.Context(), &servers{&rig.Servers{Dir: t.TempDir()}})
		if err == nil || errors.Is(err, errMissing) != skipped {
			t.Errorf("%s came to %v", rev, err)
		}
	}
	for against, want := range map[string]bool{"": false, "v1": true} {
		if got := len(choose(contenders(config{against: against}), []string{"farol-before"})) == 1; got != want {
			t.Errorf("against %q: %v", against, got)
		}
	}
}

func TestAnotherCommitCanBeNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{fastest: nil, "v1": {"-against", "v1"}, "": {"-against", ""}} {
		if c, err := parse(args, t.Output()); err != nil || c.against != want {
			t.Errorf("%q is against %q, %v", args, c.against, err)
		}
	}
}
