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
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/memory"
	"github.com/farol-preservation/farol/internal/monitor"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/lease"
	"github.com/farol-preservation/farol/web/pull"
)

func serveCommand() *cobra.Command {
	var all bool
	var wait waiting
	c := &cobra.Command{
		Use:   "serve --pull",
		Short: "Serve the HTTP APIs for programs in any language",
		Long: `Serve two HTTP APIs until SIGTERM or Ctrl-C. With POST /post and POST /pull, programs
post messages to queues, and pull them and the pipeline's topics (docs/pull.md). With
POST /v1/claim and its siblings, they process stages that farol stage has added
(docs/workers.md). Any number of servers may run. On a loopback address, programs on
this machine need no token; on other addresses, every program does: see farol token.`,
		Example: `  farol serve --pull`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all {
				return cli.Usage(errors.New("--pull is missing"), "add --pull")
			}
			return orderly(cmd.Context(), runServe(cmd.Context(), wait))
		},
	}
	c.Flags().BoolVar(&all, "pull", false, "serve the pull API at FAROL_PULL_ADDR")
	wait.flag(c, startWait)
	return c
}

func runServe(ctx context.Context, wait waiting) error {
	config, err := connect.Load(settings.ReadServer)
	if err != nil {
		return err
	}
	memory.Fit(100, 0)
	log := connect.NewLogger(config.Log)
	if err := wait.ready(ctx, preflight.Surroundings{Command: "serve", Database: &config.Database}, config.HTTP.Addr, log); err != nil {
		return err
	}
	s, err := connect.Open(ctx, "serve", connect.Needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	direct, err := connect.Session(config.Database, "farol-serve")
	if err != nil {
		return err
	}
	listener, open, err := listenPull(ctx, config.Pull.Addr, log)
	if err != nil {
		return err
	}
	engine, err := serveEngine(ctx, s, direct, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tokens := access.NewTokens(s.Registry, open)
	queues := pull.New(s.DB, pull.Options{
		MaxBody: int64(config.Pull.MaxBody), Defaults: defaultsOf(config.Pull), Stop: ctx.Done(), Caller: tokens.Caller,
		Direct: direct, NoListen: config.Database.Pooler != "" && direct == nil, Log: log,
	})
	metrics := monitor.NewRequests(queues)
	mux := http.NewServeMux()
	queues.Routes(mux)
	lease.New(s.DB, engine, lease.Options{Stop: ctx.Done(), Caller: tokens.Caller, Log: log}).Routes(mux)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serveQueue(ctx, "serve", s, config.Database, config.HTTP, log, append(metrics.Collectors(), monitor.NewPull(s.Registry, log))...)
	})
	group.Go(func() error { return queues.Run(ctx) })
	group.Go(func() error { return engine.Run(ctx) })
	group.Go(func() error {
		select {
		case <-engine.Draining():
			log.InfoContext(ctx, "asked to drain")
			stop()
		case <-ctx.Done():
		}
		return nil
	})
	group.Go(func() error { return servePull(ctx, metrics.Observed(mux), listener, log) })
	return group.Wait()
}

// servePull serves the APIs until ctx is done. Calls may wait for long, and set their own
// deadlines for answers.
func servePull(ctx context.Context, handler http.Handler, listener net.Listener, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if err := monitor.ServeUntil(ctx, server, listener); err != nil {
		return fmt.Errorf("serve the pull API: %w", err)
	}
	return nil
}

// serveEngine is the queue for workers over HTTP: it is notified of items, and ends the
// attempts of workers that died.
func serveEngine(ctx context.Context, s *connect.Services, direct *pgx.ConnConfig, log *slog.Logger) (*claim.Engine, error) {
	o := claim.DefaultOptions()
	o.Direct, o.Log, o.Archive = direct, log, 0 // workers archive
	engine, err := claim.New(ctx, s.DB, o)
	if err != nil {
		return nil, fmt.Errorf("start the queue: %w", err)
	}
	return engine, nil
}

// listenPull opens the address of the pull API. open says that it can be reached from
// this machine only.
func listenPull(ctx context.Context, addr string, log *slog.Logger) (listener net.Listener, open bool, err error) {
	var lc net.ListenConfig
	listener, err = lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, false, cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("serve the pull API: %w", err), Next: "set FAROL_PULL_ADDR to a free host:port"}
	}
	tcp, ok := listener.Addr().(*net.TCPAddr)
	open = ok && tcp.IP.IsLoopback()
	log.InfoContext(ctx, "serving the pull API", "addr", listener.Addr().String(), "tokens_needed", !open)
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
func serveQueue(ctx context.Context, command string, s *connect.Services, database settings.Database, http settings.HTTP, log *slog.Logger,
	more ...prometheus.Collector,
) error {
	if http.Addr == "" {
		return nil
	}
	figures, err := monitor.NewQueue(ctx, command, database, log)
	if err != nil {
		return err
	}
	defer figures.Close()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(append(more, figures)...)
	return monitor.Serve(ctx, http.Addr, metrics, monitor.Answers(s.Registry.Ping), log)
}
