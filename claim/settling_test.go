package claim

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim/process"
)

// slowToAnswer has made every move when it is asked for, and says so later.
type slowToAnswer struct {
	store

	moved  chan struct{}
	answer chan struct{}
}

func (s *slowToAnswer) rules(context.Context) (rules, error) {
	return rules{bands: []sizeBand{{}}}, nil
}

func (s *slowToAnswer) settle(_ context.Context, moves []move, _ identity, _ leaseTimes) ([]landing, error) {
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
	e, err := newEngine(t.Context(), on(s), process.Kernel{}, Options{Poll: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := e.Hold(t.Context(), Item{ID: 1, Token: 1, lease: time.Minute, asked: time.Now()})
	var settled sync.WaitGroup
	settled.Go(func() {
		if err := h.Settle(t.Context(), Done{}, nil); err != nil {
			t.Errorf("Settle: %v", err)
		}
	})
	<-s.moved
	if err := e.leases.heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Context().Err(); err != nil {
		t.Errorf("the heartbeat ended the work: %v", context.Cause(h.Context()))
	}
	close(s.answer)
	settled.Wait()
	if cause := context.Cause(h.Context()); errors.Is(cause, ErrLost) {
		t.Errorf("the item was settled, and its work ended as %v", cause)
	}
}
