package progress

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/fault"
)

// answered notes that Redis has done something for a piece of work: see [fault.Answered].
type answered struct{}

// DialHook changes nothing.
func (answered) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook notes that a command was answered, also where the answer is that there is nothing.
func (answered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return heard(ctx, next(ctx, cmd))
	}
}

// ProcessPipelineHook is ProcessHook of several commands.
func (answered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return heard(ctx, next(ctx, cmds))
	}
}

func heard(ctx context.Context, err error) error {
	if err == nil || err == redis.Nil { //nolint:errorlint // which go-redis returns as it is
		fault.Answered(ctx, fault.Redis)
	}
	return err
}
