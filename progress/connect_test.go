package progress_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
)

func TestConnectTellsWhetherRedisIsThere(t *testing.T) {
	t.Parallel()
	s, err := progress.Connect(t.Context(), testenv.RedisURL(t), "farol")
	must(t, err)
	equal(t, "results", map[int]string{}, begin(t, s, 1))
	must(t, s.Close())

	if _, err := progress.Connect(t.Context(), "redis://:secret@127.0.0.1:1/0", "farol"); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("Connect to nobody = %v", err)
	}
	if _, err := progress.Connect(t.Context(), "redis://:secret@[", "farol"); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("Connect to nonsense = %v", err)
	}
}

// An outage is the worker's to wait for: it is no lost claim, no empty answer,
// and it does not hang.
func TestAnOutageIsAnError(t *testing.T) {
	t.Parallel()
	url := testenv.RedisURL(t)
	options, err := redis.ParseURL(url)
	must(t, err)
	proxy := testenv.NewProxy(t, options.Addr)
	s, err := progress.Connect(t.Context(), strings.Replace(url, options.Addr, proxy.Addr(), 1), "farol")
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Done(t.Context(), claim(1), stage, map[int]string{1: "a"}))

	proxy.Cut()
	_, beginErr := s.Begin(t.Context(), claim(1), stage)
	_, summaryErr := s.Summary(t.Context(), item)
	_, getErr := s.Get(t.Context(), item, stage, "a")
	for name, err := range map[string]error{
		"Begin": beginErr, "Summary": summaryErr, "Get": getErr,
		"Done":  s.Done(t.Context(), claim(1), stage, map[int]string{2: "b"}),
		"Clear": s.Clear(t.Context(), item),
	} {
		if err == nil || errors.Is(err, progress.ErrLost) {
			t.Errorf("%s = %v", name, err)
		}
	}
	proxy.Resume()
	equal(t, "afterwards", map[int]string{1: "a"}, begin(t, s, 1))
}

// Redis is noted for the work that it answered, also that it has nothing; and not where it did not.
func TestAnswersOfRedisAreNoted(t *testing.T) {
	t.Parallel()
	url := testenv.RedisURL(t)
	options, err := redis.ParseURL(url)
	must(t, err)
	proxy := testenv.NewProxy(t, options.Addr)
	s, err := progress.Connect(t.Context(), strings.Replace(url, options.Addr, proxy.Addr(), 1), "farol")
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	for name, ask := range map[string]func(ctx context.Context) error{
		"nothing":    func(ctx context.Context) error { _, err := s.Get(ctx, item, stage, "none"); return err },
		"a write":    func(ctx context.Context) error { return s.Done(ctx, claim(1), stage, map[int]string{1: "a"}) },
		"a pipeline": func(ctx context.Context) error { _, err := s.Summary(ctx, item); return err },
	} {
		var there, away fault.Answers
		must(t, ask(fault.WithAnswers(t.Context(), &there)))
		proxy.Cut()
		if err := ask(fault.WithAnswers(t.Context(), &away)); err == nil {
			t.Errorf("%s: no error while Redis is away", name)
		}
		proxy.Resume()
		if !there.Has(fault.Redis) || away.Has(fault.Redis) {
			t.Errorf("%s: noted %t while Redis was there, and %t while it was away", name, there.Has(fault.Redis), away.Has(fault.Redis))
		}
	}
}
