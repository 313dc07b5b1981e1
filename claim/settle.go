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
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/span"
)

// endStore is how claims end.
type endStore interface {
	// settle makes the moves whose token is still the item's, in one transaction, and says what
	// became of each. It begins the next stage of items that are carried on, for who, with leases
	// of over. No two moves are of one item.
	settle(ctx context.Context, moves []move, who identity, over stages.LeaseTimes) ([]landing, error)
	// sentBack counts how often an item was sent back to an earlier stage.
	sentBack(ctx context.Context, item int64) (int, error)
	// failures counts the attempts before a claim that count towards the maximum.
	failures(ctx context.Context, item Item) (int, error)
}

// settler ends claims.
type settler struct {
	*core

	store endStore
	ends  *batch.Calls[move, landing]
}

// landing is what became of a move.
type landing struct {
	err   error
	lease time.Duration // of the next stage, which has begun; 0: it has not
	asked time.Time     // when the lease was asked for
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
	Result error         // nil: the stage's work is done
	File   string        // that was in progress, for the ledger
	Of     *span.Attempt // see [End]

	carry bool // the caller goes on with the item at its next stage
}

// settled is how the end of a claim was taken.
type settled struct {
	end  End
	next *Item // the item, claimed at its next stage; nil: it is not carried on
	err  error
}

// settle is [Engine.Settle], and tells which items are carried on.
func (s *settler) settle(ctx context.Context, endings []Ending) []settled {
	ended := make([]settled, len(endings))
	moves, at := make([]move, 0, len(endings)), make([]int, 0, len(endings))
	known := s.settings.Load()
	for i, end := range endings {
		m, err := s.moveOf(ctx, known, end)
		if err != nil {
			ended[i].err = err
			continue
		}
		moves, at = append(moves, m), append(at, i)
	}
	begun := time.Now()
	answers := s.ends.AskAll(ctx, moves)
	s.options.Observer.Settled(time.Since(begun), len(moves))
	for j, c := range answers {
		end, m := endings[at[j]], moves[j]
		if err := cmp.Or(c.Err, c.Value.err); err != nil {
			ended[at[j]].err = fmt.Errorf("settle item %d at %s: %w", end.Item.ID, end.Item.Step(), err)
			continue
		}
		ended[at[j]].end = End{Stage: end.Item.Step(), Outcome: m.Ended, Code: m.Code, Status: m.Status, Attempt: end.Item.Attempt, Of: end.Of}
		s.options.Observer.Ended(ended[at[j]].end)
		if c.Value.lease > 0 {
			next := end.Item.carriedOn(m, c.Value, known.Of(end.Item.Action, m.Stage))
			ended[at[j]].next = &next
		}
	}
	return ended
}

// moveOf is the transition that an ending comes to.
func (s *settler) moveOf(ctx context.Context, known *stages.All, end Ending) (move, error) {
	result, err := s.endSendingBack(ctx, end.Item, end.Result)
	if err != nil {
		return move{}, err
	}
	if end.Item.Attempt, err = s.countFailures(ctx, end.Item, result); err != nil {
		return move{}, err
	}
	of := func(stage registry.Stage) stages.Settings { return known.Of(end.Item.Action, stage) }
	m := decide(end.Item, end.Done, result, of)
	m.File, m.place = end.File, cursor.Place{Partition: cursor.Partition{Stage: m.Stage, Band: end.Item.Band}, Position: end.Item.At}
	if of(end.Item.Stage).Capped {
		m.frees = end.Item.Stage
	}
	if end.carry && m.done() && m.Status == registry.Pending && m.Stage != end.Item.Stage {
		m.carried, m.capped = true, of(m.Stage).Capped
	}
	return m, nil
}

// settleBatch makes a batch of moves, and returns what became of each. Of a claim that is ended
// twice, the first end lands.
func (s *settler) settleBatch(ctx context.Context, moves []move) ([]landing, error) {
	landings := make([]landing, len(moves))
	left := make([]int, len(moves))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		var now, later []int
		seen := map[int64]bool{} // items
		for _, i := range left {
			if seen[moves[i].ID] {
				later = append(later, i)
			} else {
				now = append(now, i)
			}
			seen[moves[i].ID] = true
		}
		for j, l := range s.settleAll(ctx, lane.Column(now, func(i *int) move { return moves[*i] })) {
			landings[now[j]] = l
		}
		left = later
	}
	return landings, nil
}

// settleAll makes moves by one transaction. One that the database refuses would fail them all,
// so they are then sent one by one.
func (s *settler) settleAll(ctx context.Context, moves []move) []landing {
	asked := time.Now()
	known := s.settings.Load()
	landed, err := s.store.settle(ctx, moves, s.self.identity, known.Leases)
	switch {
	case err == nil:
		s.announce(known, moves, landed)
		for i := range landed {
			landed[i].asked = asked
		}
		return landed
	case len(moves) == 1 || !refused(err):
		return slices.Repeat([]landing{{err: err}}, len(moves))
	}
	landed = nil
	for i := range moves {
		landed = append(landed, s.settleAll(ctx, moves[i:i+1])...)
	}
	return landed
}

// announce puts up where moves have made items claimable: those that moved and did not begin
// there, and those that waited for the cap of a stage that one has left.
func (s *settler) announce(known *stages.All, moves []move, landed []landing) {
	put := make([]cursor.Place, 0, len(moves))
	for i, l := range landed {
		m := moves[i]
		if l.err != nil {
			continue
		}
		if m.Status == registry.Pending && m.Delay == 0 && l.lease == 0 {
			put = append(put, m.place)
		}
		if m.frees != "" {
			put = append(put, known.BehindAll(m.frees)...)
		}
	}
	s.wake.Put(put)
}

// endSendingBack suspends an item that was sent back too often.
func (s *settler) endSendingBack(ctx context.Context, item Item, result error) (error, error) {
	end, ok := errors.AsType[*ending](result)
	if !ok || end.kind != endSendBack {
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

// mostSentBack is how often an item may be sent back before a person has to find out where
// its interim data goes. After a person requeues it, it may be sent back as often again.
const mostSentBack = 3

// giveBack returns items that nobody here will process, as if they had not been claimed.
// If it cannot, their leases lapse.
func (s *settler) giveBack(ctx context.Context, items []Item, why string) {
	back := lane.Column(items, func(i *Item) Ending { return Ending{Item: *i, Result: Release(why)} })
	for _, end := range s.settle(ctx, back) {
		if end.err != nil {
			s.log.WarnContext(ctx, "cannot release an item; it will be retried when its lease expires", "err", end.err)
		}
	}
}

func (p *postgres) settle(ctx context.Context, moves []move, who identity, over stages.LeaseTimes) ([]landing, error) {
	inOrder := slices.Clone(moves) // of locks, as heartbeats have it
	slices.SortFunc(inOrder, func(a, b move) int { return cmp.Compare(a.ID, b.ID) })
	var done, rest []move
	for _, m := range inOrder {
		if m.done() {
			done = append(done, m)
		} else {
			rest = append(rest, m)
		}
	}
	var statements []lane.Statement
	if len(done) > 0 {
		leaseOf, leaseFor := over.Of(registry.Ingest)
		args := append(append(commonColumns(done), doneColumns(done)...), who.node, who.pid, who.worker, leaseOf, leaseFor,
			lane.Column(done, func(m *move) []byte { return m.list.Content }), lane.Column(done, func(m *move) string { return m.list.Name }))
		statements = append(statements, lane.Statement{SQL: settleDoneSQL, Args: args})
	}
	if len(rest) > 0 {
		statements = append(statements, lane.Statement{SQL: settleSQL, Args: append(commonColumns(rest), endColumns(rest)...)})
	}
	type claimed struct{ item, token int64 }
	at := make(map[claimed]int, len(moves))
	for i, m := range moves {
		at[claimed{m.ID, m.Token}] = i
	}
	var landed []landing
	err := registry.Again(func() error {
		landed = slices.Repeat([]landing{{err: ErrLost}}, len(moves))
		return p.hot.QueryAll(ctx, locksToSettle(inOrder, len(statements) > 1), statements, func(_ int, rows pgx.Rows) error {
			var m claimed
			var lease *time.Duration
			_, err := pgx.ForEachRow(rows, []any{&m.item, &m.token, &lease}, func() error {
				landed[at[m]] = landing{}
				if lease != nil {
					landed[at[m]].lease = *lease
				}
				return nil
			})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("end %d claims: %w", len(moves), err)
	}
	return landed, nil
}

// locksToSettle are what moves need before several statements make them, or if some enter capped
// stages: the items first and in order, since another transaction may hold one for long, and then
// the caps, for which all claims of the stage wait.
func locksToSettle(moves []move, several bool) []lane.Statement {
	var capped []registry.Stage
	for _, m := range moves {
		if m.capped {
			capped = append(capped, m.Stage)
		}
	}
	if len(capped) == 0 && !several {
		return nil
	}
	return append([]lane.Statement{{
		SQL:  `SELECT FROM work_items WHERE id = ANY ($1) ORDER BY id FOR UPDATE`,
		Args: []any{lane.Column(moves, func(m *move) int64 { return m.ID })},
	}}, lockCaps(capped)...)
}

// some is a parameter for which an empty text leaves what the item has.
func some(text *string) *string {
	if *text == "" {
		return nil
	}
	return text
}

// commonColumns are the first parameters of settle, and of settle_done.
func commonColumns(moves []move) []any {
	return []any{
		lane.Column(moves, func(m *move) int64 { return m.ID }), lane.Column(moves, func(m *move) int64 { return m.Token }),
		lane.Column(moves, func(m *move) string { return string(m.Stage) }), lane.Column(moves, func(m *move) string { return m.Note }),
		lane.Column(moves, func(m *move) string { return m.Topic }), lane.Column(moves, func(m *move) string { return m.File }),
		lane.Column(moves, func(m *move) string { return m.Error }), lane.Column(moves, func(m *move) *string { return some(&m.StorageOption) }),
		lane.Column(moves, func(m *move) int64 { return m.MemoryNeed }),
	}
}

// doneColumns are more parameters of settle_done.
func doneColumns(moves []move) []any {
	return []any{
		lane.Column(moves, func(m *move) string { return string(m.Status) }), lane.Column(moves, func(m *move) *string { return some(&m.Outcome) }),
		lane.Column(moves, func(m *move) *int64 { return m.ObjectID }), countCarried(moves),
	}
}

// countCarried counts, at each move that is carried on, those to the same stage so far.
func countCarried(moves []move) []int32 {
	to := map[registry.Stage]int32{}
	return lane.Column(moves, func(m *move) int32 {
		if !m.carried {
			return 0
		}
		to[m.Stage]++
		return to[m.Stage]
	})
}

// endColumns are the rest of the parameters of settle.
func endColumns(moves []move) []any {
	return []any{
		lane.Column(moves, func(m *move) string { return string(m.Status) }), lane.Column(moves, func(m *move) int32 { return int32(m.Attempt) }), //nolint:gosec // a few
		lane.Column(moves, func(m *move) time.Duration { return m.Delay }), lane.Column(moves, func(m *move) *string { return some(&m.Outcome) }),
		lane.Column(moves, func(m *move) string { return m.Code }), lane.Column(moves, func(m *move) *int64 { return m.ObjectID }),
		lane.Column(moves, func(m *move) string { return m.Ended }), lane.Column(moves, func(m *move) string { return m.Service }),
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
