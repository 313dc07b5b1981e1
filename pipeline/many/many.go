// Package many does something with many things: a long sequence comes in and pages of it go
// out, for which one statement or request is enough; or a list comes in and is done, several
// things at a time.
package many

import (
	"context"
	"iter"

	"golang.org/x/sync/errgroup"
)

// Pages yields a sequence in pages of n; the last may be shorter. A page is good until
// the next one is asked for. What was not yielded yet when the sequence fails is left out.
func Pages[T any](n int, sequence iter.Seq2[T, error]) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		page := make([]T, 0, n)
		for one, err := range sequence {
			if err != nil {
				yield(nil, err)
				return
			}
			if page = append(page, one); len(page) < n {
				continue
			}
			if !yield(page, nil) {
				return
			}
			page = page[:0]
		}
		if len(page) > 0 {
			yield(page, nil)
		}
	}
}

// AtOnce calls do for each of a list, up to n at a time and one at least. The first error ends
// the context of the others, and is returned when all have ended.
func AtOnce[T any](ctx context.Context, n int, list []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(n, 1))
	for _, one := range list {
		group.Go(func() error { return do(ctx, one) })
	}
	return group.Wait()
}
