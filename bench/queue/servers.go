package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/migrations"
)

// servers are what the systems talk to. All of them run all the time; a server
// that nobody talks to takes no share of the machine worth naming.
type servers struct {
	dir      string
	stack    *devstack.Stack
	db       *pgxpool.Pool // to look on, not to work with
	launched []*process
}

// startServers starts PostgreSQL with the settings that it comes with, and nsqd
// if it is needed. The peers launch what else they need.
func startServers(ctx context.Context, chosen []contender) (_ *servers, err error) {
	dir, err := os.MkdirTemp("", "farol-bench-queue-")
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	s := &servers{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
	}()
	binary, err := buildServers(ctx, dir)
	if err != nil {
		return nil, err
	}
	only := []devstack.Service{devstack.Postgres}
	if len(choose(chosen, []string{"nsq"})) > 0 {
		only = append(only, devstack.NSQ)
	}
	s.stack, err = devstack.Start(ctx, devstack.Options{Dir: filepath.Join(dir, "stack"), Executable: binary, Only: only})
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	if err := migrations.Up(ctx, s.stack.AdminURL); err != nil {
		return nil, err
	}
	if s.db, err = pgxpool.New(ctx, s.stack.AdminURL+"&application_name=bench-looks-on"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return s, s.mustBeDurable(ctx)
}

// buildServers builds the program that runs PostgreSQL and nsqd as its children.
func buildServers(ctx context.Context, dir string) (string, error) {
	if _, err := os.Stat("queue/graphile/package.json"); err != nil {
		return "", fmt.Errorf("find the peers' files; run this in the folder bench: %w", err)
	}
	binary := filepath.Join(dir, "farol-dev")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/farol-dev")
	build.Dir = ".." // the program's own module pins its libraries
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build farol-dev: %w\n%s", err, out)
	}
	return binary, nil
}

// mustBeDurable refuses a server whose commits may be lost: its figures would be
// worth nothing.
func (s *servers) mustBeDurable(ctx context.Context) error {
	var fsync, commit, pages string
	err := s.db.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&fsync, &commit, &pages)
	if err != nil {
		return fmt.Errorf("read the database's settings: %w", err)
	}
	if fsync != "on" || commit != "on" || pages != "on" {
		return fmt.Errorf("fsync is %s, synchronous_commit %s, full_page_writes %s: all must be on", fsync, commit, pages)
	}
	return nil
}

// written is how much the database has written so far.
type written struct {
	wal     int64 // bytes
	commits int64 // transactions that wrote something; a claim that finds nothing is none
}

func (s *servers) written(ctx context.Context) (w written, err error) {
	err = s.db.QueryRow(ctx, `
		SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&w.wal, &w.commits)
	if err != nil {
		return w, fmt.Errorf("read how much was written: %w", err)
	}
	return w, nil
}

// settle makes runs begin alike: nothing of the one before is left to be written.
func (s *servers) settle(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, `CHECKPOINT`); err != nil {
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

func (s *servers) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, p := range s.launched {
		errs = append(errs, p.stop(ctx))
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.stack != nil {
		errs = append(errs, s.stack.Remove(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// process is a program that ends when its standard input does, and so with us,
// however we end.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	out   bytes.Buffer // of both kinds; read it after the end only
}

// underUs runs a server and stops it when its own standard input ends.
const underUs = `"$@" & server=$!; cat >/dev/null; kill "$server"; wait "$server"`

// launch starts a server and returns when it takes connections at addr.
func (s *servers) launch(ctx context.Context, addr, name string, args ...string) error {
	p := &process{name: name, cmd: exec.Command("sh", append([]string{"-c", underUs, "sh", name}, args...)...)} //nolint:noctx // it outlives the call
	p.cmd.Dir = s.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who know the order
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("make the pipe of %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := listens(ctx, addr); err != nil {
		err = errors.Join(fmt.Errorf("start %s: %w", name, err), p.stop(context.WithoutCancel(ctx)))
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(p.out.String()))
	}
	s.launched = append(s.launched, p)
	return nil
}

// stop ends the process and waits for it; one that does not end is killed.
func (p *process) stop(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.cmd.Wait() //nolint:errcheck // a server that was asked to stop says so in its exit code
	}()
	if err := p.stdin.Close(); err != nil {
		return fmt.Errorf("close the pipe of %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s does not stop and is killed", p.name), syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL))
	}
}

// listens returns when someone takes connections at addr.
func listens(ctx context.Context, addr string) error {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if !pause(ctx, 10*time.Millisecond) {
			return err
		}
	}
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
