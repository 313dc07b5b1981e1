// Package connect opens the servers that a command needs, from its settings.
package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/caarlos0/env/v10"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/inventory"
)

// Load reads from the environment of this process what a command needs: see [settings.Load].
func Load[T any](c T) (T, error) {
	c, err := settings.Load(env.ToMap(os.Environ()), c)
	if err != nil {
		err = cli.Usage(err, "set them in the environment (`farol dev` writes a file with those of a local stack); docs/configuration.md lists all")
	}
	return c, err
}

// Needs says which servers a command talks to; nil is not at all.
type Needs struct {
	Database *settings.Database
	Redis    *settings.Redis
	S3       *settings.S3
	Storage  *settings.Storage // the staging and preservation buckets; implies S3
	Log      *slog.Logger      // of a process that warns of endpoints without encryption; nil: it does not
}

// Services are the open connections of a command. What it did not need is nil.
type Services struct {
	DB        *pgxpool.Pool
	Registry  *registry.Registry
	Progress  *progress.Store
	client    *storage.Client
	Receiving func(bucket string) (*storage.Bucket, error) // or any other bucket of the shared service; kept
	Staging   *storage.Bucket
	Kept      *storage.Bucket            // for interim metadata; nil: it is not kept
	Targets   map[string]*storage.Bucket // by name

	Inventories map[string]inventory.Source // by target

	closers []func() error
}

// connectTime is how long the database and Redis may take to answer at start.
const connectTime = 15 * time.Second

// Open opens what a command needs, and finds out whether the database and
// Redis answer. command names the program to the database's administrators.
func Open(ctx context.Context, command string, n Needs) (_ *Services, err error) {
	s := &Services{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if n.Database != nil {
		if err := s.connectDatabase(ctx, command, *n.Database); err != nil {
			return nil, err
		}
	}
	if n.Redis != nil {
		store, err := progress.Connect(ctx, string(n.Redis.URL), progress.Prefix, progress.Renewed(n.Redis.CurrentURL))
		if err != nil {
			return nil, cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("connect to Redis: %w", err), Next: "check FAROL_REDIS_URL and that Redis is running"}
		}
		s.Progress = store
		s.closers = append(s.closers, store.Close)
	}
	if n.Storage != nil {
		n.S3 = &n.Storage.S3
	}
	if n.S3 != nil {
		s.client = storage.NewClient(storage.Options{Slow: n.slow})
		s.closers = append(s.closers, func() error { s.client.Close(); return nil })
		s.Receiving = cachedBuckets(s.client, *n.S3)
		n.warn(ctx)
	}
	if n.Storage != nil {
		if err := s.openBuckets(*n.Storage); err != nil {
			return nil, err
		}
	}
	if s.client != nil && s.Registry != nil {
		s.shareAbilities(ctx)
	}
	return s, nil
}

// slow logs that a store asks for fewer requests, once, and that it takes all again.
func (n Needs) slow(s storage.Spell) {
	switch ctx := context.Background(); {
	case n.Log == nil:
	case s.Ended.IsZero():
		n.Log.WarnContext(ctx, "a store asks for fewer requests; sending fewer, and repeating those that it did not take", "service", s.Service, "said", s.Said)
	default:
		n.Log.InfoContext(ctx, "the store takes all requests again", "service", s.Service, "took", s.Ended.Sub(s.Began), "not_taken", s.Answers)
	}
}

// warn says once which S3 services are reached without encryption.
func (n Needs) warn(ctx context.Context) {
	targets := []storage.Target{n.S3.Target("")}
	if n.Storage != nil {
		targets = append(targets, n.Storage.Targets...)
	}
	if list := settings.Unencrypted(targets...); n.Log != nil && len(list) > 0 {
		n.Log.WarnContext(ctx, "an S3 service is reached over plain HTTP; the bytes and names of files travel unprotected", "endpoints", list, "to_do", "use https URLs in FAROL_S3_ENDPOINT and FAROL_TARGET_<NAME>_ENDPOINT")
	}
}

// agentsOf are the agents that events name.
func agentsOf(c settings.Database) registry.Agents {
	if c.Agents == "aptrust" {
		return registry.APTrust()
	}
	return registry.Farol(build.This().Version, storage.Library)
}

func (s *Services) connectDatabase(ctx context.Context, command string, c settings.Database) error {
	if err := Refuse(ctx, "this command"); err != nil {
		return err
	}
	db, err := dial.Connect(ctx, string(c.URL), c.Program(command), dial.Through(c.Pooler), dial.Renewed(c.CurrentURL))
	if err != nil {
		return err
	}
	s.DB, s.Registry = db, registry.New(db).Signed(agentsOf(c))
	s.closers = append(s.closers, func() error { db.Close(); return nil })
	if err := s.Registry.Ping(ctx); err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "check FAROL_DATABASE_URL and that PostgreSQL is running"}
	}
	return nil
}

// Session says how to reach the database past a pooler; nil if that is not known
// or not needed.
func Session(c settings.Database, name string) (*pgx.ConnConfig, error) {
	if c.Direct == "" {
		return nil, nil //nolint:nilnil // as said above
	}
	config, err := dial.Session(string(c.Direct), name)
	if err == nil {
		dial.Renew(config, c.CurrentDirect)
	}
	return config, err
}

func (s *Services) openBuckets(c settings.Storage) (err error) {
	if s.Staging, err = s.Receiving(c.Staging); err != nil {
		return fmt.Errorf("staging bucket: %w", err)
	}
	if c.Keep != "" {
		if s.Kept, err = s.Receiving(c.Keep); err != nil {
			return fmt.Errorf("bucket for interim metadata: %w", err)
		}
	}
	s.Targets = map[string]*storage.Bucket{}
	for _, t := range c.Targets {
		if s.Targets[t.Name], err = s.client.Bucket(t); err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	s.Inventories = map[string]inventory.Source{}
	for target, i := range c.Inventories {
		if s.Inventories[target], err = i.Source(s.client); err != nil {
			return err
		}
	}
	return nil
}

// cachedBuckets opens buckets of the shared service by name, each once. They are
// few: one or two for each institution.
func cachedBuckets(client *storage.Client, c settings.S3) func(string) (*storage.Bucket, error) {
	var mu sync.Mutex
	open := map[string]*storage.Bucket{}
	return func(name string) (*storage.Bucket, error) {
		mu.Lock()
		defer mu.Unlock()
		if b := open[name]; b != nil {
			return b, nil
		}
		b, err := client.Bucket(c.Target(name))
		if err != nil {
			return nil, fmt.Errorf("bucket %s: %w", name, err)
		}
		open[name] = b
		return b, nil
	}
}

// Close ends all connections, in the reverse order.
func (s *Services) Close() {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	if err := errors.Join(errs...); err != nil {
		slog.Warn("a connection did not close cleanly", "err", err)
	}
}

// withoutSecrets takes the credentials of URLs out of what is logged.
func withoutSecrets(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(storage.Redact(v))
	case error:
		a.Value = slog.StringValue(storage.Redact(v.Error()))
	case *url.URL:
		a.Value = slog.StringValue(v.Redacted())
	}
	return a
}

// NewLogger logs to standard error as configured. Settings have been checked.
func NewLogger(c settings.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutSecrets}
	log := slog.New(slog.NewTextHandler(os.Stderr, o))
	if c.Format == "json" {
		log = slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	LogRedis(log)
	return log
}

// WithRegistryFor does something that needs the registry and nothing else, within a time; 0 is
// without a bound.
func WithRegistryFor(cmd *cobra.Command, most time.Duration, do func(context.Context, *registry.Registry) error) error {
	return WithDatabase(cmd, most, func(ctx context.Context, s *Services) error { return do(ctx, s.Registry) })
}

// WithDatabase is [WithRegistryFor] for what needs the connections themselves.
func WithDatabase(cmd *cobra.Command, most time.Duration, do func(context.Context, *Services) error) error {
	ctx := cmd.Context()
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	s, err := Registry(ctx, ProgramOf(cmd))
	if err != nil {
		return err
	}
	defer s.Close()
	return do(ctx, s)
}

// ProgramOf is the first word after farol: it is the name of the connection in the
// database.
func ProgramOf(cmd *cobra.Command) string {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd.Name()
}

// Registry connects a command that needs the registry and nothing else.
func Registry(ctx context.Context, command string) (*Services, error) {
	if err := Refuse(ctx, "this command"); err != nil {
		return nil, err // whether there is a database or not
	}
	config, err := Load(settings.Database{})
	if err != nil {
		return nil, err
	}
	return Open(ctx, command, Needs{Database: &config})
}

// OpenProgress opens Redis for a command that can do without, and gives it little
// time to answer.
func (s *Services) OpenProgress(ctx context.Context, c settings.Redis) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := progress.Connect(ctx, string(c.URL), progress.Prefix, progress.Renewed(c.CurrentURL))
	if err != nil {
		return err
	}
	s.Progress = store
	s.closers = append(s.closers, store.Close)
	return nil
}

type elsewhere struct{}

// Elsewhere has commands with the context work through a server, and not with the database.
func Elsewhere(ctx context.Context) context.Context { return context.WithValue(ctx, elsewhere{}, true) }

// Refuse refuses a command, or a flag of it, that works with the database only.
func Refuse(ctx context.Context, what string) error {
	if ctx.Value(elsewhere{}) == nil {
		return nil
	}
	return cli.Usage(fmt.Errorf("%s works with the database only, and not through a server", what),
		"leave --server out, and unset FAROL_SERVER; `farol --help` says which commands work through a server")
}
