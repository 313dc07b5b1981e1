package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// startPgBouncer runs PgBouncer in transaction mode. It has so few connections
// that its clients share them, statement by statement: a client that leaves something behind
// in a session is found out.
func (s *Stack) startPgBouncer(ctx context.Context) error {
	path, err := find("pgbouncer", "pgbouncer", "pgbouncer")
	if err != nil {
		return err
	}
	of, err := url.Parse(s.options.PoolerOf)
	if err != nil {
		return fmt.Errorf("read the server's URL: %w", err)
	}
	run := func(ctx context.Context, addrs []string) (*child, error) {
		return s.runPgBouncer(ctx, path, addrs[0], of)
	}
	addrs, _, err := s.serve(ctx, run, "pgbouncer")
	if err != nil {
		return err
	}
	of.Host = addrs[0]
	s.PoolerURL = of.String()
	return nil
}

func (s *Stack) runPgBouncer(ctx context.Context, path, addr string, server *url.URL) (*child, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("read the address: %w", err)
	}
	home := cluster{path: filepath.Join(s.dir, "pgbouncer"), uid: -1, gid: -1}
	if os.Geteuid() == 0 { // it refuses to run as root, as PostgreSQL does
		if home.uid, home.gid, err = ordinaryUser(); err != nil {
			return nil, err
		}
	}
	password, _ := server.User.Password()
	users := filepath.Join(home.path, "users")
	config := filepath.Join(home.path, "pgbouncer.ini")
	err = errors.Join(
		os.MkdirAll(home.path, 0o700), home.own(home.path),
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", server.User.Username(), password), 0o600), home.own(users),
		os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = 2
max_client_conn = 500
`, server.Hostname(), server.Port(), host, port, users), 0o600), home.own(config))
	if err != nil {
		return nil, fmt.Errorf("write PgBouncer's settings: %w", err)
	}
	return s.guard(ctx, PgBouncer, guarded{
		Path: path, Args: []string{"-q", config}, Dir: home.path, UID: home.uid, GID: home.gid,
		Stop: syscall.SIGTERM, GraceMS: 5_000,
	}, func() bool { return listens(ctx, addr) })
}
