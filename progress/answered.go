package progress

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/span"
)

// answered notes that Redis has done something for a piece of work: see [fault.Answered].
type answered struct{}

// DialHook changes nothing.
func (answered) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook notes that a command was answered, also where the answer is that there is nothing. It is
// a span of its own where the work is traced.
func (answered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !span.Recorded(ctx) {
			return heard(ctx, next(ctx, cmd))
		}
		ctx, call := span.Call(ctx, "redis "+cmd.Name(), attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", cmd.Name()))
		err := next(ctx, cmd)
		span.End(call, err != nil && err != redis.Nil) //nolint:errorlint // as below
		return heard(ctx, err)
	}
}

// ProcessPipelineHook is ProcessHook of several commands.
func (answered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !span.Recorded(ctx) {
			return heard(ctx, next(ctx, cmds))
		}
		ctx, call := span.Call(ctx, "redis pipeline", attribute.String("db.system.name", "redis"), attribute.Int("db.operation.batch.size", len(cmds)))
		err := next(ctx, cmds)
		span.End(call, err != nil && err != redis.Nil) //nolint:errorlint // as below
		return heard(ctx, err)
	}
}

func heard(ctx context.Context, err error) error {
	if err == nil || err == redis.Nil { //nolint:errorlint // which go-redis returns as it is
		fault.Answered(ctx, fault.Redis)
	}
	return err
}
