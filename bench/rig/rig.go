// Package rig has what the programs that measure Farol share: its programs as users run them,
// the settings of a stack, and their own command lines.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Stages are those of an ingest, in their order.
func Stages() []registry.Stage {
	return []registry.Stage{
		"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup",
	}
}

// Env reads the settings that a stack has written for other programs.
func Env(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the settings of the stack: %w", err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok {
			env[k] = strings.Trim(v, "'")
		}
	}
	return env, nil
}

// Receiving opens the receiving bucket of the institution that a stack begins with.
func Receiving(env map[string]string) (*storage.Bucket, error) {
	return storage.NewClient(storage.Options{}).Bucket(storage.Target{
		Bucket: "aptrust.receiving.test.edu", Endpoint: env["FAROL_S3_ENDPOINT"], CAFile: env["FAROL_S3_CA_FILE"],
		Region: env["AWS_REGION"], AccessKeyID: env["AWS_ACCESS_KEY_ID"],
		SecretAccessKey: storage.Secret(env["AWS_SECRET_ACCESS_KEY"]), PathStyle: true,
	})
}

// Servers are those that a program measures on, and a connection to look on.
type Servers struct {
	Dir   string
	Stack *devstack.Stack
	DB    *pgxpool.Pool // of the superuser
	Dev   string        // farol-dev, which servers are run by

	kept bool // the directory stays
}

// Start starts PostgreSQL, with the settings that it comes with but for those of o, and what else
// o names, and brings the database up to date. Their data is in dir, where it stays; if that is "",
// it is in a temporary directory. It is called in the folder bench.
func Start(ctx context.Context, dir string, o devstack.Options) (_ *Servers, err error) {
	s := &Servers{Dir: dir, kept: dir != ""}
	if !s.kept {
		if s.Dir, err = os.MkdirTemp("", "farol-bench-"); err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
		if err = os.Chmod(s.Dir, 0o711); err != nil { // #nosec G302 -- servers that refuse to run as root have another user, who has to pass through it
			return nil, fmt.Errorf("open the way to the data directory: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
		}
	}()
	farol, err := devstack.Build(ctx, "..", s.Dir)
	if err != nil {
		return nil, err
	}
	s.Dev = farol + "-dev"
	o.Dir, o.Executable, o.Only = filepath.Join(s.Dir, "stack"), s.Dev, append(o.Only, devstack.Postgres)
	if s.Stack, err = devstack.Start(ctx, o); err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	if err := migrations.Up(ctx, s.Stack.AdminURL); err != nil {
		return nil, err
	}
	if s.DB, err = pgxpool.New(ctx, s.Stack.AdminURL+"&application_name=bench-looks-on"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return s, MustBeDurable(ctx, s.DB)
}

// MustBeDurable refuses a server whose commits may be lost: its figures would be worth nothing.
func MustBeDurable(ctx context.Context, db *pgxpool.Pool) error {
	var fsync, commit, pages string
	err := db.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&fsync, &commit, &pages)
	if err != nil {
		return fmt.Errorf("read the database's settings: %w", err)
	}
	if fsync != "on" || commit != "on" || pages != "on" {
		return fmt.Errorf("fsync is %s, synchronous_commit %s, full_page_writes %s: all must be on", fsync, commit, pages)
	}
	return nil
}

// Stop stops the servers, and deletes their data if it is in a temporary directory.
func (s *Servers) Stop(ctx context.Context) error {
	if s.DB != nil {
		s.DB.Close()
	}
	switch {
	case s.Stack == nil:
	case s.kept:
		return s.Stack.Stop(ctx)
	default:
		if err := s.Stack.Remove(ctx); err != nil {
			return err
		}
	}
	if s.kept {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

// A Program is one of those that measure. It returns [flag.ErrHelp] for a wrong command line, when
// it has said what is wrong.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs the program that the first argument names, until it ends or is interrupted. The exit
// code is 2 for a wrong command line, and 1 for any other error.
func Main(programs map[string]Program) {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: bench %s [FLAG...]\n", strings.Join(slices.Sorted(maps.Keys(programs)), "|"))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := programs[os.Args[1]](ctx, os.Args[2:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// ServerSettings adds the flag for settings of PostgreSQL.
func ServerSettings(f *flag.FlagSet, to *[]string) {
	f.Func("postgres", "a setting of the server, as name=value; may be given several times", func(s string) error {
		*to = append(*to, s)
		return nil
	})
}

// Words are those of a list that is separated by commas or spaces.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Numbers are those of such a list, each above zero.
func Numbers(list string) (out []int, err error) {
	for _, word := range Words(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above zero", word)
		}
		out = append(out, n)
	}
	return out, nil
}
