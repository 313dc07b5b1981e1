package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/memory"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/lease"
	"github.com/farol-preservation/farol/web/pull"
	"github.com/farol-preservation/farol/web/reply"
)

// served are the APIs that a server has.
type served struct{ pull, lease, web bool }

func serveCommand() *cobra.Command {
	var apis served
	var wait waiting
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP APIs for people and for programs in any language",
		Long: `Serve three HTTP APIs until SIGTERM or Ctrl-C; the flags choose some of them.

  --web    the REST API /api/v1, for people who sign in and for their tokens, at
           FAROL_WEB_ADDR (docs/api.md). It needs FAROL_WEB_KEY.
  --pull   POST /post and POST /pull, with which programs post messages to queues, and
           pull them and the pipeline's topics, at FAROL_PULL_ADDR (docs/pull.md)
  --lease  POST /v1/claim and its siblings, with which programs process stages that
           farol stage has added, at FAROL_PULL_ADDR (docs/workers.md)

Any number of servers may run. On a loopback address, programs on this machine need no
token for --pull and --lease; on other addresses, every program does: see farol token.`,
		Example: `  farol serve
  farol serve --web
  farol serve --pull --lease`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if apis == (served{}) {
				apis = served{pull: true, lease: true, web: true}
			}
			return orderly(cmd.Context(), runServe(cmd.Context(), apis, wait))
		},
	}
	c.Flags().BoolVar(&apis.web, "web", false, "serve the REST API at FAROL_WEB_ADDR")
	c.Flags().BoolVar(&apis.pull, "pull", false, "serve the queues at FAROL_PULL_ADDR")
	c.Flags().BoolVar(&apis.lease, "lease", false, "serve stages in other languages at FAROL_PULL_ADDR")
	wait.flag(c, startWait)
	return c
}

func runServe(ctx context.Context, apis served, wait waiting) error {
	var needs settings.Server
	if apis.web {
		needs.API = &settings.API{}
	}
	config, err := connect.Load(needs)
	if err != nil {
		return err
	}
	memory.Fit(100, 0)
	log := connect.NewLogger(config.Log)
	s, err := wait.open(ctx, preflight.Surroundings{Command: "serve", Database: &config.Database}, config.HTTP, log)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	metrics := prometheus.NewRegistry()
	ends, traces, err := endsOf(ctx, "serve", config.Traces, metrics, log)
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	v := &server{Services: s, config: config, log: log, stop: stop, group: group, metrics: metrics, requests: monitor.NewRequests(metrics), ends: ends}
	if apis.web {
		if err := v.serveWeb(ctx); err != nil {
			return err
		}
	}
	if apis.pull || apis.lease {
		if err := v.servePrograms(ctx, apis); err != nil {
			return err
		}
	}
	work := group.Wait
	if !apis.lease { // whose engine does it
		work = func() error {
			return reaping(ctx, s.DB, ends, log, func(context.Context) error { return group.Wait() })
		}
	}
	return watched(ctx, stop, work, func(ctx context.Context, ready readiness) error {
		return serveQueue(ctx, "serve", s, config.Database, config.HTTP, ready, log, metrics)
	})
}

// server is a process that serves.
type server struct {
	*connect.Services

	config   settings.Server
	log      *slog.Logger
	stop     context.CancelFunc
	group    *errgroup.Group
	requests monitor.Requests
	ends     claim.Observer
	metrics  *prometheus.Registry
}

// servePrograms serves queues, and stages in other languages.
func (v *server) servePrograms(ctx context.Context, apis served) error {
	direct, err := connect.Session(v.config.Database, "farol-serve")
	if err != nil {
		return err
	}
	listener, open, err := listen(ctx, "the pull API", "FAROL_PULL_ADDR", v.config.Pull.Addr, v.log)
	if err != nil {
		return err
	}
	tokens := access.NewTokens(v.Registry, open)
	mux := http.NewServeMux()
	if apis.pull {
		queues := pull.New(v.DB, pull.Options{
			MaxBody: int64(v.config.Pull.MaxBody), Defaults: defaultsOf(v.config.Pull), Stop: ctx, Caller: tokens.Caller,
			Direct: direct, NoListen: v.config.Database.Pooler != "" && direct == nil, Log: v.log,
		})
		queues.Routes(mux)
		v.metrics.MustRegister(monitor.NewWaiting(queues), monitor.NewPull(v.Registry, v.log))
		v.group.Go(func() error { return queues.Run(ctx) })
	}
	if apis.lease {
		engine, err := serveEngine(ctx, v.Services, direct, v.ends, v.log)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		lease.New(v.DB, engine, lease.Options{Stop: ctx, Caller: tokens.Caller, Log: v.log}).Routes(mux)
		v.group.Go(func() error {
			defer engine.Close()
			return engine.Run(ctx)
		})
		v.group.Go(func() error {
			select {
			case <-engine.Draining():
				v.log.InfoContext(ctx, "asked to drain")
				v.stop()
			case <-ctx.Done():
			}
			return nil
		})
	}
	// Programs reach an address of the network under names that nobody has listed. They have
	// tokens, which no page of another origin has.
	handler := reply.Guarded(access.Guard{AnyHost: !open}, v.requests.Observed(mux))
	v.group.Go(func() error { return serveUntil(ctx, handler, listener, v.log) })
	return nil
}

// serveUntil serves until ctx is done. Calls may wait for long: there is a deadline for each
// request, and for each part of an answer, but none for what is between.
func serveUntil(ctx context.Context, handler http.Handler, listener net.Listener, log *slog.Logger) error {
	connections := newCrowd(listener, mostConnections)
	server := &http.Server{
		Handler:           reply.Timed(handler),
		ConnState:         connections.changed,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if err := monitor.ServeUntil(ctx, server, connections); err != nil {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}

// serveEngine is the queue for workers over HTTP: it is notified of items, and ends the
// attempts of workers that died.
func serveEngine(ctx context.Context, s *connect.Services, direct *pgx.ConnConfig, ends claim.Observer, log *slog.Logger) (*claim.Engine, error) {
	o := claim.DefaultOptions()
	o.Direct, o.Observer, o.Log, o.Archive = direct, ends, log, 0 // workers archive
	engine, err := claim.New(ctx, s.DB, o)
	if err != nil {
		return nil, fmt.Errorf("start the queue: %w", err)
	}
	return engine, nil
}

// listen opens the address of a setting. open says that it can be reached from this
// machine only.
func listen(ctx context.Context, what, setting, addr string, log *slog.Logger) (listener net.Listener, open bool, err error) {
	var lc net.ListenConfig
	listener, err = lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, false, cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("serve %s: %w", what, err), Next: "set " + setting + " to a free host:port"}
	}
	tcp, ok := listener.Addr().(*net.TCPAddr)
	open = ok && tcp.IP.IsLoopback()
	log.InfoContext(ctx, "serving", "api", what, "addr", listener.Addr().String(), "loopback", open)
	return listener, open, nil
}

// defaultsOf are the values that pulls leave out.
func defaultsOf(c settings.Pull) pull.Defaults {
	return pull.Defaults{Timeout: c.Timeout, Max: c.Max, RetryNum: c.RetryNum, FailTimeout: c.FailTimeout}
}

// orderly is the result of a service. To be stopped while it was still starting is no
// failure.
func orderly(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// serveQueue serves health, the queue's figures and more for a command that works
// on no items, until ctx is done; not at all if there is no address.
func serveQueue(ctx context.Context, command string, s *connect.Services, database settings.Database, http settings.HTTP, ready readiness, log *slog.Logger,
	metrics *prometheus.Registry,
) error {
	if http.Addr == "" {
		return nil
	}
	figures, err := monitor.NewQueue(ctx, command, database, log)
	if err != nil {
		return err
	}
	defer figures.Close()
	metrics.MustRegister(figures)
	return monitor.Serve(ctx, http.Addr, metrics, ready(monitor.Answers(s.Registry.Ping)), log)
}
