package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// The transition is one statement: the item, the ledger, and where the item goes
// on to a stage the topic message. What waited for an item that has ended is let
// go of by the trigger work_item_ended. A move whose token is no longer the
// item's changes nothing and harms none of the others.
const settleSQL = `
WITH moved AS (
	UPDATE work_items w SET
		stage                  = m.stage,
		status                 = m.status,
		claim_token            = w.claim_token + 1,
		entered_token          = CASE WHEN w.stage = m.stage THEN w.entered_token ELSE w.claim_token + 1 END,
		attempt                = m.attempt,
		run_at                 = now() + m.delay,
		lease_expires_at       = NULL,
		node                   = NULL,
		pid                    = NULL,
		worker                 = NULL,
		retry                  = m.retry,
		needs_admin_review     = m.review,
		note                   = m.note,
		outcome                = coalesce(m.item_outcome, w.outcome),
		error_code             = m.code,
		intellectual_object_id = coalesce(m.object, w.intellectual_object_id),
		storage_option         = coalesce(m.storage_option, w.storage_option),
		memory_need            = coalesce(nullif(m.memory_need, 0), w.memory_need),
		updated_at             = now()
	FROM /* moves */
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, m.ended, m.code, m.error, m.in_hand, m.topic, m.service/* and */
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), heard_at = now(), outcome = m.ended, error_code = m.code, error = m.error, file_in_hand = m.in_hand, service = m.service
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
)/* retries */
SELECT id, token FROM moved`

// retriesSQL tells the mirror of attempts after which the item is tried at the
// same stage again. No count of the queue says how many there were.
const retriesSQL = `, retried AS (
	INSERT INTO topic_retries (topic, work_item_id)
	SELECT s.topic, m.id FROM moved m JOIN stage_settings s ON s.action = m.action AND s.stage = m.stage
	WHERE m.status = 'Pending' AND m.ended IN ('transient', 'panic')
)`

// Where the moves come from. Most are of stages that are done, of which little
// needs to be said: reading eighteen arrays costs a twentieth of a hop.
const (
	anyMovesSQL = `unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
		$8::int[], $9::interval[], $10::bool[], $11::bool[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[])
		AS m (id, token, stage, note, topic, in_hand, status,
			attempt, delay, retry, review, item_outcome, code, object, storage_option, ended, error, service, memory_need)`
	doneMovesSQL = `(
		SELECT id, token, stage, note, topic, in_hand, 'Pending' AS status, 0 AS attempt, interval '0' AS delay, true AS retry, false AS review,
			NULL::text AS item_outcome, '' AS code, NULL::bigint AS object, NULL::text AS storage_option, 'done' AS ended, '' AS error, '' AS service,
			0::bigint AS memory_need
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) AS d (id, token, stage, note, topic, in_hand)
	) m`
)

//nolint:gochecknoglobals // constants, but for Go
var (
	anyMoves = strings.NewReplacer("/* moves */", anyMovesSQL,
		"/* and */", ", w.action, w.stage, w.status", "/* retries */", retriesSQL).Replace(settleSQL)
	doneMoves = strings.NewReplacer("/* moves */", doneMovesSQL, "/* and */", "", "/* retries */", "").Replace(settleSQL)
)

// plainlyDone tells whether nothing is to be said of a move but where it goes.
func (m move) plainlyDone() bool {
	return m == move{
		ID: m.ID, Token: m.Token, Stage: m.Stage, Note: m.Note, Topic: m.Topic, InHand: m.InHand, Status: "Pending", Retry: true, Ended: "done",
	}
}

func (p *postgres) settle(ctx context.Context, moves []move) ([]bool, error) {
	sql, c := anyMoves, newMoveColumns(len(moves))
	if !slices.ContainsFunc(moves, func(m move) bool { return !m.plainlyDone() }) {
		sql, c.few = doneMoves, true
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
	rows, _ := p.hot.Query(ctx, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'sent back' AND claim_token >
		coalesce((SELECT max(claim_token) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'fatal'), 0)`, item)
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
