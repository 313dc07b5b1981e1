package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Large bags wait for each other, and small ones do not wait. A bag that gives up waiting
// uses nothing of the budget.
func TestLargeBagsShareTheMemoryBudget(t *testing.T) {
	t.Parallel()
	waits := make(lines, 10)
	r := newMemoryBudget(100_000, 0)
	enter := func(ctx context.Context, files int) (*Work, error) {
		w := &Work{Log: slog.New(slog.NewTextHandler(waits, nil)), memory: r}
		return w, w.Enter(ctx, files)
	}
	first := must.Get(enter(t.Context(), 60_000))(t)
	if err := first.Enter(t.Context(), 60_000); err != nil { // it has its memory already
		t.Fatal(err)
	}
	for range 20 {
		must.Get(enter(t.Context(), fewFiles))(t)
	}
	second := must.Get(enter(t.Context(), 40_000))(t)
	gone, stop := context.WithTimeoutCause(t.Context(), time.Millisecond, claim.ErrLost)
	defer stop()
	if _, err := enter(gone, 40_000); !errors.Is(err, claim.ErrLost) {
		t.Errorf("entered although the budget was used up, or got another error: %v", err)
	}
	in := make(chan error, 1)
	go func() {
		_, err := enter(t.Context(), 5_000_000) // larger than the budget: it gets all of it
		in <- err
	}()
	for line := ""; !strings.Contains(line, "files=5000000"); { // the third waits
		line = <-waits
	}
	first.leave()
	select {
	case err := <-in:
		t.Fatalf("entered with the second still there: %v", err)
	default:
	}
	second.leave()
	if err := <-in; err != nil {
		t.Error(err)
	}
}

// lines takes what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A bag that waits for memory has not begun. It is given back at once when the worker is asked to stop, while
// those that have begun go on.
func TestWhatWaitsForMemoryIsGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	waits := make(lines, 10)
	r := newMemoryBudget(100_000, 0)
	claiming, stopClaiming := context.WithCancel(t.Context())
	enter := func(ctx context.Context) (*Work, error) {
		w := &Work{Log: slog.New(slog.NewTextHandler(waits, nil)), memory: r, claiming: claiming}
		return w, w.Enter(ctx, 60_000)
	}
	first := must.Get(enter(t.Context()))(t)
	in := make(chan error, 1)
	go func() {
		_, err := enter(t.Context())
		in <- err
	}()
	<-waits // it waits
	stopClaiming()
	if err := <-in; claim.Code(err) != "released" {
		t.Errorf("what waits ends with %v", err)
	}
	first.leave()
	if _, err := enter(t.Context()); err != nil {
		t.Errorf("there is memory, and %v", err)
	}
}
