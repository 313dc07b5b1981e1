package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/clock"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/line"
	"github.com/farol-preservation/farol/registry/dial"
)

// postgres is the queue in a database. Each part of the engine declares what it needs of
// it; in simulations of the worker's side that is a script. Each method is one short
// transaction, except Listen. Its statements have few connections of their own, so that
// neither a claim nor a heartbeat ever waits for the many statements of the stages.
type postgres struct {
	hot    lane.Lane // claims and ends of claims
	beat   lane.Lane // heartbeats, which wait for nothing else
	upkeep lane.Lane // all that may take its time

	line.Notices
	clock.Times

	institutions sync.Map // identifiers by ID
}

const (
	hotConns    = 4
	beatConns   = 1
	upkeepConns = 2
)

func newPostgres(db *pgxpool.Pool, direct *pgx.ConnConfig) (*postgres, error) {
	if direct == nil && !dial.Pooled(db.Config().ConnConfig) {
		direct = db.Config().ConnConfig
	}
	p := &postgres{}
	for l, most := range map[*lane.Lane]int32{&p.hot: hotConns, &p.beat: beatConns, &p.upkeep: upkeepConns} {
		var err error
		if *l, err = lane.Open(db, most); err != nil {
			p.close()
			return nil, fmt.Errorf("open the queue's own connections: %w", err)
		}
	}
	p.Notices, p.Times = line.Notices{Lane: p.upkeep, Direct: direct}, clock.Times{Lane: p.upkeep}
	return p, nil
}

func (p *postgres) close() {
	for _, l := range []lane.Lane{p.hot, p.beat, p.upkeep} {
		if l.Pool != nil {
			l.Close()
		}
	}
}

// querier is a lane or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// refused reports whether the database will never take a statement as it is: data
// exceptions and violated constraints. What has to do with connections, locks
// or the server may pass.
func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code[:2] == "22" || pg.Code[:2] == "23")
}
