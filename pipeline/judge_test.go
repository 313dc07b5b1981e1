package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/progress"
)

// An object at which its provider always fails holds up no other: the service answers
// each probe, and the item that then fails on trial waits longer each time, so that
// the next trial is another's.
func TestItemThatFailsOnTrialWaitsLonger(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 7, Action: "Ingest", Stage: "Store", StorageOption: "Standard"}
	bad := &fault.Error{Service: "s3:Standard-OR", Kind: fault.Unavailable, Err: errors.New("500 InternalError")}
	g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
	one := &breaker{service: bad.Service, state: claim.ServiceOK, scopes: []claim.Scope{{Steps: []string{item.Step()}}}}
	g.byName[bad.Service] = one
	for one.state == claim.ServiceOK {
		g.judge(item, bad, &fault.Answers{})
	}
	before := g.items[item.ID]
	g.judge(item, bad, &fault.Answers{}) // it was claimed before the breaker tripped
	if n := g.items[item.ID]; n != before {
		t.Errorf("what was under way when the service failed waits as if it had failed %d times, want %d", n, before)
	}
	for n := 1; n <= 4; n++ {
		one.probed(time.Now(), nil)
		one.trial = item.ID
		g.judge(item, bad, &fault.Answers{})
		if got := g.items[item.ID]; got != before+n || one.state != claim.ServiceFailing {
			t.Fatalf("after %d failures on trial it waits as if it had failed %d times, and the service is %s", n, got, one.state)
		}
	}
}

// A service that fails one item while it serves others is believed to fail it alone; not one that
// fails others too. A store may serve all steps but one, as when it answers no listings: then what
// it serves at the others says no more than a probe.
func TestServiceThatFailsOneItemAlone(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 7, Action: "Ingest", Stage: "Store", StorageOption: "Standard"}
	elsewhere := claim.Item{Action: "Ingest", Stage: "Cleanup", StorageOption: "Standard"}
	bad := &fault.Error{Service: "s3:Standard-OR", Kind: fault.Overloaded, Err: errors.New("503")}
	for name, tc := range map[string]struct {
		unused         bool    // by what ends well
		others         []error // how items of others end before
		away           int     // of another step, that end well
		alone          bool
		served, probed bool // what is known then
	}{
		"it serves others":              {false, make([]error, 10), 0, true, true, true},
		"nobody else needs it":          {false, nil, 0, true, false, false},
		"it fails one of five others":   {false, []error{nil, nil, nil, nil, bad}, 0, false, true, true},
		"it fails one of twelve others": {false, append(make([]error, 11), bad), 0, true, true, true},
		"others had no need of it":      {true, make([]error, 10), 10, true, false, false},
		"it serves another step":        {false, nil, 10, true, false, true},
		"it fails this step":            {false, []error{bad, nil}, 40, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
			one := &breaker{service: bad.Service, state: claim.ServiceOK, scopes: []claim.Scope{{Steps: []string{item.Step(), elsewhere.Step()}}}}
			g.byName[bad.Service] = one
			var used fault.Answers
			if !tc.unused {
				used.Note(bad.Service)
			}
			for i := range tc.away {
				other := elsewhere
				other.ID = int64(1000 + i)
				g.judge(other, nil, &used)
			}
			for i, result := range tc.others {
				other := item
				other.ID = int64(100 + i)
				g.judge(other, result, &used)
			}
			if _, alone := claim.InDoubt(g.judge(item, bad, &fault.Answers{})); alone != tc.alone {
				t.Errorf("it fails the item alone: %t, want %t", alone, tc.alone)
			}
			if known := one.alone(time.Now(), item, false); known.Served > 0 != tc.served || known.Probed != tc.probed {
				t.Errorf("known is %+v, want served %t, probed %t", known, tc.served, tc.probed)
			}
		})
	}
}

// An item on trial that had no need of the service says nothing of it, and makes room for another.
func TestItemOnTrialThatDidNotUseTheService(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 7, Action: "Ingest", Stage: "Store", StorageOption: "Standard"}
	for _, used := range []bool{false, true} {
		g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
		one := &breaker{service: fault.Redis, state: claim.ServiceTrying, trial: item.ID, scopes: []claim.Scope{{Steps: []string{item.Step()}}}}
		g.byName[one.service] = one
		var answers fault.Answers
		if used {
			answers.Note(fault.Redis)
		}
		g.judge(item, nil, &answers)
		if works := one.state == claim.ServiceOK; works != used || one.trial != 0 {
			t.Errorf("used %t: the service is %s, on trial is %d", used, one.state, one.trial)
		}
	}
}

// A worker whose settings do not fit an item leaves the like of it to others for
// longer than the item is held: it knows first when that is due again.
func TestWorkerWithWrongSettingsLeavesItemsToOthers(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 1, Action: "Ingest", Stage: "Record", StorageOption: "Standard"}
	for name, tc := range map[string]struct {
		fault error
		want  int
	}{
		"settings": {cause.OtherBucket("Standard-OR", "mistyped", "right"), 1},
		"a target": {cause.NoTarget("Standard-OR"), 1},
		"Redis":    {&fault.Error{Service: fault.Redis, Kind: fault.Unavailable, Err: errors.New("away")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
			g.judge(item, tc.fault, &fault.Answers{})
			got := g.without(false)
			if len(got) != tc.want || tc.want == 1 && (!slices.Equal(got[0].Steps, []string{item.Step()}) || !slices.Equal(got[0].StorageOptions, []string{"Standard"})) {
				t.Errorf("after %v it leaves out %+v", tc.fault, got)
			}
		})
	}
}

// silentBoard is a board on which nobody writes.
type silentBoard struct{}

func (silentBoard) ServiceHolds() []claim.ServiceHold { return nil }

func (silentBoard) Report(context.Context, claim.ServiceReport) error { return nil }

func (silentBoard) Wake() {}

// The pools are woken once for each service that may be used again, also if the database
// has heard of it first.
func TestPoolsHearOfEachServiceThatIsBack(t *testing.T) {
	t.Parallel()
	board := &wokenBoard{}
	g := newBreakers(Deps{}, nil, board, slog.New(slog.DiscardHandler))
	b := &breaker{service: fault.Redis, state: claim.ServiceOK, cause: &fault.Error{Service: fault.Redis, Kind: fault.Unavailable, Err: errors.New("away")}}
	g.byName[b.service] = b
	var probes sync.WaitGroup
	for i, change := range []func(){func() { b.trip(time.Now()) }, func() { b.try(time.Now()) }, func() { b.works(time.Now()) }, func() {}} {
		change() // as the end of an item does it at any time
		g.report(t.Context())
		g.step(t.Context(), &probes)
		if want := []int{0, 1, 2, 2}[i]; board.wakes != want {
			t.Errorf("after change %d, to %s, the pools were woken %d times, want %d", i+1, b.state, board.wakes, want)
		}
	}
	probes.Wait()
}

// wokenBoard counts how often pools are woken.
type wokenBoard struct {
	silentBoard

	wakes int
}

func (b *wokenBoard) Wake() { b.wakes++ }

// A program that cannot be started is this process's failure, and not the file's.
func TestChildrenThatDoNotStartAreNoFilesFault(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	must.Do(t, os.WriteFile(plain, nil, 0o600))
	for command, want := range map[string]string{
		"/none/farol": "identifier-missing",
		plain:         "identifier-denied",
		"/bin/false":  "identifier-unavailable",
	} {
		formats := must.Get(format.Start(t.Context(), format.Options{Command: []string{command}}))(t)
		err := Deps{Formats: formats}.identifierProbe(t.Context())
		if f := claim.FaultIn(err); f == nil || f.Service != "identifier" || f.Code() != want {
			t.Errorf("%s: %v is %+v, want %s", command, err, f, want)
		}
		formats.Close()
	}
}

// Errors in files are found wherever they are, with what was compared.
func TestFaultsAreFoundInATreeOfErrors(t *testing.T) {
	t.Parallel()
	away := errors.New("connection reset")
	tree := fmt.Errorf("store: %w", errors.Join(
		cause.InFile("data/a", fmt.Errorf("copy of data/a: %w", copies.Wrong("it has %d bytes, expected %d", 5, 6))),
		errors.New("of no file"),
		fmt.Errorf("and %w", cause.InFile("data/b", cause.Storage(away))),
	))
	want := []progress.Fault{
		{Code: "bad-copy", Path: "data/a", Found: "5", Expected: "6", Message: "copy of data/a: it has 5 bytes, expected 6"},
		{Code: "storage-unavailable", Path: "data/b", Message: "connection reset"},
	}
	if diff := cmp.Diff(want, faultsOf(tree).List); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for _, none := range []error{nil, away, fmt.Errorf("%w: %w", cause.InFile("a", away), claim.ErrLost)} {
		if f := faultsOf(none); len(f.List) != 0 {
			t.Errorf("faults of %v: %+v", none, f)
		}
	}
}
