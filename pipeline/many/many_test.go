package many_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/pipeline/many"
)

var errBroken = errors.New("broken")

// upTo yields the numbers from 1 to n, and then an error if there is one.
func upTo(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i+1, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// Nothing is left out and nothing comes twice, whatever is left for the last page.
func TestPagesHaveAllInOrder(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		var all []int
		for page, err := range many.Pages(3, upTo(n, nil)) {
			if err != nil || len(page) == 0 || len(page) > 3 {
				t.Errorf("of %d: a page %v, %v", n, page, err)
			}
			all = append(all, page...)
		}
		want := make([]int, n)
		for i := range want {
			want[i] = i + 1
		}
		if !slices.Equal(all, want) {
			t.Errorf("the pages of %d have %v", n, all)
		}
	}
}

// A listing that fails must not look like one that has ended.
func TestPagesEndWithTheError(t *testing.T) {
	t.Parallel()
	var last error
	pages := 0
	for _, err := range many.Pages(3, upTo(4, errBroken)) {
		pages, last = pages+1, err
	}
	if pages != 2 || !errors.Is(last, errBroken) {
		t.Errorf("%d pages, the last with %v", pages, last)
	}
}

// The first failure is the result, and all that began have ended by then.
func TestAtOnceReturnsTheFirstError(t *testing.T) {
	t.Parallel()
	var running atomic.Int32
	err := many.AtOnce(t.Context(), 2, []int{1, 2, 3, 4}, func(ctx context.Context, n int) error {
		running.Add(1)
		defer running.Add(-1)
		if n == 2 {
			return errBroken
		}
		return nil
	})
	if !errors.Is(err, errBroken) || running.Load() != 0 {
		t.Errorf("AtOnce = %v with %d running", err, running.Load())
	}
}
