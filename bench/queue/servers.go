package queue

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/devstack"
)

// servers are what the systems talk to. All of them run all the time; a server
// that nobody talks to takes no share of the machine worth naming.
type servers struct{ *rig.Servers }

// startServers starts PostgreSQL with the settings that it comes with, and nsqd
// if it is needed. The peers launch what else they need.
func startServers(ctx context.Context, chosen []contender) (*servers, error) {
	if _, err := os.Stat("queue/graphile/package.json"); err != nil {
		return nil, fmt.Errorf("find the peers' files; run this in the folder bench: %w", err)
	}
	var o devstack.Options
	if len(choose(chosen, []string{"nsq"})) > 0 {
		o.Only = []devstack.Service{devstack.NSQ}
	}
	inner, err := rig.Start(ctx, "", o)
	return &servers{inner}, err
}

// written is how much the database has written so far.
type written struct {
	wal     int64 // bytes
	commits int64 // transactions that wrote something; a claim that finds nothing is none
}

func (s *servers) written(ctx context.Context) (w written, err error) {
	err = s.DB.QueryRow(ctx, `
		SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&w.wal, &w.commits)
	if err != nil {
		return w, fmt.Errorf("read how much was written: %w", err)
	}
	return w, nil
}

// settle makes runs begin alike: nothing of the one before is left to be written.
func (s *servers) settle(ctx context.Context) error {
	if _, err := s.DB.Exec(ctx, `CHECKPOINT`); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	return nil
}

// reload empties a peer's table and inserts n jobs by the chunk.
func reload(ctx context.Context, db *pgxpool.Pool, table string, n, chunk int, insert func(from, to int) error) error {
	if _, err := db.Exec(ctx, `TRUNCATE `+table); err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	for from := 0; from < n; from += chunk {
		if err := insert(from, min(from+chunk, n)); err != nil {
			return err
		}
	}
	if _, err := db.Exec(ctx, `VACUUM ANALYZE `+table); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// freeAddr is a loopback address that nobody listens at now.
func freeAddr(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
