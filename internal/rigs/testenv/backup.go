package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// NewArchivingServer is NewServer that keeps its log, so that a backup of it can be restored up to
// a moment.
func NewArchivingServer(t testing.TB) *Server {
	t.Helper()
	return newMigrated(t, "archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f")
}

// Backup is a copy of a server, which is down.
func (s *Server) Backup() *Server {
	s.t.Helper()
	copied := s.Standby()
	copied.End(syscall.SIGINT)
	return copied
}

// RestoreTo starts a backup as its server was at a moment. What that has written since stays in its
// archive: it is down afterwards.
func (s *Server) RestoreTo(lost *Server, at time.Time) {
	s.t.Helper()
	lost.archived()
	lost.End(syscall.SIGINT)
	must(s.t, os.Remove(filepath.Join(s.data(), "standby.signal")))
	s.write("recovery.signal", "")
	s.write("postgresql.auto.conf", fmt.Sprintf("restore_command = 'cp %s/%%f %%p'\nrecovery_target_time = '%s'\nrecovery_target_action = 'promote'\n",
		filepath.Join(lost.data(), "../archive"), at.UTC().Format("2006-01-02 15:04:05.999999+00")))
	s.start()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	Eventually(s.t, "the server to take writes", func() bool {
		conn, err := pgx.Connect(ctx, s.URL)
		if err != nil {
			return false
		}
		defer conn.Close(ctx) //nolint:errcheck // it was for one question
		var replays bool
		return conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&replays) == nil && !replays
	})
}

// archived returns when all of the log is in the archive.
func (s *Server) archived() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	must(s.t, err)
	defer conn.Close(ctx) //nolint:errcheck // it was for some questions
	var last string
	must(s.t, conn.QueryRow(ctx, `SELECT pg_walfile_name(pg_switch_wal())`).Scan(&last))
	Eventually(s.t, "the log to be archived", func() bool {
		var done bool
		err := conn.QueryRow(ctx, `SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver`, last).Scan(&done)
		return err == nil && done
	})
}

func (s *Server) write(name, content string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.data(), name), []byte(content), 0o600))
	like, err := os.Stat(filepath.Join(s.data(), "PG_VERSION"))
	must(s.t, err)
	owner, ok := like.Sys().(*syscall.Stat_t)
	if ok {
		must(s.t, os.Chown(filepath.Join(s.data(), name), int(owner.Uid), int(owner.Gid)))
	}
}
