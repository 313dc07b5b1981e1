package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/registry"
)

// renewSQL extends all leases of this process at once, writes what it has in
// hand into the ledger, and tells that the process is there. A token that does
// not come back is lost. A heartbeat that was given up on may come late: it takes
// nothing from the one after it, which may have asked for more, unless the clock was
// set back since the item was heard of: then its lease would be too long. A process that
// was given up for dead, and is not, says so here.
const renewSQL = `
WITH renewed AS (
	UPDATE work_items w SET lease_expires_at = CASE WHEN a.heard_at > now() + interval '5 seconds' THEN now() + held.lease
		ELSE greatest(w.lease_expires_at, now() + held.lease) END
	FROM unnest($1::bigint[], $2::bigint[], $3::interval[], $4::text[]) AS held (id, token, lease, in_hand)
	LEFT JOIN work_item_attempts a ON a.work_item_id = held.id AND a.claim_token = held.token
	WHERE w.id = held.id AND w.claim_token = held.token
	RETURNING w.id, held.token, held.in_hand
), heard AS (
	UPDATE work_item_attempts a SET heard_at = now(), file_in_hand = renewed.in_hand
	FROM renewed
	WHERE a.work_item_id = renewed.id AND a.claim_token = renewed.token
), late AS (
	UPDATE work_item_attempts a SET heard_at = now(), error_code = gone.code, file_in_hand = coalesce(nullif(gone.in_hand, ''), a.file_in_hand)
	FROM (
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $4::text[], $18::text[]) AS held (id, token, in_hand, code)
		UNION ALL
		SELECT * FROM unnest($14::bigint[], $15::bigint[], $16::text[], $17::text[]) AS given_up (id, token, in_hand, code)
	) gone
	WHERE a.work_item_id = gone.id AND a.claim_token = gone.token AND a.outcome = 'lease expired'
), me AS (
	INSERT INTO worker_processes (worker, node, pid, host, pid_started, cgroup, oom_kills, pools, heartbeat)
	VALUES ($5, $6, $7, $8, $9, $10, $11, $12, make_interval(secs => $13))
	ON CONFLICT (worker) DO UPDATE SET
		heard_at = now(), oom_kills = excluded.oom_kills, pools = excluded.pools, heartbeat = excluded.heartbeat,
		ended_at = NULL, ending = NULL
	RETURNING draining
)
SELECT renewed.id, me.draining, (SELECT now() - p.heard_at FROM worker_processes p WHERE p.worker = $5) FROM me LEFT JOIN renewed ON true`

func (p *postgres) renew(ctx context.Context, self process, held []heldLease) (beatResult, error) {
	ids, tokens := make([]int64, len(held)), make([]int64, len(held))
	spans, inHand, lost := make([]time.Duration, len(held)), make([]string, len(held)), make([]string, len(held))
	for i, h := range held {
		ids[i], tokens[i], spans[i], inHand[i], lost[i] = h.item, h.token, h.lease, h.inHand, h.lost
	}
	var gone, goneTokens []int64
	var goneFiles, codes []string
	for _, g := range self.givenUp {
		gone, goneTokens = append(gone, g.item), append(goneTokens, g.token)
		goneFiles, codes = append(goneFiles, g.inHand), append(codes, g.code)
	}
	got := beatResult{kept: map[int64]bool{}}
	err := registry.Again(func() error {
		clear(got.kept)
		rows, _ := p.beat.Query(ctx, renewSQL, ids, tokens, spans, inHand,
			self.worker, self.node, self.pid, self.host, self.started, self.cgroup, self.oomKills, self.pools, self.beat, gone, goneTokens, goneFiles, codes, lost)
		var id *int64
		_, err := pgx.ForEachRow(rows, []any{&id, &got.draining, &got.ago}, func() error {
			if id != nil {
				got.kept[*id] = true
			}
			return nil
		})
		return err
	})
	if err != nil {
		return beatResult{}, fmt.Errorf("renew %d leases: %w", len(held), err)
	}
	return got, nil
}

func (p *postgres) leave(ctx context.Context, worker string) error {
	_, err := p.beat.Exec(ctx, `UPDATE worker_processes SET ended_at = now(), ending = 'stopped' WHERE worker = $1 AND ended_at IS NULL`, worker)
	if err != nil {
		return fmt.Errorf("sign off: %w", err)
	}
	return nil
}

// overdueSQL goes from one priority of a cell to the next by work_items_ready,
// beginning where the next claim would, and looks at the first item of each.
const overdueSQL = `
SELECT cell.stage, cell.band, level.priority
FROM unnest($1::text[], $2::smallint[], $4::smallint[], $5::bigint[]) AS cell (stage, band, priority, turn)
JOIN stage_settings s ON s.action = $3 AND s.stage = cell.stage
CROSS JOIN LATERAL (
	WITH RECURSIVE level AS (
		(SELECT w.priority, w.run_at FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND w.stage = cell.stage AND w.action = $3 AND w.size_band = cell.band AND w.run_at <= now()
		  AND (w.priority, w.turn) >= (cell.priority, cell.turn)
		ORDER BY w.priority, w.turn, w.run_at, w.id LIMIT 1)
		UNION ALL
		SELECT worse.priority, worse.run_at FROM level CROSS JOIN LATERAL (
			SELECT w.priority, w.run_at FROM work_items w
			WHERE w.status = 'Pending' AND w.retry AND w.stage = cell.stage AND w.action = $3 AND w.size_band = cell.band AND w.run_at <= now()
			  AND w.priority > level.priority
			ORDER BY w.priority, w.turn, w.run_at, w.id LIMIT 1) worse
	)
	SELECT priority, run_at, row_number() OVER (ORDER BY priority) AS place FROM level
) level
WHERE level.place > 1 AND level.run_at < now() - s.overdue`

func (p *postgres) overdue(ctx context.Context, action string, probes []probe) (map[cell][]int16, error) {
	stages, bands, priorities, turns := columns(probes)
	rows, _ := p.upkeep.Query(ctx, Filter{Action: action}.byAction(overdueSQL), stages, bands, action, priorities, turns)
	found := map[cell][]int16{}
	var c cell
	var priority int16
	_, err := pgx.ForEachRow(rows, []any{&c.stage, &c.band, &priority}, func() error {
		found[c] = append(found[c], priority)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for priorities that have waited too long: %w", err)
	}
	return found, nil
}

func (p *postgres) serve(ctx context.Context, turns map[int16]int64) error {
	var bands []int16
	var come []int64
	for b, t := range turns {
		bands, come = append(bands, b), append(come, t)
	}
	_, err := p.upkeep.Exec(ctx, `
		UPDATE size_bands b SET turn = come.turn
		FROM unnest($1::smallint[], $2::bigint[]) AS come (band, turn)
		WHERE b.band = come.band AND b.turn < come.turn`, bands, come)
	if err != nil {
		return fmt.Errorf("tell which turns are served: %w", err)
	}
	return nil
}

// tidySQL deletes the turns that institutions have passed, retries that no mirror
// has taken for a day, and the rows of processes that ended a week ago.
const tidySQL = `
WITH untaken AS (
	DELETE FROM topic_retries WHERE id IN (
		SELECT id FROM topic_retries WHERE created_at < now() - interval '1 day' ORDER BY created_at LIMIT 10000 FOR UPDATE SKIP LOCKED)
), passed AS (
	DELETE FROM institution_turns t
	WHERE next_turn < (SELECT max(l.next_turn) FROM institution_turns l
		WHERE l.institution_id = t.institution_id AND l.size_band = t.size_band)
)
DELETE FROM worker_processes WHERE ended_at < now() - interval '7 days'`

func (p *postgres) tidy(ctx context.Context) error {
	if _, err := p.upkeep.Exec(ctx, tidySQL); err != nil {
		return fmt.Errorf("tidy the queue: %w", err)
	}
	if _, err := p.upkeep.Exec(ctx, `SELECT move_stranded()`); err != nil {
		return fmt.Errorf("move items on from stages that were removed: %w", err)
	}
	if _, err := p.upkeep.Exec(ctx, `SELECT tell_of_services()`); err != nil {
		return fmt.Errorf("alert people to services that fail: %w", err)
	}
	if _, err := p.upkeep.Exec(ctx, `SELECT park_memory_needs()`); err != nil {
		return fmt.Errorf("park items that need more memory than any worker has: %w", err)
	}
	return nil
}

// archiveSQL moves items that ended for good, and their attempts, out of the
// queue's tables, the oldest first by work_items_ended. Those whose old copies
// Cleanup could not delete stay.
const archiveSQL = `
WITH old AS MATERIALIZED (
	SELECT id FROM work_items w
	WHERE status IN ('Success', 'Cancelled') AND updated_at < now() - $1::interval
	  AND NOT EXISTS (SELECT FROM retired_copies c WHERE c.work_item_id = w.id)
	ORDER BY updated_at
	LIMIT $2
	FOR UPDATE SKIP LOCKED
), items AS (
	INSERT INTO work_items_archive SELECT w.* FROM work_items w WHERE id IN (SELECT id FROM old)
), attempts AS (
	INSERT INTO work_item_attempts_archive SELECT a.* FROM work_item_attempts a WHERE work_item_id IN (SELECT id FROM old)
)
SELECT id FROM old`

func (p *postgres) archive(ctx context.Context, after time.Duration, most int) (n int, err error) {
	err = p.upkeep.transact(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, archiveSQL, after, most)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		if _, err := tx.Exec(ctx, `DELETE FROM work_item_attempts WHERE work_item_id = ANY ($1)`, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM work_items WHERE id = ANY ($1)`, ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("archive ended items: %w", err)
	}
	return n, nil
}

// Channels on which processes hear of each other.
const (
	workChannel     = "farol_work"     // of work: the sender, then a line for each place that got some
	settingsChannel = "farol_settings" // of changed settings, and of workers that are asked to stop
)

// announce waits for no disk: a notice does not outlive a crash anyway.
func (p *postgres) announce(ctx context.Context, payload string) error {
	if _, err := p.beat.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`, workChannel, payload); err != nil {
		return fmt.Errorf("tell others of work: %w", err)
	}
	return nil
}

// listenTime is how long a listener may hear nothing before it makes sure that
// it could: the node may have gone without a word, or be a standby by now.
const listenTime = 10 * time.Second

// listen keeps one connection of its own and reads it always: one that is not
// read holds up the notices of everyone.
func (p *postgres) listen(ctx context.Context, heard func(channel, payload string)) error {
	conn, err := pgx.ConnectConfig(ctx, p.direct)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on how a listener ends
	if _, err := conn.Exec(ctx, "LISTEN "+workChannel+"; LISTEN "+settingsChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	heard("", "")
	for {
		n, err := p.next(ctx, conn)
		switch {
		case err != nil:
			return fmt.Errorf("wait for notices: %w", err)
		case n != nil:
			heard(n.Channel, n.Payload)
		}
	}
}

// next waits for a notice. It returns nil if there was none for a while and the
// connection is good.
func (p *postgres) next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	n, err := conn.WaitForNotification(quiet)
	if err == nil || ctx.Err() != nil || quiet.Err() == nil {
		return n, err
	}
	check, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if p.direct.ValidateConnect != nil {
		return nil, p.direct.ValidateConnect(check, conn.PgConn())
	}
	return nil, conn.Ping(check)
}

// refused tells whether the database will never take a statement as it is: data
// exceptions and violated constraints. What has to do with connections, locks
// or the server may pass.
func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code[:2] == "23")
}
