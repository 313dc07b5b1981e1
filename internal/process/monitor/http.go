// Package monitor lets Prometheus and probes watch a process.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/farol-preservation/farol/internal/commands/cli"
)

// Serve serves metrics and health on addr until ctx is done: /metrics;
// /healthz, which answers as long as the process can; and /readyz, which answers
// 503 while ready returns an error, and the text of ready. It returns when the last
// request has ended, or 5 seconds after ctx; at once if addr is empty. routes add what else is served there.
func Serve(ctx context.Context, addr string, metrics *prometheus.Registry, ready Readiness, log *slog.Logger, routes ...func(*http.ServeMux)) error {
	if addr == "" {
		return nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("serve metrics and health: %w", err), Next: "set FAROL_HTTP_ADDR to a free host:port"}
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		log.WarnContext(ctx, "metrics and health are open to other machines and not protected", "addr", listener.Addr().String())
	}
	log.InfoContext(ctx, "serving metrics and health", "addr", listener.Addr().String())
	mux := healthHandler(metrics, ready, log)
	for _, add := range routes {
		add(mux)
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if err := ServeUntil(ctx, server, listener); err != nil {
		return fmt.Errorf("serve metrics and health: %w", err)
	}
	return nil
}

// ServeUntil serves until ctx is done, and then gives requests that are under way 5
// seconds to end.
func ServeUntil(ctx context.Context, server *http.Server, listener net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(bounded)
	if err != nil {
		err = server.Close() // anyone who still reads has had their time
	}
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// Readiness reports whether a process can do its work. Its text is lines without
// names of hosts.
type Readiness func(context.Context) (string, error)

// Answers is the readiness of what needs only that something answers.
func Answers(ping func(context.Context) error) Readiness {
	return func(ctx context.Context) (string, error) { return "", ping(ctx) }
}

func healthHandler(metrics *prometheus.Registry, ready Readiness, log *slog.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		Registry: metrics, MaxRequestsInFlight: 4, Timeout: 20 * time.Second, EnableOpenMetrics: true, // exemplars have no place in the older format
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		text, err := ready(ctx)
		if err != nil {
			// The reason is for the log: it may name hosts.
			log.WarnContext(ctx, "not ready; health checks fail until this is fixed", "err", err)
			answer(w, http.StatusServiceUnavailable, "not ready"+text)
			return
		}
		answer(w, http.StatusOK, "ready"+text)
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
