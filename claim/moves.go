package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// plainlyDone tells whether nothing is to be said of a move but where it goes.
func (m move) plainlyDone() bool {
	return m == move{
		ID: m.ID, Token: m.Token, Stage: m.Stage, Note: m.Note, Topic: m.Topic, InHand: m.InHand, Status: "Pending", Retry: true, Ended: "done", place: m.place,
	}
}

func (p *postgres) settle(ctx context.Context, moves []move) ([]bool, error) {
	sql, c := settleSQL, newMoveColumns(len(moves))
	if !slices.ContainsFunc(moves, func(m move) bool { return !m.plainlyDone() }) {
		sql, c.few = settleDoneSQL, true
	}
	type claimed struct{ item, token int64 }
	at := make(map[claimed]int, len(moves))
	for i := len(moves) - 1; i >= 0; i-- { // of one that is told of twice, the first lands
		at[claimed{moves[i].ID, moves[i].Token}] = i
	}
	order := make([]int, len(moves))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(moves[i].ID, moves[j].ID) }) // of locks, as heartbeats have it
	for _, i := range order {
		c.add(moves[i])
	}
	var landed []bool
	err := registry.Again(func() error {
		landed = make([]bool, len(moves))
		rows, _ := p.hot.Query(ctx, sql, c.args()...)
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

// moveColumns are moves as the statement takes them, column by column.
type moveColumns struct {
	few bool // the first six are all that is needed

	id, token                           []int64
	stage, status, note                 []string
	attempt                             []int32
	delay                               []time.Duration
	retry, review                       []bool
	outcome, storageOption              []*string
	code, ended, failure, inHand, topic []string
	service                             []string
	object                              []*int64
	memoryNeed                          []int64
}

func newMoveColumns(n int) *moveColumns {
	texts := func() []string { return make([]string, 0, n) }
	return &moveColumns{
		id: make([]int64, 0, n), token: make([]int64, 0, n), stage: texts(), status: texts(), note: texts(),
		attempt: make([]int32, 0, n), delay: make([]time.Duration, 0, n), retry: make([]bool, 0, n), review: make([]bool, 0, n),
		outcome: make([]*string, 0, n), storageOption: make([]*string, 0, n), object: make([]*int64, 0, n),
		memoryNeed: make([]int64, 0, n), code: texts(), ended: texts(), failure: texts(), inHand: texts(), topic: texts(), service: texts(),
	}
}

func (c *moveColumns) add(m move) {
	some := func(s string) *string {
		if s == "" {
			return nil
		}
		said := s // only now is it kept
		return &said
	}
	c.id, c.token = append(c.id, m.ID), append(c.token, m.Token)
	c.stage, c.status, c.note = append(c.stage, m.Stage), append(c.status, m.Status), append(c.note, m.Note)
	c.attempt, c.delay = append(c.attempt, int32(m.Attempt)), append(c.delay, m.Delay) //nolint:gosec // a few
	c.retry, c.review = append(c.retry, m.Retry), append(c.review, m.Review)
	c.outcome, c.storageOption = append(c.outcome, some(m.Outcome)), append(c.storageOption, some(m.StorageOption))
	c.object, c.memoryNeed = append(c.object, m.ObjectID), append(c.memoryNeed, m.MemoryNeed)
	c.code, c.ended, c.failure = append(c.code, m.Code), append(c.ended, m.Ended), append(c.failure, m.Error)
	c.inHand, c.topic, c.service = append(c.inHand, m.InHand), append(c.topic, m.Topic), append(c.service, m.Service)
}

func (c *moveColumns) args() []any {
	args := []any{c.id, c.token, c.stage, c.note, c.topic, c.inHand}
	if c.few {
		return args
	}
	return append(args, c.status, c.attempt, c.delay, c.retry, c.review, c.outcome, c.code, c.object, c.storageOption, c.ended, c.failure, c.service, c.memoryNeed)
}
