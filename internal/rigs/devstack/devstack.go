// Package devstack runs the servers that Farol needs, privately, on one machine:
// PostgreSQL, Redis, an S3 gateway with storage classes, nsqd with nsqadmin, and a server
// that catches mail.
//
// Everything lives under one directory and listens on loopback ports that are
// remembered between runs. PostgreSQL and Redis are the installed programs; the
// others are this program itself, started again as a child.
//
// A server that ends while the stack is up, however that comes, is started again
// on the same address with the same data. If someone else has done so already,
// as pg_ctl restart does, theirs is left alone until it ends.
//
// No server outlives the process that called [Start], however that ends: each
// holds a pipe to it, or is watched by a guard that does. (If that process is
// killed less than a second after someone else has started PostgreSQL, there may
// be no guard for it yet; the next Start stops it then.) A stack is for
// development, demonstrations and tests: one machine, one user, no copies.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Service names one server of a stack.
type Service string

// The services of a stack; NSQ is nsqd and nsqadmin in one process, Mail
// catches mail. PgBouncer and Clamd run only where they are asked for.
const (
	Postgres  Service = "postgres"
	Redis     Service = "redis"
	S3        Service = "s3"
	NSQ       Service = "nsq"
	PgBouncer Service = "pgbouncer"
	Clamd     Service = "clamd"
	Mail      Service = "mail"
)

// Options say where a stack lives and what runs in it. Only Dir is required.
type Options struct {
	Dir        string // new, empty or of an earlier stack; two stacks cannot share one
	Executable string // the farol binary that is started for the children; "" is this program
	PGBinDir   string // where initdb and postgres are; "" looks in the usual places
	Only       []Service
	// Ephemeral gives up durability for speed, and a server that ends stays so.
	// It is for tests, which throw their data away, and for nothing else.
	Ephemeral bool
	// RestoreDelay is how long RestoreObject takes to bring an object back.
	RestoreDelay time.Duration
	S3Log        bool         // the gateway appends a line for each request to DIR/log/s3-requests.log
	Log          *slog.Logger // gets a warning when a server ended and is restarted; nil: no log

	PostgresSettings []string // name=value; they count over the stack's own
	StandbyOf        string   // URL of a PostgreSQL of which a new cluster is made a streaming copy
	PoolerOf         string   // URL of the PostgreSQL that PgBouncer stands before
	PoolerSettings   []string // name=value; they count over the stack's own
	NSQD             NSQDOptions
	Lookupd          bool // an nsqlookupd that knows nsqd runs beside it
}

// Stack is a set of running servers. The fields of services that were not asked
// for are empty. It is safe for concurrent use once Start has returned it.
type Stack struct {
	DatabaseURL        string // of farol, who works with the schema, with the password
	OwnerURL           string // of farol_owner, who migrates it
	AdminURL           string // of the superuser
	PoolerURL          string // the same by way of PgBouncer, which has two connections for each database unless it is told otherwise
	RedisURL           string // with the password
	S3Endpoint         string // https://127.0.0.1:port; the region and keys below
	S3Plain            string // http://127.0.0.1:port: the same service for browsers of this machine
	S3CAFile           string // PEM; trust this to talk to S3Endpoint
	AccessKeyID        string
	SecretAccessKey    string
	Region             string
	NSQDTCPAddr        string // host:port
	NSQDHTTPAddr       string // host:port
	NSQAdminURL        string
	NSQLookupdHTTPAddr string // host:port; "" unless it was asked for
	NSQPID             int    // of the process that was started first
	ClamdAddr          string // host:port
	SMTPAddr           string // host:port; mail for anyone is kept in MailDir
	MailDir            string // a .eml file for each mail
	WebAddr            string // host:port that is kept free for the server for people

	options  Options
	dir      string
	secrets  secrets
	ports    *ports
	lock     *os.File // says that this process runs the stack
	servers  *os.File // inherited by every server: says that one still lives
	died     chan error
	stopOnce sync.Once
	stopErr  error

	mu   sync.Mutex
	kept []*server // guarded by mu
}

// Start starts the servers side by side and returns when all of them answer.
// ctx bounds the start, not the life of the stack. If one server does not start,
// the others are stopped and the error has the end of its log.
//
// Another stack on the same directory is an error. One whose process has died
// is waited for, up to 15 seconds, since its servers may still be stopping. A
// PostgreSQL that someone else runs on the data is stopped.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	for service, start := range map[Service]func(context.Context) error{
		Postgres: s.startPostgres, Redis: s.startRedis, S3: s.startS3, NSQ: s.startNSQ, PgBouncer: s.startPgBouncer,
		Clamd: s.startClamd, Mail: s.startMail,
	} {
		if !slices.Contains(o.Only, service) && (len(o.Only) > 0 || slices.Contains([]Service{PgBouncer, Clamd}, service)) {
			continue
		}
		g.Go(func() error {
			began := time.Now()
			if err := start(gctx); err != nil {
				return fmt.Errorf("start %s: %w", service, err)
			}
			s.options.Log.DebugContext(ctx, "server started", "server", string(service),
				"took_ms", time.Since(began).Milliseconds())
			return nil
		})
	}
	err = g.Wait()
	if err == nil && len(o.Only) == 0 {
		var addrs []string
		if addrs, err = s.ports.take("web"); err == nil {
			s.WebAddr = addrs[0]
		}
	}
	if err == nil {
		err = s.ports.save()
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// open makes the directory, takes its locks and reads what is remembered there.
func open(ctx context.Context, o Options) (*Stack, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, fmt.Errorf("find the data directory %q: %w", o.Dir, errors.Join(err, os.ErrInvalid))
	}
	if o.Executable == "" {
		if o.Executable, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program's file: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stack{options: o, dir: dir, died: make(chan error, 1)}
	if err := makeDirs(dir); err != nil {
		return nil, err
	}
	if s.lock, s.servers, err = acquire(ctx, dir); err != nil {
		return nil, err
	}
	if s.secrets, err = loadSecrets(dir); err == nil {
		s.ports, err = loadPorts(dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// makeDirs makes the data directory, or makes an empty one its own. PostgreSQL's
// user has to pass through it when we are root, so it can be passed but not read.
func makeDirs(dir string) error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		err = os.Chmod(dir, mode)
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	for _, name := range []string{"log", "redis", "s3", "nsq"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
	}
	return nil
}

// Died reports the first server that ended and could not be started again in ten
// tries, which take half a minute, with the end of its log. In an Ephemeral
// stack the first end that nobody asked for is reported, and nothing is tried.
// The others keep running until Stop.
func (s *Stack) Died() <-chan error { return s.died }

// Stop stops the servers, each in the order that keeps its data, and returns
// when they are gone; a PostgreSQL that someone else runs on the data, too. When ctx ends first, or after 30 seconds, they are killed.
// Later calls return what the first one returned.
func (s *Stack) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		s.mu.Lock()
		kept := slices.Clone(s.kept)
		s.mu.Unlock()
		err := announceStop(s.lock)
		// No server needs another one to stop, so they may all do it at once.
		var g errgroup.Group
		for _, sv := range kept {
			g.Go(func() error { return sv.stop(ctx) })
		}
		s.stopErr = errors.Join(err, g.Wait(), s.release())
	})
	return s.stopErr
}

// Remove stops the stack and deletes its directory, with what of it is elsewhere:
// under root, the database may be in /var/lib/farol.
func (s *Stack) Remove(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	link := filepath.Join(s.dir, "postgres")
	if target, err := os.Readlink(link); err == nil {
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("remove the database: %w", err)
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the data directory: %w", err)
	}
	return nil
}

func (s *Stack) release() error {
	if err := errors.Join(s.servers.Close(), s.lock.Close()); err != nil {
		return fmt.Errorf("release the data directory: %w", err)
	}
	return nil
}
