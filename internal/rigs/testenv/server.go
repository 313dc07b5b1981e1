package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/migrations"
)

// Server is a PostgreSQL server of a test's own, to be hurt. What ends it leaves
// it so until it is started again. It commits as a real one does, but does not
// wait for the disk, so only the machine's death would lose what it said is safe.
type Server struct {
	URL string // of a migrated database; the user is a superuser

	t   testing.TB
	own *ownServer
}

// NewServer returns a server that has a migrated database.
func NewServer(t testing.TB) *Server {
	t.Helper()
	return newMigrated(t)
}

// NewCountingServer is NewServer for a test that counts: the view pg_stat_statements has
// all statements of the database, and the server writes nothing that nobody has asked
// for. How much of a page goes to the log does not depend on when the last checkpoint was.
func NewCountingServer(t testing.TB) *Server {
	t.Helper()
	s := newMigrated(t, "shared_preload_libraries=pg_stat_statements", "full_page_writes=off", "autovacuum=off", "checkpoint_timeout=1d")
	s.Exec(`CREATE EXTENSION pg_stat_statements`)
	return s
}

func newMigrated(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := newServer(t, settings...)
	s.start()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, migrations.Up(ctx, s.URL))
	return s
}

// newServer makes a server that is down, with settings in addition to those of all.
func newServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return &Server{t: t, own: newOwn(t, devstack.Postgres, func(o *devstack.Options) {
		o.PostgresSettings = append([]string{
			"wal_level=replica", "max_wal_senders=5", "synchronous_commit=on", "full_page_writes=on", "autovacuum=on",
			"wal_receiver_status_interval=1s", "wal_retrieve_retry_interval=100ms",
		}, settings...)
	})}
}

// Standby returns a server that copies s by streaming, from now on.
func (s *Server) Standby() *Server {
	s.t.Helper()
	copied := newServer(s.t)
	copied.start(func(o *devstack.Options) { o.StandbyOf = s.URL })
	return copied
}

// Follow throws the data of a server that is down away and starts it, under its
// old address, as a streaming copy of another.
func (s *Server) Follow(primary *Server) {
	s.t.Helper()
	must(s.t, os.RemoveAll(s.data()))
	s.start(func(o *devstack.Options) { o.StandbyOf = primary.URL })
}

// Start starts a server that is down, with the data that it had.
func (s *Server) Start() {
	s.t.Helper()
	s.start()
}

func (s *Server) start(change ...func(*devstack.Options)) {
	s.t.Helper()
	s.own.start(s.t, change...)
	if s.URL == "" {
		s.URL = s.own.stack.AdminURL
	}
}

// End sends the server a signal that ends it, and returns when it has: SIGKILL
// is a crash, SIGQUIT the immediate shutdown, SIGINT the fast one.
func (s *Server) End(how syscall.Signal) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	pid, pidErr := strconv.Atoi(first)
	if err := errors.Join(err, pidErr); err != nil {
		s.t.Fatal("testenv: find the server:", err)
	}
	s.own.end(s.t, pid, how)
}

// Promote makes a standby the primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.Exec(`SELECT pg_promote(wait => true)`)
}

// Exec runs a statement as superuser, on a connection of its own.
func (s *Server) Exec(sql string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err == nil {
		_, err = conn.Exec(ctx, sql)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		s.t.Fatal("testenv:", fmt.Errorf("%s: %w", sql, err))
	}
}

func (s *Server) data() string { return filepath.Join(s.own.dir, "postgres", "data") }
