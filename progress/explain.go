package progress

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/fault"
)

// errSilent is why a call ended that Redis did not answer, and not its caller's doing.
var errSilent = errors.New("progress: Redis did not answer in time")

// bounded is the context of one call.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithValue(ctx, begunKey{}, time.Now()), callTimeout, errSilent)
}

type begunKey struct{} // when a call began

// explain says whose failure an error of the client is, given the context of the call:
// that of Redis, or nobody's where the caller's time was up. What Redis answers is
// never the content's: a command of ours that it refuses is Redis's failure, or ours.
func (s *Store) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, redis.ErrClosed) || fault.In(err) != nil {
		return err
	}
	of := func(k fault.Kind, said string) error {
		return &fault.Error{Service: fault.Redis, Kind: k, Said: said, Err: err}
	}
	var answer redis.Error
	if errors.As(err, &answer) {
		if begun, ok := ctx.Value(begunKey{}).(time.Time); ok && redis.IsReadOnlyError(err) {
			s.lines.hangUp(begun)
		}
		return of(fault.OfRedis(answer.Error()), firstWords(answer.Error()))
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent) {
		return err
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return of(fault.Overloaded, "all connections are waiting for an answer")
	}
	if k, said, ok := fault.Network(err); ok {
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx) // or a primary that died is asked until a minute has passed
		}
		return of(k, said)
	}
	return of(fault.WrongAnswer, "not an answer of Redis")
}

// firstWords are enough of an answer for a line.
func firstWords(answer string) string {
	const most = 60
	answer, _, _ = strings.Cut(answer, " script: ") // the script's hash and line
	if len(answer) > most {
		answer = strings.ToValidUTF8(answer[:most-3], "") + "…"
	}
	return answer
}

// probeLife is how long the key of a probe lives: for who looks into Redis.
const probeLife = time.Minute

func (s *Store) probeKey() string { return s.prefix + ":probe" }

// Probe asks whether Redis takes writes now, by a small key that is no item's and
// ends by itself; [Store.Keys] leaves it out. A Redis that is full, that became a
// replica or cannot persist answers everything else as if nothing were wrong.
func (s *Store) Probe(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, probeTimeout, errSilent)
	defer cancel()
	if err := s.client.Set(ctx, s.probeKey(), "1", probeLife).Err(); err != nil {
		return s.explain(ctx, err)
	}
	return nil
}
