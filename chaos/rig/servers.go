// Package rig runs a whole Farol on real servers: database, Redis, buckets, bags and
// processes. Command chaos makes servers fail with it, and command stores compares S3
// stores.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// Servers are PostgreSQL, Redis and the S3 gateway on loopback ports, and the farol that
// was built to use them. Each [Site] has a database and buckets of its own in them.
type Servers struct {
	*devstack.Stack
	Build

	Dir   string // of all data
	Redis *redis.Client
}

// A Build is farol as it was built for the servers.
type Build struct {
	Binary  string // path of farol; that of farol-dev ends with -dev
	Version string // commit
}

const template = "farol_template"

// Start starts the servers in dir and makes the database that those of sites are copied
// from. The programs of PostgreSQL are in pgBin; "" looks in the usual places.
func Start(ctx context.Context, dir string, b Build, pgBin string) (_ *Servers, err error) {
	s := &Servers{Dir: dir, Build: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}()
	s.Stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "stack"), Executable: s.Binary + "-dev", PGBinDir: pgBin, Only: []devstack.Service{devstack.Postgres, devstack.Redis, devstack.S3},
		// Processes are killed here, never the machine: what the kernel has is safe.
		PostgresSettings: []string{"fsync=off", "full_page_writes=off", "jit=off"},
	})
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	options, err := redis.ParseURL(s.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("read the address of Redis: %w", err)
	}
	s.Redis = redis.NewClient(options)
	if err := s.createDatabase(ctx, template, "template0"); err != nil {
		return nil, err
	}
	_, err = s.Farol(ctx, map[string]string{"FAROL_DATABASE_URL": s.Database(template)}, "migrate", "up")
	return s, err
}

// NewBuild builds the program into dir from the sources around us, and next to it farol-dev,
// which runs servers. The working directory is the folder chaos.
func NewBuild(ctx context.Context, dir string) (b Build, err error) {
	if b.Binary, err = devstack.Build(ctx, "..", dir); err != nil {
		return b, fmt.Errorf("run this in the folder chaos: %w", err)
	}
	describe := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	describe.Dir = ".."
	out, err := describe.Output()
	if err != nil {
		out = []byte("unknown")
	}
	b.Version = strings.TrimSpace(string(out))
	return b, nil
}

// Database is the URL of a database, past all proxies.
func (s *Servers) Database(name string) string { return Through(s.AdminURL, name, "") }

// Through is the URL of a database on a server, by way of a proxy at addr unless that is "".
func Through(server, name, addr string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // which then is refused
	}
	u.Path = "/" + name
	if addr != "" {
		u.Host = addr
	}
	return u.String()
}

func (s *Servers) createDatabase(ctx context.Context, name, from string) error {
	return s.Admin(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s`, name, from))
}

// Admin runs a statement as the superuser.
func (s *Servers) Admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.AdminURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is left to say
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// Farol runs a command to its end, for two minutes at most, and returns what it printed.
func (s *Servers) Farol(ctx context.Context, env map[string]string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("farol %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Stop ends the servers. Their data stays.
func (s *Servers) Stop(ctx context.Context) error {
	if s.Redis != nil {
		s.Redis.Close() //nolint:errcheck // nothing is left to say
	}
	if s.Stack == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
	defer cancel()
	return s.Stack.Stop(ctx) //nolint:wrapcheck // it says what it stopped
}

// Main runs a command until it ends or is interrupted, and exits: 0 if all was right, 1 if
// something was not, 2 if that is not known.
func Main(name string, args []string, run func(ctx context.Context, args []string) (ok bool, err error)) {
	// The second Ctrl-C ends us at once; the servers and workers end with us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ok, err := run(ctx, args)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	default:
		os.Exit(0)
	}
}

// Choose returns those of a list that only names, separated by commas. An unknown name is
// an error.
func Choose[T any](list []T, only string, name func(T) string) (chosen []T, err error) {
	for wanted := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(list, func(e T) bool { return name(e) == strings.TrimSpace(wanted) })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q; --list lists all", wanted)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// TempDir makes a directory for data, which PostgreSQL's user can pass through if we are root.
func TempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	return dir, nil
}
