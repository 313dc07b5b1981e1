package connect

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// redisLog has go-redis log as the rest of a process does. It reports errors that its
// callers get and log too, so that here they are for debugging only.
type redisLog struct{ log *slog.Logger }

// LogRedis has the client of Redis log there.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

// Printf is of the interface of go-redis.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "message of the Redis client", "text", fmt.Sprintf(format, v...))
	}
}
