package claim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

func (p *postgres) settings(ctx context.Context) ([]StageSettings, []sizeBand, error) {
	rows, _ := p.upkeep.Query(ctx, `
		SELECT action, stage, topic, max_attempts, backoff_first, backoff_most, overdue,
			coalesce(processing_timeout, '0') AS timeout, heartbeat, lease, cap IS NOT NULL AS capped,
			unrenewed_timeout, unrenewed_lease
		FROM stage_settings`)
	stages, err := pgx.CollectRows(rows, pgx.RowToStructByName[StageSettings])
	if err != nil {
		return nil, nil, fmt.Errorf("read the stages' settings: %w", err)
	}
	rows, _ = p.upkeep.Query(ctx, `SELECT band, min_size FROM size_bands`)
	bands, err := pgx.CollectRows(rows, pgx.RowToStructByName[sizeBand])
	if err != nil {
		return nil, nil, fmt.Errorf("read the size bands: %w", err)
	}
	return stages, bands, nil
}

// claimSQL walks one cell after the other, each by work_items_ready exactly in
// its order, and stops as soon as it has enough, of each stage and of all. What
// it finds is locked and known by its place, so the UPDATE needs no other
// look-up; one that changed since the statement began is not seen there and
// stays for the next claim. Live leases of a stage with a cap are counted by
// work_items_lease, and those that the reaper has had little time for; the dead
// entries of all before them are passed by. The caller then holds the stage's
// advisory lock.
const claimSQL = `
WITH stage AS MATERIALIZED (
	SELECT c.stage,
		greatest(CASE WHEN s.cap IS NULL THEN c.most
		     ELSE least(c.most, s.cap - (SELECT count(*) FROM work_items r
				WHERE r.status = 'Started' AND r.stage = s.stage AND r.lease_expires_at > now() - s.lease))
		END, 0) AS room
	FROM unnest($1::text[], $2::int[]) WITH ORDINALITY AS c (stage, most, ord)
	JOIN stage_settings s ON s.action = $7 AND s.stage = c.stage AND NOT s.paused
	ORDER BY c.ord
), claimed AS (
	UPDATE work_items w SET
		status           = 'Started',
		claim_token      = claim_token + 1,
		attempt          = attempt + 1,
		node             = $11,
		pid              = $12,
		worker           = $13,
		stage_started_at = now(),
		lease_expires_at = now() + coalesce(($14::interval[])[array_position($15::text[], w.stage)],
			(SELECT lease FROM stage_settings s WHERE s.action = $7 AND s.stage = w.stage)),
		note             = 'Item has started stage ' || (SELECT topic FROM stage_settings s WHERE s.action = $7 AND s.stage = w.stage),
		updated_at       = now()
	WHERE w.ctid = ANY (ARRAY(
		SELECT ready.place
		FROM stage
		CROSS JOIN LATERAL (
			SELECT first.place
			FROM unnest($3::text[], $4::smallint[], $5::smallint[], $6::bigint[]) AS cell (stage, band, priority, turn)
			CROSS JOIN LATERAL (
				SELECT w.ctid AS place FROM work_items w
				WHERE w.status = 'Pending' AND w.retry
				  AND w.stage = stage.stage AND w.size_band = cell.band
				  AND (w.priority, w.turn) >= (cell.priority, cell.turn)
				  AND w.run_at <= now() AND w.action = $7 AND w.size >= $8 AND w.size < $9
				  /* narrower */
				ORDER BY w.priority, w.turn, w.run_at, w.id
				LIMIT stage.room
				FOR UPDATE SKIP LOCKED
			) first
			WHERE cell.stage = stage.stage
			LIMIT stage.room
		) ready
		LIMIT $10))
	  AND w.status = 'Pending' AND w.retry
	RETURNING w.id, w.claim_token, w.entered_token, w.stage, w.attempt, w.name, w.bucket, w.etag, w.size, w.bag_date,
		w.object_identifier, w.institution_id, w.size_band, w.priority, w.turn
), ledger AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
	SELECT id, claim_token, stage, attempt, $11, $12, $13 FROM claimed
)
SELECT c.id, c.claim_token, c.entered_token, c.stage, c.attempt, c.name, c.bucket, c.etag, c.size, c.bag_date,
	c.object_identifier, c.institution_id, c.size_band, c.priority, c.turn,
	(SELECT identifier FROM institutions i WHERE i.id = c.institution_id)
FROM claimed c`

// narrowerSQL is added to the claims of a filter that looks at more than stage
// and size. Such claims pass over what they leave alone.
const narrowerSQL = `
			  AND ($16::interval = '0' OR w.created_at <= now() - $16)
			  AND (cardinality($17::text[]) = 0 OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY ($17)))
			  AND (cardinality($18::text[]) = 0 OR w.storage_option IS NULL OR w.storage_option = ANY ($18))`

func narrowed() string { return strings.Replace(claimSQL, "/* narrower */", narrowerSQL, 1) }

// lockCapSQL makes the claims of a capped stage take turns, so that its live
// leases can be counted.
const lockCapSQL = `SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`

func (p *postgres) claim(ctx context.Context, f Filter, probes []probe, n int, who identity, over leases) ([]Item, error) {
	capped := ""
	for _, pr := range probes {
		if pr.capped {
			capped = pr.stage
		}
	}
	var items []Item
	if capped == "" {
		err := registry.Again(func() (err error) {
			items, err = p.claimIn(ctx, p.hot, f, probes, n, who, over)
			return err
		})
		return items, err
	}
	err := p.hot.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockCapSQL, capped); err != nil {
			return fmt.Errorf("take turns for %s: %w", capped, err)
		}
		var err error
		items, err = p.claimIn(ctx, tx, f, probes, n, who, over)
		return err
	})
	return items, err
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (p *postgres) claimIn(ctx context.Context, db querier, f Filter, probes []probe, n int, who identity, over leases) ([]Item, error) {
	var stages []string
	var most []int32
	cells, bands := make([]string, len(probes)), make([]int16, len(probes))
	priorities, turns := make([]int16, len(probes)), make([]int64, len(probes))
	for i, pr := range probes {
		if i == 0 || pr.stage != cells[i-1] { // a stage's cells come together
			stages, most = append(stages, pr.stage), append(most, int32(min(pr.most, n))) //nolint:gosec // n is small
		}
		cells[i], bands[i], priorities[i], turns[i] = pr.stage, pr.band, pr.from.priority, pr.from.turn
	}
	var leaseOf []time.Duration
	var leaseFor []string
	for stage, d := range over {
		leaseOf, leaseFor = append(leaseOf, d), append(leaseFor, stage)
	}
	maxSize := f.MaxSize
	if maxSize == 0 {
		maxSize = 1<<63 - 1
	}
	sql := claimSQL
	args := []any{
		stages, most, cells, bands, priorities, turns, f.action(), f.MinSize, maxSize, n,
		who.node, who.pid, who.worker, leaseOf, leaseFor,
	}
	if f.narrows() {
		sql = narrowed()
		args = append(args, f.MinAge, append([]string{}, f.Institutions...), append([]string{}, f.StorageOptions...))
	}
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Item, err error) {
		err = row.Scan(&i.ID, &i.Token, &i.Entered, &i.Stage, &i.Attempt, &i.Name, &i.Bucket, &i.ETag, &i.Size, &i.BagDate,
			&i.ObjectIdentifier, &i.InstitutionID, &i.band, &i.at.priority, &i.at.turn, &i.Institution)
		i.Action = f.action()
		return i, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim work: %w", err)
	}
	return items, nil
}

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
		updated_at             = now()
	FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::interval[], $7::bool[], $8::bool[], $9::text[],
		$10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[])
		AS m (id, token, stage, status, attempt, delay, retry, review, note,
			item_outcome, code, object, storage_option, ended, error, in_hand, topic)
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, m.ended, m.code, m.error, m.in_hand, m.topic
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), heard_at = now(), outcome = m.ended, error_code = m.code, error = m.error, file_in_hand = m.in_hand
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
)
SELECT id, token FROM moved`

func (p *postgres) settle(ctx context.Context, moves []move) ([]bool, error) {
	c := newMoveColumns(len(moves))
	type claimed struct{ item, token int64 }
	at := make(map[claimed]int, len(moves))
	for i := len(moves) - 1; i >= 0; i-- { // of one that is told of twice, the first lands
		at[claimed{moves[i].ID, moves[i].Token}] = i
	}
	for _, m := range moves {
		c.add(m)
	}
	var landed []bool
	err := registry.Again(func() error {
		landed = make([]bool, len(moves))
		rows, _ := p.hot.Query(ctx, settleSQL, c.args()...)
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
	rows, _ := p.hot.Query(ctx, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'sent back'`, item)
	n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("count how often item %d was sent back: %w", item, err)
	}
	return n, nil
}

// moveColumns are moves as the statement takes them, column by column.
type moveColumns struct {
	id, token                           []int64
	stage, status, note                 []string
	attempt                             []int32
	delay                               []time.Duration
	retry, review                       []bool
	outcome, storageOption              []*string
	code, ended, failure, inHand, topic []string
	object                              []*int64
}

func newMoveColumns(n int) *moveColumns {
	texts := func() []string { return make([]string, 0, n) }
	return &moveColumns{
		id: make([]int64, 0, n), token: make([]int64, 0, n), stage: texts(), status: texts(), note: texts(),
		attempt: make([]int32, 0, n), delay: make([]time.Duration, 0, n), retry: make([]bool, 0, n), review: make([]bool, 0, n),
		outcome: make([]*string, 0, n), storageOption: make([]*string, 0, n), object: make([]*int64, 0, n),
		code: texts(), ended: texts(), failure: texts(), inHand: texts(), topic: texts(),
	}
}

func (c *moveColumns) add(m move) {
	some := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	c.id, c.token = append(c.id, m.ID), append(c.token, m.Token)
	c.stage, c.status, c.note = append(c.stage, m.Stage), append(c.status, m.Status), append(c.note, m.Note)
	c.attempt, c.delay = append(c.attempt, int32(m.Attempt)), append(c.delay, m.Delay) //nolint:gosec // a few
	c.retry, c.review = append(c.retry, m.Retry), append(c.review, m.Review)
	c.outcome, c.storageOption = append(c.outcome, some(m.Outcome)), append(c.storageOption, some(m.StorageOption))
	c.object = append(c.object, m.ObjectID)
	c.code, c.ended, c.failure = append(c.code, m.Code), append(c.ended, m.Ended), append(c.failure, m.Error)
	c.inHand, c.topic = append(c.inHand, m.InHand), append(c.topic, m.Topic)
}

func (c *moveColumns) args() []any {
	return []any{
		c.id, c.token, c.stage, c.status, c.attempt, c.delay, c.retry, c.review, c.note,
		c.outcome, c.code, c.object, c.storageOption, c.ended, c.failure, c.inHand, c.topic,
	}
}
