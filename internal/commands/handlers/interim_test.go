package handlers

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/storage"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A Redis that does not answer is tried once for all requests of the next seconds, and one
// that a caller did not wait for is open for the next.
func TestServerTriesRedisRarely(t *testing.T) {
	t.Parallel()
	h := &house{Services: &connect.Services{}}
	open := h.openProgress(settings.Redis{URL: "redis://127.0.0.1:1/0"})
	_, err := open(t.Context())
	if _, again := open(t.Context()); err == nil || again != err { //nolint:errorlint // the same error, and no other like it
		t.Errorf("%v, then %v", err, again)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h = &house{Services: &connect.Services{}}
	store, err := h.openProgress(settings.Redis{URL: storage.Secret(testenv.RedisURL(t))})(gone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := store.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
