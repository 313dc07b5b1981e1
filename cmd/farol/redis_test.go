package main

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
)

// A Redis that would forget is warned of; one that remembers is not, and one that
// does not tell need not be.
func TestForgetfulRedisIsWarnedOf(t *testing.T) {
	t.Parallel()
	address := testenv.RedisURL(t)
	client := testenv.Redis(t)
	exec := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	exec("ACL", "SETUSER", "shy", "on", ">quiet", "~*", "&*", "+@all", "-info", "-config")
	shy, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	shy.User = url.UserPassword("shy", "quiet")
	for _, tc := range []struct{ appendOnly, address, want string }{
		{"no", address, "level=WARN"},
		{"yes", address, ""},
		{"no", shy.String(), "level=DEBUG"},
	} {
		exec("CONFIG", "SET", "appendonly", tc.appendOnly)
		store, err := progress.Connect(t.Context(), tc.address, progressPrefix)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		var said strings.Builder
		warnOfForgetfulRedis(t.Context(), store, slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if (said.String() == "") != (tc.want == "") || !strings.Contains(said.String(), tc.want) || strings.Contains(said.String(), "quiet") {
			t.Errorf("appendonly %s: said %q, want %q", tc.appendOnly, said.String(), tc.want)
		}
	}
}
