package claim

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// slowToAnswer has made every move when it is asked for, and says so later.
type slowToAnswer struct {
	store

	moved  chan struct{}
	answer chan struct{}
}

func (s *slowToAnswer) rules(context.Context) (rules, error) {
	return rules{bands: []stages.Band{{}}}, nil
}

func (s *slowToAnswer) settle(_ context.Context, moves []move, _ identity, _ stages.LeaseTimes) ([]landing, error) {
	s.moved <- struct{}{}
	<-s.answer
	return make([]landing, len(moves)), nil
}

func (s *slowToAnswer) renew(context.Context, worker, time.Duration, []heldLease, []givenUp) (renewed, error) {
	return renewed{}, nil // the token has moved on
}

// A heartbeat that overtakes the answer to the end of a claim finds that the
// token has moved on. That is not for others having taken the item.
func TestItemThatIsBeingSettledIsNotLost(t *testing.T) {
	t.Parallel()
	s := &slowToAnswer{moved: make(chan struct{}), answer: make(chan struct{})}
	e := must.Get(newEngine(t.Context(), on(s), process.Kernel{}, Options{Poll: 1, Log: slog.New(slog.DiscardHandler)}))(t)
	h := e.Hold(t.Context(), Item{ID: 1, Token: 1, Lease: time.Minute, asked: time.Now()})
	var settled sync.WaitGroup
	settled.Go(func() {
		if err := h.Settle(t.Context(), Done{}, nil); err != nil {
			t.Errorf("Settle: %v", err)
		}
	})
	<-s.moved
	must.Do(t, e.leases.heartbeat(t.Context()))
	if err := h.Context().Err(); err != nil {
		t.Errorf("the heartbeat ended the work: %v", context.Cause(h.Context()))
	}
	close(s.answer)
	settled.Wait()
	if cause := context.Cause(h.Context()); errors.Is(cause, ErrLost) {
		t.Errorf("the item was settled, and its work ended as %v", cause)
	}
}

// statements counts what the ends of claims cost, and refuses the moves of item 4.
type statements struct {
	store

	of [][]move
}

func (s *statements) rules(context.Context) (rules, error) {
	return rules{bands: []stages.Band{{}}}, nil
}

func (s *statements) settle(_ context.Context, moves []move, _ identity, _ stages.LeaseTimes) ([]landing, error) {
	s.of = append(s.of, moves)
	return lane.Column(moves, func(m *move) landing {
		if m.ID == 4 {
			return landing{err: ErrLost}
		}
		return landing{}
	}), nil
}

// Ends of all kinds share a transaction, and each caller has its own answer. A claim that is ended
// twice is ended as was asked first.
func TestMixedEndsShareATransaction(t *testing.T) {
	t.Parallel()
	s := &statements{}
	e := must.Get(newEngine(t.Context(), on(s), process.Kernel{}, Options{Poll: 1, Log: slog.New(slog.DiscardHandler)}))(t)
	var ends []Ending
	for id := range int64(20) {
		end := Ending{Item: Item{ID: id, Token: 1, Action: "Ingest", Stage: "Store"}, Done: Done{Next: "Storage Validation"}}
		switch id % 3 {
		case 0:
			end.Result = Release("stopping")
		case 1:
			end.Done = Done{} // it is at its end
		}
		ends = append(ends, end)
	}
	ends = append(ends, Ending{Item: Item{ID: 1, Token: 1, Action: "Ingest", Stage: "Store"}, Done: Done{Next: "Storage Validation"}})
	for i, err := range e.Settle(t.Context(), ends) {
		if lost := errors.Is(err, ErrLost); lost != (i == 4) || err != nil && !lost {
			t.Errorf("end %d: %v", i, err)
		}
	}
	if len(s.of) != 2 || len(s.of[0]) != 20 || len(s.of[1]) != 1 || s.of[1][0].ID != 1 {
		t.Errorf("%d transactions: %v", len(s.of), s.of)
	}
}
