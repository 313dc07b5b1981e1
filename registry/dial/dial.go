// Package dial opens connections to the database: pools that leave a node which is lost, with new passwords, and
// with a span for each statement. Each finds out whether the database was restored from a backup.
package dial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Option says how a database is reached.
type Option func(*pgxpool.Config)

// Through is for a URL that leads to a pooler, as FAROL_DATABASE_POOLER says: "" is none. In
// transaction mode sessions go from client to client, and nothing is left in one: neither a
// setting nor, unless the pooler keeps these for its clients, a prepared statement.
// default_query_exec_mode=cache_describe in a URL says "transaction" too.
func Through(pooler string) Option {
	return func(c *pgxpool.Config) {
		switch pooler {
		case "transaction":
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		case "prepared":
			c.ConnConfig.RuntimeParams[pooledMark] = pooler
			c.BeforeConnect = func(_ context.Context, one *pgx.ConnConfig) error {
				delete(one.RuntimeParams, pooledMark) // the server knows no such setting
				return nil
			}
		}
	}
}

// pooledMark says in a configuration that it leads to a pooler which keeps prepared statements.
const pooledMark = "farol.pooled"

// Pooled reports whether a pool's connections lead to a pooler.
func Pooled(c *pgx.ConnConfig) bool {
	return c.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement || c.RuntimeParams[pooledMark] != ""
}

// Connect opens a pool on the database at url. Its connections plan each of our
// statements once and never compile one: both cost more than any of them takes.
// A process that is stopped, or cut off, in the middle of a transaction keeps what
// it has locked for half a minute at most.
func Connect(ctx context.Context, url, name string, options ...Option) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	for _, o := range options {
		o(config)
	}
	seekPrimary(config.ConnConfig, url)
	// An idle process polls every two seconds: a ping before each would double that. What
	// a broken connection fails is tried again.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	config.ConnConfig.RuntimeParams["application_name"] = name
	if !Pooled(config.ConnConfig) {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, `SET jit = off; SET plan_cache_mode = force_generic_plan; SET idle_in_transaction_session_timeout = '30s'`)
			return err
		}
	}
	return Open(ctx, config)
}

// Renewed has each new connection take the user and the password of the URL that again returns: those of
// the start may have been replaced.
func Renewed(again func() string) Option {
	return func(c *pgxpool.Config) { Renew(c.ConnConfig, again) }
}

// Renew is [Renewed] for a [Session].
func Renew(c *pgx.ConnConfig, again func() string) {
	c.Tracer = traced(c.Tracer, renewal(again))
}

func traced(first, second pgx.QueryTracer) pgx.QueryTracer {
	if first == nil {
		return second
	}
	return multitracer.New(first, second)
}

// renewal changes what a connection is made by. A tracer alone is asked by connections of pools and others.
type renewal func() string

// TraceConnectStart takes the new user and password.
func (r renewal) TraceConnectStart(ctx context.Context, data pgx.TraceConnectStartData) context.Context {
	if now, err := pgx.ParseConfig(r()); err == nil {
		data.ConnConfig.User, data.ConnConfig.Password = now.User, now.Password
	}
	return ctx
}

// TraceConnectEnd does nothing.
func (renewal) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) {}

// TraceQueryStart does nothing.
func (renewal) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd does nothing.
func (renewal) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// pingAfter is how long a connection may be unused before it is asked whether it works.
const pingAfter = 30 * time.Second

// Session is the configuration of a single connection, outside a pool, to the database at url.
func Session(url, name string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	seekPrimary(config, url)
	config.RuntimeParams["application_name"] = name
	return config, nil
}

const (
	// hostTime is how long one of several hosts may take to answer. One that is
	// switched off does not answer at all, and the next one has to be tried.
	hostTime = 3 * time.Second
	// onlyTime is how long the only host may take. When many workers start at once, it has
	// hundreds of passwords to check: a worker that gave up sooner would have it begin again.
	onlyTime = 20 * time.Second
)

// seekPrimary passes over the hosts of a URL that do not take writes, unless the
// URL says what it wants.
func seekPrimary(c *pgx.ConnConfig, url string) {
	if !strings.Contains(url, "target_session_attrs") {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = onlyTime
		for _, other := range c.Fallbacks {
			if other.Host != c.Host || other.Port != c.Port { // else it is the same without encryption
				c.ConnectTimeout = hostTime
			}
		}
	}
}

// Open opens a pool that leaves its node when this is lost, shuts down or takes
// no more writes: all connections of the pool are then replaced, since each of
// them would fail, and new ones find the primary.
func Open(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	l := &leaver{}
	config.ConnConfig.Tracer = traced(traced(config.ConnConfig.Tracer, l), spans{})
	config.AfterConnect = noting(config.AfterConnect)
	db, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	l.pool.Store(db)
	return db, nil
}

// noting has a new connection find out whether the database was restored from a backup, before its
// first statement. A role without that right only reads, or the schema is of an earlier version.
func noting(first func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, c *pgx.Conn) error {
		if first != nil {
			if err := first(ctx, c); err != nil {
				return err
			}
		}
		_, err := c.Exec(ctx, `SELECT note_origin()`)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && slices.Contains([]string{"42883", "42501", "25006"}, pg.Code) { // undefined_function, insufficient_privilege
			return nil
		}
		return err
	}
}

// leaver looks at how the statements of a pool end.
type leaver struct{ pool atomic.Pointer[pgxpool.Pool] }

func (l *leaver) ended(conn *pgx.Conn, err error) {
	if db := l.pool.Load(); db != nil && left(conn, err) {
		db.Reset()
	}
}

// left reports whether a statement failed for what has become of the node.
func left(conn *pgx.Conn, err error) bool {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return false
	case !errors.As(err, &pg): // the connection broke, if not by our own doing
		return conn.IsClosed() && !errors.Is(err, context.Canceled)
	case pg.Code == "25006": // read_only_sql_transaction: it is a standby now
		return true
	case pg.Code == "57P01", pg.Code == "57P02", pg.Code == "57P03": // it shuts down, has crashed, or starts
		return true
	}
	return false
}

func (l *leaver) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (l *leaver) TraceQueryEnd(_ context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	l.ended(conn, data.Err)
}

func (l *leaver) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *leaver) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (l *leaver) TraceBatchEnd(_ context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	l.ended(conn, data.Err)
}
