package progress

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Without tracing, what is asked of each command costs no memory.
func TestCommandsAreNoSpansWithoutTracing(t *testing.T) {
	ctx, cmd := t.Context(), redis.NewStringCmd(t.Context(), "get", "a")
	do := answered{}.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	if n := testing.AllocsPerRun(100, func() { _ = do(ctx, cmd) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
