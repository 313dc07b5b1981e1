package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caarlos0/env/v10"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// stopTime is how long the servers of a stack may take to stop.
const stopTime = 30 * time.Second

// local is a one-machine Farol: the stack, migrated, with its buckets.
type local struct {
	*devstack.Stack

	farol    string // path of the program
	dir      string
	log      *slog.Logger
	config   settings.Worker
	db       *pgxpool.Pool
	registry *registry.Registry
	progress *progress.Store
	client   *storage.Client
	webURL   string // of the database, for the server for people
	made     int64  // the last institution whose buckets were made
}

// startLocal starts a stack in dir and prepares its database and buckets. The
// caller stops it.
func startLocal(ctx context.Context, dir string, s3Log bool, log *slog.Logger) (l *local, err error) {
	// A process that farol-dev starts would refuse an unknown name.
	if _, err := settings.Load(env.ToMap(os.Environ()), struct{}{}); err != nil {
		return nil, cli.Usage(err, "docs/configuration.md lists all settings")
	}
	l = &local{log: log}
	if l.farol, err = findFarol(); err != nil {
		return nil, err
	}
	if l.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find the data directory: %w", err)
	}
	l.Stack, err = devstack.Start(ctx, devstack.Options{Dir: l.dir, PGBinDir: os.Getenv("PG_BINDIR"), RestoreDelay: 3 * time.Second, S3Log: s3Log, Log: log})
	if err != nil {
		return nil, err
	}
	if err := l.prepare(ctx); err != nil {
		return nil, errors.Join(err, l.stop(ctx))
	}
	return l, nil
}

// prepare migrates the database, connects to the servers and creates the buckets.
func (l *local) prepare(ctx context.Context) (err error) {
	if _, err := l.WriteEnv(); err != nil {
		return err
	}
	if l.webURL, err = l.WebURL(ctx); err != nil {
		return err
	}
	if _, err := l.callWith(ctx, []string{"FAROL_DATABASE_URL=" + l.OwnerURL}, "migrate", "up", "--yes"); err != nil {
		return err
	}
	if l.config, err = settings.Load(env.ToMap(l.Env()), settings.Worker{}); err != nil {
		return err
	}
	if l.db, err = dial.Connect(ctx, string(l.config.Database.URL), "farol-dev"); err != nil {
		return err
	}
	l.registry = registry.New(l.db)
	if err := requests.In(l.registry).DeleteAtOnce(ctx); err != nil {
		return err
	}
	if l.progress, err = progress.Connect(ctx, string(l.config.Redis.URL), progress.Prefix); err != nil {
		return err
	}
	l.client = storage.NewClient(storage.Options{})
	return l.createBuckets(ctx)
}

// bucket opens a receiving, restoration or staging bucket.
func (l *local) bucket(name string) (*storage.Bucket, error) {
	return l.client.Bucket(l.config.Storage.Target(name))
}

// target opens the bucket of a preservation target.
func (l *local) target(name string) (*storage.Bucket, error) {
	t, known := l.config.Storage.TargetOf(name)
	if !known {
		return nil, fmt.Errorf("there is no target %s", name)
	}
	return l.client.Bucket(t)
}

func (l *local) createBuckets(ctx context.Context) error {
	targets := append([]storage.Target{l.config.Storage.Target(l.config.Storage.Staging)}, l.config.Storage.Targets...)
	for _, t := range targets {
		b, err := l.client.Bucket(t)
		if err == nil {
			err = b.Create(ctx)
		}
		if err != nil {
			return fmt.Errorf("create bucket %s: %w", t.Bucket, err)
		}
	}
	return l.createInstitutionBuckets(ctx)
}

// createInstitutionBuckets makes the buckets of institutions that have none yet,
// as an operator would in production.
func (l *local) createInstitutionBuckets(ctx context.Context) error {
	for {
		list, err := l.registry.Institutions(ctx, l.made, 100, true)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, in := range list {
			for _, name := range []string{in.ReceivingBucket, in.RestoreBucket} {
				b, err := l.bucket(name)
				if err != nil {
					return err
				}
				if err := b.Create(ctx); err != nil {
					return fmt.Errorf("create bucket %s of %s: %w", name, in.Identifier, err)
				}
			}
			l.made = in.ID
		}
	}
}

// institution registers an institution unless it is there already.
func (l *local) institution(ctx context.Context, name, identifier string) error {
	_, err := l.registry.AddInstitution(ctx, record.Institution{
		Name: name, Identifier: identifier,
		ReceivingBucket: "aptrust.receiving." + identifier, RestoreBucket: "aptrust.restore." + identifier,
	})
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return err
	}
	return l.createInstitutionBuckets(ctx)
}

// startHelpers starts workers, mirror and the server for people, and the scheduler, which
// reads buckets at the interval given; with none there is no scheduler.
func (l *local) startHelpers(ctx context.Context, readEvery time.Duration) (*helpers, error) {
	environ := append(l.Env(), "FAROL_COLD_POLL=1s") // the gateway takes seconds, not hours
	if readEvery > 0 {
		environ = append(environ, "FAROL_READ_INTERVAL="+readEvery.String())
	}
	h, err := newHelpers(l.farol, l.dir, environ, l.log)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		h.start(ctx, "worker-small", nil, "work", "--max-size", "1GiB", "--slots", "8"),
		h.start(ctx, "worker-large", nil, "work", "--min-size", "1GiB", "--slots", "2"),
		h.start(ctx, "mirror", nil, "mirror"),
		h.start(ctx, "serve", []string{"FAROL_DATABASE_URL=" + l.webURL, "FAROL_DATABASE_DIRECT_URL="}, "serve", "--web"))
	if readEvery > 0 {
		err = errors.Join(err, h.start(ctx, "schedule", nil, "schedule"))
	}
	if err != nil {
		h.stopAll()
		return nil, err
	}
	return h, nil
}

func (l *local) stop(ctx context.Context) error { return l.end(ctx, l.Stop) }

// remove stops the stack and deletes its data.
func (l *local) remove(ctx context.Context) error { return l.end(ctx, l.Remove) }

func (l *local) end(ctx context.Context, how func(context.Context) error) error {
	if l.client != nil {
		l.client.Close()
	}
	if l.progress != nil {
		l.progress.Close() //nolint:errcheck // nothing is in progress on it
	}
	if l.db != nil {
		l.db.Close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return how(ctx)
}

// helpers are the farol processes that up and demo start: workers, mirror,
// scheduler. One that ends by itself is restarted.
type helpers struct {
	farol  string // path of the program
	env    []string
	logDir string
	log    *slog.Logger

	running []*devstack.Process
}

func newHelpers(farol, dataDir string, env []string, log *slog.Logger) (*helpers, error) {
	logDir := filepath.Join(dataDir, "log")
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	env = append(append(os.Environ(), env...), settings.ChildEnv+"=1")
	if os.Getenv("FAROL_GRACE") == "" && os.Getenv("FAROL_GRACE_FILE") == "" {
		env = append(env, "FAROL_GRACE=5s") // less than a helper is given to end: its items are given back, not left to their lease
	}
	return &helpers{farol: farol, env: env, logDir: logDir, log: log}, nil
}

// start keeps `farol args…` running, with more settings, until stopAll. Its output goes to a
// log file.
func (h *helpers) start(ctx context.Context, name string, more []string, args ...string) error {
	p := &devstack.Process{
		Name: name, Binary: h.farol, Args: args, Env: env.ToMap(slices.Concat(h.env, more)), Log: filepath.Join(h.logDir, name+".log"), Dir: ".",
		Ended: func(err error) { h.log.WarnContext(ctx, "a helper ended; restarting it", "helper", name, "err", err) },
	}
	h.running = append(h.running, p)
	return p.Start()
}

// stopAll stops all helpers and waits for their end.
func (h *helpers) stopAll() {
	var all sync.WaitGroup
	for _, p := range h.running {
		all.Go(p.Stop)
	}
	all.Wait()
}

// developer is the first admin of a stack. There is no password: a link signs in.
const developer = "developer@localhost.localdomain"

// invite prints a link that signs the first admin in, as the last line: it is what a
// newcomer clicks at.
func (l *local) invite(ctx context.Context, out io.Writer, what string) error {
	link, err := l.signInLink(ctx)
	if err != nil {
		return err
	}
	cli.Say(out, "\n%s. This link signs you in as the first admin, once and within 15 minutes.\n`farol user reset %s` prints another, which sets a password.\n", what, developer)
	fmt.Fprintln(out, link)
	return nil
}

// serveTime is how long the server for people may take to listen.
const serveTime = time.Minute

// signInLink is a link that signs in the first admin of the stack, once.
func (l *local) signInLink(ctx context.Context) (string, error) {
	_, err := l.registry.AddUser(ctx, record.User{Email: developer, Name: "Developer", Role: registry.RoleAdmin})
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return "", err
	}
	p, err := people.In(l.registry).ByEmail(ctx, developer)
	if err != nil {
		return "", err
	}
	secret, err := people.In(l.registry).MakeLink(ctx, p.ID, people.SignIn)
	if err != nil {
		return "", err
	}
	if err := listens(ctx, l.WebAddr); err != nil {
		return "", err
	}
	return "http://" + l.WebAddr + people.LinkPath(people.SignIn, secret), nil
}

// listens waits until a helper listens at an address.
func listens(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, serveTime)
	defer cancel()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		if !retry.Pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("the server for people does not listen at %s: %w", addr, err)
		}
	}
}
