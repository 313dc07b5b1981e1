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

func (p *postgres) overdue(ctx context.Context, action string, probes []probe) (map[cell][]int16, error) {
	stages, bands, priorities, turns := columns(probes)
	rows, _ := p.upkeep.Query(ctx, ofAction(action, overdueIngestSQL, overdueRequestsSQL), stages, bands, action, priorities, turns)
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
	_, err := p.upkeep.Exec(ctx, servedSQL, bands, come)
	if err != nil {
		return fmt.Errorf("tell which turns are served: %w", err)
	}
	return nil
}

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
