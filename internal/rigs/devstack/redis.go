package devstack

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func (s *Stack) startRedis(ctx context.Context) error {
	path, err := find("redis-server", "redis-server", "redis")
	if err != nil {
		return err
	}
	run := func(ctx context.Context, addrs []string) (*child, error) { return s.runRedis(ctx, path, addrs[0]) }
	addrs, c, err := s.onPorts(ctx, []string{"redis"}, run)
	if err != nil {
		return err
	}
	s.keep(ctx, c, &server{
		again:   func(ctx context.Context) (*child, error) { return run(ctx, addrs) },
		answers: func(ctx context.Context) bool { return pong(ctx, addrs[0], s.secrets.RedisPassword) },
	})
	s.RedisURL = (&url.URL{Scheme: "redis", User: url.UserPassword("", s.secrets.RedisPassword), Host: addrs[0], Path: "0"}).String()
	return nil
}

func (s *Stack) runRedis(ctx context.Context, path, addr string) (*child, error) {
	host, port, _ := strings.Cut(addr, ":") // as address makes it
	appendOnly, databases := "yes", 16
	if s.options.Ephemeral {
		appendOnly, databases = "no", 1000 // a test takes a database for itself
	}
	config := fmt.Sprintf("bind %s\nport %s\nrequirepass %s\ndir %q\nappendonly %s\nappendfsync everysec\nsave \"\"\ndatabases %d\n",
		host, port, s.secrets.RedisPassword, filepath.Join(s.dir, "redis"), appendOnly, databases)
	return s.guard(ctx, Redis, guarded{
		Path: path, Args: []string{"-"}, Dir: filepath.Join(s.dir, "redis"), Stdin: config, UID: -1, GID: -1,
		Stop: syscall.SIGTERM, GraceMS: 10_000,
	}, func() bool { return pong(ctx, addr, s.secrets.RedisPassword) })
}

// pong asks a Redis whether it serves, which it does not while it still reads
// its files.
func pong(ctx context.Context, addr, password string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // nothing is left to say
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return false
	}
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", password); err != nil {
		return false
	}
	r := bufio.NewReader(conn)
	if _, err := r.ReadString('\n'); err != nil {
		return false
	}
	answer, err := r.ReadString('\n')
	return err == nil && strings.HasPrefix(answer, "+PONG")
}
