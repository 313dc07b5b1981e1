package scalein

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/retry"
)

// platform stands in for both, and keeps what it was told.
type platform struct {
	t       *testing.T
	refuses atomic.Bool
	refused atomic.Int64

	mu    sync.Mutex
	heard []string
}

func (p *platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Error(err)
	}
	if p.refuses.Load() {
		p.refused.Add(1)
		if r.Method == http.MethodPut {
			_, _ = io.WriteString(w, `{"failure": {"Arn": "a", "Reason": "DEPLOYMENT_BLOCKED", "Detail": "as the test wants"}}`)
			return
		}
		http.Error(w, "as the test wants", http.StatusForbidden)
		return
	}
	p.mu.Lock()
	p.heard = append(p.heard, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+r.Header.Get("Authorization")+" "+string(body))
	p.mu.Unlock()
	var asked struct{ ProtectionEnabled bool }
	if err := json.Unmarshal(body, &asked); err != nil {
		p.t.Error(err)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"protection": map[string]any{"ProtectionEnabled": asked.ProtectionEnabled, "TaskArn": "a"}})
}

func (p *platform) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.heard...)
}

func (p *platform) until(what string, cond func(heard []string) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	for !cond(p.told()) {
		if !retry.Pause(ctx, time.Millisecond) {
			p.t.Fatalf("no %s: %q", what, p.told())
		}
	}
}

// Each platform is told once that there is work, once that there is none, and again before its protection ends.
func TestPlatformsAreTold(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		of         func(t *testing.T, p *platform) Platform
		busy, idle string
	}{
		"ECS": {
			func(t *testing.T, p *platform) Platform {
				t.Helper()
				server := httptest.NewServer(p)
				t.Cleanup(server.Close)
				return Platform{Agent: server.URL + "/api/task/"}
			}, `PUT /api/task/task-protection/v1/state application/json  {"ExpiresInMinutes":60,"ProtectionEnabled":true}`,
			`PUT /api/task/task-protection/v1/state application/json  {"ProtectionEnabled":false}`,
		},
		"Kubernetes": {
			func(t *testing.T, p *platform) Platform {
				t.Helper()
				server := httptest.NewTLSServer(p)
				t.Cleanup(server.Close)
				dir := t.TempDir()
				for name, text := range map[string][]byte{
					"token": []byte("a token\n"), "namespace": []byte("archive"),
					"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				} {
					if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				host, port, err := net.SplitHostPort(server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				return Platform{Pod: "farol-work-1", APIHost: host, APIPort: port, Identity: dir}
			}, `PATCH /api/v1/namespaces/archive/pods/farol-work-1 application/merge-patch+json Bearer a token {"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"1000"}}}`,
			`PATCH /api/v1/namespaces/archive/pods/farol-work-1 application/merge-patch+json Bearer a token {"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"0"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &platform{t: t}
			var log strings.Builder
			g := New(way.of(t, p), slog.New(slog.NewTextHandler(&log, nil)))
			g.look, g.idle, g.renew, g.again = time.Millisecond, 50*time.Millisecond, time.Hour, 20*time.Millisecond
			var inHand atomic.Int64
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = g.Run(ctx, func() int { return int(inHand.Load()) }) })

			inHand.Store(2)
			p.until("word of the work", func(heard []string) bool { return len(heard) == 1 })
			inHand.Store(0)
			p.until("word of its end", func(heard []string) bool { return len(heard) == 2 })
			p.refuses.Store(true)
			inHand.Store(1)
			for p.refused.Load() < 3 && retry.Pause(ctx, time.Millisecond) {
				continue
			}
			p.refuses.Store(false)
			p.until("word after refusals", func(heard []string) bool { return len(heard) == 3 })
			end()
			running.Wait()
			want := []string{way.busy, way.idle, way.busy, way.idle}
			if got := p.told(); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("it was told %q", got)
			}
			if text := log.String(); !strings.Contains(text, "FAROL_SCALE_IN_PROTECTION=off") || !strings.Contains(text, "as the test wants") {
				t.Errorf("the log has no next step: %s", text)
			}
		})
	}
}

// Protection is asked for again while there is work, or it would end after an hour.
func TestProtectionIsRenewed(t *testing.T) {
	t.Parallel()
	p := &platform{t: t}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	g := New(Platform{Agent: server.URL}, slog.New(slog.DiscardHandler))
	g.look, g.renew = time.Millisecond, 20*time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx, func() int { return 1 }) })
	p.until("renewal", func(heard []string) bool { return len(heard) > 3 })
	end()
	running.Wait()
}

// Without a platform there is nobody to tell.
func TestNoPlatform(t *testing.T) {
	t.Parallel()
	for _, p := range []Platform{{}, {Pod: "farol"}, {APIHost: "h"}} {
		if g := New(p, nil); g != nil {
			t.Errorf("%+v has a guard", p)
		}
	}
}
