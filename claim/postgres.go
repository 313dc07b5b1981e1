package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is the queue in a database. Its statements have few connections of
// their own, so that neither a claim nor a heartbeat ever waits for the many
// statements of the stages.
type postgres struct {
	hot  *pgxpool.Pool // claims and ends of claims
	beat *pgxpool.Pool // heartbeats and all upkeep

	direct *pgx.ConnConfig // for listening

	institutions sync.Map // identifiers by ID
}

const (
	hotConns  = 4
	beatConns = 2
)

// plain forbids the plans that would be cheaper while the table is small and a
// catastrophe when it has grown: there is an index for all that these
// connections do, and one generic plan for each statement.
const plain = `SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_sort = off; SET enable_bitmapscan = off;
	SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off`

func newPostgres(db *pgxpool.Pool) (*postgres, error) {
	open := func(most int32, settings string) (*pgxpool.Pool, error) {
		config := db.Config()
		config.MaxConns, config.MinConns, config.MinIdleConns = most, 0, 0
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, settings)
			return err
		}
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			return nil, fmt.Errorf("open the queue's own connections: %w", err)
		}
		return pool, nil
	}
	hot, err := open(hotConns, plain)
	if err != nil {
		return nil, err
	}
	beat, err := open(beatConns, plain)
	if err != nil {
		hot.Close()
		return nil, err
	}
	return &postgres{hot: hot, beat: beat, direct: db.Config().ConnConfig}, nil
}

func (p *postgres) close() {
	p.hot.Close()
	p.beat.Close()
}

func (p *postgres) settings(ctx context.Context) ([]StageSettings, []sizeBand, error) {
	rows, _ := p.beat.Query(ctx, `
		SELECT action, stage, topic, max_attempts, backoff_first, backoff_most, overdue,
			coalesce(processing_timeout, '0') AS timeout, heartbeat, lease, cap IS NOT NULL AS capped,
			unrenewed_timeout, unrenewed_lease
		FROM stage_settings`)
	stages, err := pgx.CollectRows(rows, pgx.RowToStructByName[StageSettings])
	if err != nil {
		return nil, nil, fmt.Errorf("read the stages' settings: %w", err)
	}
	rows, _ = p.beat.Query(ctx, `SELECT band, min_size FROM size_bands`)
	bands, err := pgx.CollectRows(rows, pgx.RowToStructByName[sizeBand])
	if err != nil {
		return nil, nil, fmt.Errorf("read the size bands: %w", err)
	}
	return stages, bands, nil
}

// readySQL walks one cell after the other, each by work_items_ready exactly in
// its order, and stops as soon as it has enough. Live leases of a stage with a
// cap are counted by work_items_lease; the caller then holds the stage's advisory
// lock.
const readySQL = `
		FROM (
			SELECT c.stage, c.band, c.priority, c.turn, s.lease, s.topic,
				CASE WHEN s.cap IS NULL THEN c.most
				     ELSE least(c.most, s.cap - (SELECT count(*) FROM work_items r WHERE r.status = 'Started' AND r.stage = s.stage))
				END AS room
			FROM unnest($1::text[], $2::smallint[], $3::int[], $4::smallint[], $5::bigint[])
				WITH ORDINALITY AS c (stage, band, most, priority, turn, ord)
			JOIN stage_settings s ON s.action = $6 AND s.stage = c.stage AND NOT s.paused
			ORDER BY c.ord
			OFFSET 0
		) cell
		CROSS JOIN LATERAL (
			SELECT w.ctid AS place, w.id FROM work_items w
			WHERE w.status = 'Pending' AND w.retry
			  AND w.stage = cell.stage AND w.size_band = cell.band
			  AND (w.priority, w.turn) >= (cell.priority, cell.turn)
			  AND w.run_at <= now() AND w.action = $6 AND w.size >= $7 AND w.size < $8
			  /* narrower */
			ORDER BY w.priority, w.turn, w.run_at, w.id
			LIMIT greatest(cell.room, 0)
			/* locked */
		) ready
		LIMIT $9`

// claimSQL locks what it finds and knows it by its place, so the UPDATE needs no
// other look-up; an item that changed since the statement began is not seen there
// and stays for the next claim.
const claimSQL = `
WITH claimed AS (
	UPDATE work_items w SET
		status           = 'Started',
		claim_token      = claim_token + 1,
		attempt          = attempt + 1,
		node             = $10,
		pid              = $11,
		worker           = $12,
		stage_started_at = now(),
		lease_expires_at = now() + found.lease,
		note             = found.note,
		updated_at       = now()
	FROM (
		SELECT ready.place, coalesce(($13::interval[])[array_position($14::text[], cell.stage)], cell.lease) AS lease,
			'Item has started stage ' || cell.topic AS note ` + readySQL + `
	) found
	WHERE w.ctid = found.place AND w.status = 'Pending' AND w.retry
	RETURNING w.id, w.claim_token, w.entered_token, w.stage, w.attempt, w.name, w.bucket, w.etag, w.size, w.bag_date,
		w.object_identifier, w.institution_id, w.size_band, w.priority, w.turn
), ledger AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
	SELECT id, claim_token, stage, attempt, $10, $11, $12 FROM claimed
)
SELECT * FROM claimed`

// What a claim locks nobody else takes, and what others have locked it passes
// over.
//
//nolint:gochecknoglobals // a constant, but for Go
var lockedClaimSQL = strings.Replace(claimSQL, "/* locked */", "FOR UPDATE SKIP LOCKED", 1)

// peekSQL says what a claim would take, and takes nothing.
const peekSQL = `SELECT ready.id ` + readySQL

// narrowerSQL is added to the claims of a filter that looks at more than stage
// and size. Such claims pass over what they leave alone.
const narrowerSQL = `
			  AND (%[1]s::interval = '0' OR w.created_at <= now() - %[1]s)
			  AND (cardinality(%[2]s::text[]) = 0 OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY (%[2]s)))
			  AND (cardinality(%[3]s::text[]) = 0 OR w.storage_option IS NULL OR w.storage_option = ANY (%[3]s))`

// narrowed returns a statement for the filter with the arguments that it needs
// besides those it has.
func (f Filter) narrowed(sql string, args []any) (string, []any) {
	if f.MinAge <= 0 && len(f.Institutions) == 0 && len(f.StorageOptions) == 0 {
		return sql, args
	}
	place := func(i int) string { return "$" + strconv.Itoa(len(args)+i) }
	return strings.Replace(sql, "/* narrower */", fmt.Sprintf(narrowerSQL, place(1), place(2), place(3)), 1),
		append(args, f.MinAge, append([]string{}, f.Institutions...), append([]string{}, f.StorageOptions...))
}

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
	if capped == "" {
		return p.claimIn(ctx, p.hot, f, probes, n, who, over)
	}
	var items []Item
	err := pgx.BeginFunc(ctx, p.hot, func(tx pgx.Tx) error {
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

func (p *postgres) peek(ctx context.Context, f Filter, probes []probe, n int) ([]int64, error) {
	sql, args := f.narrowed(peekSQL, f.readyArgs(probes, n))
	rows, _ := p.hot.Query(ctx, sql, args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look at claimable work: %w", p.noticed(err))
	}
	return ids, nil
}

// readyArgs are the first nine arguments of a statement that has readySQL in it.
func (f Filter) readyArgs(probes []probe, n int) []any {
	stages, bands, most := make([]string, len(probes)), make([]int16, len(probes)), make([]int32, len(probes))
	priorities, turns := make([]int16, len(probes)), make([]int64, len(probes))
	for i, pr := range probes {
		stages[i], bands[i], most[i] = pr.stage, pr.band, int32(min(pr.most, n)) //nolint:gosec // n is small
		priorities[i], turns[i] = pr.from.priority, pr.from.turn
	}
	maxSize := f.MaxSize
	if maxSize == 0 {
		maxSize = 1<<63 - 1
	}
	return []any{stages, bands, most, priorities, turns, f.action(), f.MinSize, maxSize, n}
}

func (p *postgres) claimIn(ctx context.Context, db querier, f Filter, probes []probe, n int, who identity, over leases) ([]Item, error) {
	var leaseOf []time.Duration
	var leaseFor []string
	for stage, d := range over {
		leaseOf, leaseFor = append(leaseOf, d), append(leaseFor, stage)
	}
	sql, args := f.narrowed(lockedClaimSQL, append(f.readyArgs(probes, n), who.node, who.pid, who.worker, leaseOf, leaseFor))
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Item, err error) {
		err = row.Scan(&i.ID, &i.Token, &i.Entered, &i.Stage, &i.Attempt, &i.Name, &i.Bucket, &i.ETag, &i.Size, &i.BagDate,
			&i.ObjectIdentifier, &i.InstitutionID, &i.band, &i.at.priority, &i.at.turn)
		i.Action = f.action()
		return i, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim work: %w", p.noticed(err))
	}
	if err := p.nameInstitutions(ctx, db, items); err != nil {
		return items, fmt.Errorf("name the institutions of claimed items: %w", p.noticed(err))
	}
	return items, nil
}

// nameInstitutions fills in the identifiers of items' institutions. They never
// change, so each is asked for once.
func (p *postgres) nameInstitutions(ctx context.Context, db querier, items []Item) error {
	var unknown []int64
	for _, i := range items {
		if _, ok := p.institutions.Load(i.InstitutionID); !ok && !slices.Contains(unknown, i.InstitutionID) {
			unknown = append(unknown, i.InstitutionID)
		}
	}
	if len(unknown) > 0 {
		rows, _ := db.Query(ctx, `SELECT id, identifier FROM institutions WHERE id = ANY ($1)`, unknown)
		var id int64
		var name string
		_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			p.institutions.Store(id, name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range items {
		name, _ := p.institutions.Load(items[i].InstitutionID)
		items[i].Institution, _ = name.(string)
	}
	return nil
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
	FROM /* moves */
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

// Where the moves come from. Most are of stages that are done, of which little
// needs to be said: reading seventeen arrays costs a twentieth of a hop.
const (
	anyMovesSQL = `unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
		$8::int[], $9::interval[], $10::bool[], $11::bool[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[])
		AS m (id, token, stage, note, topic, in_hand, status,
			attempt, delay, retry, review, item_outcome, code, object, storage_option, ended, error)`
	doneMovesSQL = `(
		SELECT id, token, stage, note, topic, in_hand, 'Pending' AS status, 0 AS attempt, interval '0' AS delay, true AS retry, false AS review,
			NULL::text AS item_outcome, '' AS code, NULL::bigint AS object, NULL::text AS storage_option, 'done' AS ended, '' AS error
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) AS d (id, token, stage, note, topic, in_hand)
	) m`
)

//nolint:gochecknoglobals // constants, but for Go
var (
	anyMoves  = strings.Replace(settleSQL, "/* moves */", anyMovesSQL, 1)
	doneMoves = strings.Replace(settleSQL, "/* moves */", doneMovesSQL, 1)
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
	for _, m := range moves {
		c.add(m)
	}
	rows, _ := p.hot.Query(ctx, sql, c.args()...)
	landed := make([]bool, len(moves))
	var m claimed
	_, err := pgx.ForEachRow(rows, []any{&m.item, &m.token}, func() error {
		landed[at[m]] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("end %d claims: %w", len(moves), p.noticed(err))
	}
	return landed, nil
}

func (p *postgres) sentBack(ctx context.Context, item int64) (n int, err error) {
	err = p.hot.QueryRow(ctx, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'sent back'`, item).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count how often item %d was sent back: %w", item, err)
	}
	return n, nil
}

// moveColumns are moves as the statement takes them, column by column.
type moveColumns struct {
	few                                 bool // the first six are all that is needed
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
	args := []any{c.id, c.token, c.stage, c.note, c.topic, c.inHand}
	if c.few {
		return args
	}
	return append(args, c.status, c.attempt, c.delay, c.retry, c.review, c.outcome, c.code, c.object, c.storageOption, c.ended, c.failure)
}
