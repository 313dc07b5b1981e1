package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/registry"
)

// endStore is how claims end.
type endStore interface {
	// settle makes the moves whose token is still the item's, and says which.
	settle(ctx context.Context, moves []move) (landed []bool, err error)
	// sentBack counts how often an item was sent back to an earlier stage.
	sentBack(ctx context.Context, item int64) (int, error)
	// failures counts the attempts before a claim that count towards the maximum.
	failures(ctx context.Context, item Item) (int, error)
}

// settler ends claims.
type settler struct {
	*core

	store endStore
	ends  *batch.Calls[move, error]
}

func newSettler(c *core, s endStore) *settler {
	e := &settler{core: c, store: s}
	e.ends = batch.New(2, 256, e.settleBatch)
	return e
}

// Ending is how one claim ends.
type Ending struct {
	Item   Item
	Done   Done
	Result error  // nil: the stage's work is done
	File   string // that was in progress, for the ledger
}

// settle is [Engine.Settle].
func (s *settler) settle(ctx context.Context, endings []Ending) []error {
	errs := make([]error, len(endings))
	moves, at := make([]move, 0, len(endings)), make([]int, 0, len(endings))
	known := s.settings.Load()
	for i, end := range endings {
		result, err := s.endSendingBack(ctx, end.Item, end.Result)
		if err != nil {
			errs[i] = err
			continue
		}
		if end.Item.Attempt, err = s.countFailures(ctx, end.Item, result); err != nil {
			errs[i] = err
			continue
		}
		m := decide(end.Item, end.Done, result, func(stage registry.Stage) StageSettings { return known.of(end.Item.Action, stage) })
		m.File, m.place = end.File, cursor.Place{Partition: cursor.Partition{Stage: m.Stage, Band: end.Item.band}, Position: end.Item.at}
		if known.of(end.Item.Action, end.Item.Stage).Capped {
			m.frees = end.Item.Stage
		}
		moves, at = append(moves, m), append(at, i)
	}
	begun := time.Now()
	answers := s.ends.AskAll(ctx, moves)
	s.options.Observer.Settled(time.Since(begun), len(moves))
	for j, c := range answers {
		item, m := endings[at[j]].Item, moves[j]
		err := c.Err
		if err == nil {
			err = c.Value
		}
		if err != nil {
			errs[at[j]] = fmt.Errorf("settle item %d at %s: %w", item.ID, item.Step(), err)
			continue
		}
		if m.gaveUp() {
			s.logGivenUp(ctx, item.ID, item.Step(), m.Attempt, m.Error)
		}
		s.options.Observer.Ended(End{Stage: item.Step(), Outcome: m.Ended, Status: m.Status, Attempt: item.Attempt})
	}
	return errs
}

// settleBatch sends a batch of moves and returns the result of each. One that the database
// refuses would fail them all, so they are then sent one by one.
func (s *settler) settleBatch(ctx context.Context, moves []move) ([]error, error) {
	landed, err := s.store.settle(ctx, moves)
	errs := make([]error, len(moves))
	switch {
	case err == nil:
		put := make([]cursor.Place, 0, len(moves))
		for i, ok := range landed {
			m := moves[i]
			if !ok {
				errs[i] = ErrLost
				continue
			}
			if m.Status == registry.Pending && m.Delay == 0 {
				put = append(put, m.place)
			}
			if m.frees != "" {
				put = append(put, s.settings.Load().behindAll(m.frees)...)
			}
		}
		s.wake.Put(put)
		return errs, nil
	case len(moves) == 1 || !refused(err):
		return nil, err
	}
	for i := range moves {
		one, err := s.settleBatch(ctx, moves[i:i+1])
		if err != nil {
			errs[i] = err
		} else {
			errs[i] = one[0]
		}
	}
	return errs, nil
}

// endSendingBack suspends an item that was sent back too often.
func (s *settler) endSendingBack(ctx context.Context, item Item, result error) (error, error) {
	var end *ending
	if !errors.As(result, &end) || end.kind != endSendBack {
		return result, nil
	}
	n, err := s.store.sentBack(ctx, item.ID)
	if err != nil {
		return nil, err
	}
	if n < mostSentBack {
		return result, nil
	}
	return &ending{kind: endSuspend, code: end.code, err: &tooOften{end.err, n}}, nil
}

// tooOften is why an item that was sent back too often is suspended.
type tooOften struct {
	error

	times int
}

func (e *tooOften) Error() string {
	return fmt.Sprintf("%s. This happened %d times before.", strings.TrimSuffix(e.error.Error(), "."), e.times)
}

func (e *tooOften) Unwrap() error { return e.error }

// countFailures returns the number of the attempt that ends with a result. If it is
// the last, the ledger is asked: a claim that was lost because the database's clock
// was set is no failure.
func (s *settler) countFailures(ctx context.Context, item Item, result error) (int, error) {
	if result == nil || !IsTransient(result) || FaultIn(result) != nil || item.Attempt < item.MaxAttempts {
		return item.Attempt, nil //nolint:nilerr // the result is no failure to count
	}
	n, err := s.store.failures(ctx, item)
	if err != nil {
		return 0, err
	}
	return min(item.Attempt, n+1), nil
}

// logGivenUp says that an item is parked after its last attempt. Failures of
// services spend none, so the owner is the content as far as is known.
func (s *settler) logGivenUp(ctx context.Context, item int64, stage string, attempts int, cause string) {
	s.log.ErrorContext(ctx, "giving up: the item is Suspended until a person requeues it",
		"item", item, "stage", stage, "attempts", attempts, "owner", fault.Content, "cause", cause)
}

// mostSentBack is how often an item may be sent back before a person has to find out where
// its interim data goes. After a person requeues it, it may be sent back as often again.
const mostSentBack = 3

// giveBack returns items that nobody here will process, as if they had not been claimed.
// If it cannot, their leases lapse.
func (s *settler) giveBack(ctx context.Context, items []Item, why string) {
	back := column(items, func(i *Item) Ending { return Ending{Item: *i, Result: Release(why)} })
	for _, err := range s.settle(ctx, back) {
		if err != nil {
			s.log.WarnContext(ctx, "cannot release an item; it will be retried when its lease expires", "err", err)
		}
	}
}

func (p *postgres) settle(ctx context.Context, moves []move) ([]bool, error) {
	inOrder := slices.Clone(moves) // of locks, as heartbeats have it; of a move that is listed twice, the first lands
	slices.SortStableFunc(inOrder, func(a, b move) int { return cmp.Compare(a.ID, b.ID) })
	sql, args := settleDoneSQL, doneColumns(inOrder)
	if slices.ContainsFunc(moves, func(m move) bool { return !m.plainlyDone() }) {
		sql, args = settleSQL, append(args, otherColumns(inOrder)...)
	}
	type claimed struct{ item, token int64 }
	at := make(map[claimed]int, len(moves))
	for i := len(moves) - 1; i >= 0; i-- {
		at[claimed{moves[i].ID, moves[i].Token}] = i
	}
	var landed []bool
	err := registry.Again(func() error {
		landed = make([]bool, len(moves))
		rows, _ := p.hot.Query(ctx, sql, args...)
		var m claimed
		_, err := pgx.ForEachRow(rows, []any{&m.item, &m.token}, func() error {
			landed[at[m]] = true
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("end %d claims: %w", len(moves), err)
	}
	return landed, nil
}

// doneColumns are the parameters of settle_done, and the first of settle.
func doneColumns(moves []move) []any {
	return []any{
		column(moves, func(m *move) int64 { return m.ID }), column(moves, func(m *move) int64 { return m.Token }),
		column(moves, func(m *move) string { return string(m.Stage) }), column(moves, func(m *move) string { return m.Note }),
		column(moves, func(m *move) string { return m.Topic }), column(moves, func(m *move) string { return m.File }),
	}
}

// otherColumns are the rest of the parameters of settle. An empty text leaves what the item
// has.
func otherColumns(moves []move) []any {
	some := func(text *string) *string {
		if *text == "" {
			return nil
		}
		return text
	}
	return []any{
		column(moves, func(m *move) string { return string(m.Status) }), column(moves, func(m *move) int32 { return int32(m.Attempt) }), //nolint:gosec // a few
		column(moves, func(m *move) time.Duration { return m.Delay }), column(moves, func(m *move) *string { return some(&m.Outcome) }),
		column(moves, func(m *move) string { return m.Code }), column(moves, func(m *move) *int64 { return m.ObjectID }),
		column(moves, func(m *move) *string { return some(&m.StorageOption) }), column(moves, func(m *move) string { return m.Ended }),
		column(moves, func(m *move) string { return m.Error }), column(moves, func(m *move) string { return m.Service }),
		column(moves, func(m *move) int64 { return m.MemoryNeed }),
	}
}

func (p *postgres) sentBack(ctx context.Context, item int64) (n int, err error) {
	rows, _ := p.hot.Query(ctx, sentBackSQL, item)
	n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("count how often item %d was sent back: %w", item, err)
	}
	return n, nil
}

func (p *postgres) failures(ctx context.Context, item Item) (n int, err error) {
	rows, _ := p.hot.Query(ctx, `SELECT failed_attempts($1, $2, $3)`, item.ID, item.Entered, item.Token)
	n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("count the failed attempts of item %d: %w", item.ID, err)
	}
	return n, nil
}
