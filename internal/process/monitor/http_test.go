package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func TestMetricsAndHealthAreServedUntilTheEnd(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "farol_test_total", Help: "A test."})
	metrics.MustRegister(c)
	c.Inc()
	var trouble atomic.Bool
	ready := func(context.Context) error {
		if trouble.Load() {
			return errors.New("host db.internal does not answer")
		}
		return nil
	}
	logged, log := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, "127.0.0.1:0", metrics, Answers(ready), slog.New(slog.NewJSONHandler(log, nil)))
	}()
	lines := bufio.NewReader(logged)
	text := must.Get(lines.ReadString('\n'))(t)
	var first struct{ Addr, Level string }
	if err := json.Unmarshal([]byte(text), &first); err != nil || first.Level != "INFO" {
		t.Fatalf("%s: %v", text, err) // no warning on a loopback address
	}
	go io.Copy(io.Discard, lines)

	expect := func(path string, status int, part string) {
		t.Helper()
		client := http.Client{Timeout: 10 * time.Second}
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+first.Addr+path, nil))(t)
		response, err := client.Do(request)
		must.Do(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status || !strings.Contains(string(body), part) {
			t.Errorf("GET %s = %d %q, %v; want %d and %q", path, response.StatusCode, body, err, status, part)
		}
		if strings.Contains(string(body), "db.internal") {
			t.Errorf("GET %s reveals the network: %q", path, body)
		}
	}
	expect("/metrics", http.StatusOK, "farol_test_total 1")
	expect("/healthz", http.StatusOK, "ok")
	expect("/readyz", http.StatusOK, "ready")
	trouble.Store(true)
	expect("/readyz", http.StatusServiceUnavailable, "not ready")
	expect("/healthz", http.StatusOK, "ok")
	expect("/else", http.StatusNotFound, "")

	stop()
	if err := <-ended; err != nil {
		t.Errorf("serveHTTP = %v", err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsServedWithoutAnAddress(t *testing.T) {
	t.Parallel()
	if err := Serve(t.Context(), "", prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

func TestAnAddressThatCannotBeUsedNamesItsSetting(t *testing.T) {
	t.Parallel()
	err := Serve(t.Context(), "127.0.0.1:99999", prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler))
	if f := cli.FailureOf(err); err == nil || f.Code != cli.ExitFailed || !strings.Contains(f.Next, "FAROL_HTTP_ADDR") {
		t.Errorf("serveHTTP = %v", err)
	}
}
