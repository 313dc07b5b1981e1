package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// A fault is something that fails for a while. begin returns how to end it, and how
// many requests or connections it has harmed; nil where that cannot be counted.
type fault struct {
	name  string
	begin func(context.Context, *site) (active, error)
}

type active struct {
	end  func(context.Context) error
	hits func() int64
}

// hold has some faults last for a while, all at once.
func hold(d time.Duration, faults ...fault) step {
	return during(pause(d), faults...)
}

// inTurn takes steps one after the other.
func inTurn(steps ...step) step {
	return func(ctx context.Context, s *site) error {
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func pause(d time.Duration) step {
	return func(ctx context.Context, _ *site) error { return sleep(ctx, d) }
}

func during(wait step, faults ...fault) step {
	return func(ctx context.Context, s *site) (err error) {
		var running []active
		defer func() {
			for i, a := range running {
				ended := a.end(context.WithoutCancel(ctx))
				if ended == nil && err == nil && a.hits != nil {
					if a.hits() == 0 {
						ended = fmt.Errorf("%s: %w", faults[i].name, errVoid)
					}
				}
				err = errors.Join(err, ended)
			}
		}()
		for _, f := range faults {
			a, err := f.begin(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			running = append(running, a)
		}
		return wait(ctx, s)
	}
}

// untilDone has some faults last until no item is live, or for most.
func untilDone(most time.Duration, faults ...fault) step {
	return during(func(ctx context.Context, s *site) error {
		_, err := poll(ctx, most, func() (bool, error) {
			c, err := s.Look(ctx)
			return err == nil && s.allEnded(c), nil
		})
		return err
	}, faults...)
}

// The processes that a fault harms.
func all(s *site) []*process         { return s.everyone() }
func firstWorker(s *site) []*process { return s.workers[:1] }

// onS3 is a rule of S3 proxies.
func onS3(who func(*site) []*process, make func(*site) *rule) fault {
	return fault{name: "S3", begin: func(_ context.Context, s *site) (active, error) {
		r := make(s)
		for _, p := range who(s) {
			p.s3.add(r)
		}
		return active{
			end: func(context.Context) error {
				s.note("%s met %d requests", r.name, r.hits.Load())
				for _, p := range who(s) {
					p.s3.remove(r)
				}
				r.over.Store(true)
				return nil
			},
			hits: r.hits.Load,
		}, nil
	}}
}

// Which way of a process is harmed.
func toS3(p *process) *injure.Proxy       { return p.s3.Proxy }
func toRedis(p *process) *injure.Proxy    { return p.redis }
func toPostgres(p *process) *injure.Proxy { return p.postgres }

// refused has connections refused, and open ones cut.
func refused(who func(*site) []*process, way func(*process) *injure.Proxy) fault {
	return onWay("connections refused", who, way, (*injure.Proxy).Refuse, (*injure.Proxy).Serve)
}

// stalled lets nothing through.
func stalled(who func(*site) []*process, way func(*process) *injure.Proxy) fault {
	return onWay("connections stalled", who, way, (*injure.Proxy).Stall, func(p *injure.Proxy) error { p.Flow(); return nil })
}

// onWay does something to the ways of processes, and undoes it at the end.
func onWay(name string, who func(*site) []*process, way func(*process) *injure.Proxy, do func(*injure.Proxy), undo func(*injure.Proxy) error) fault {
	return once(name, func(_ context.Context, s *site) error {
		for _, p := range who(s) {
			do(way(p))
		}
		return nil
	}, func(_ context.Context, s *site) (err error) {
		for _, p := range who(s) {
			err = errors.Join(err, undo(way(p)))
		}
		return err
	})
}

// repeated does something again and again, with pauses.
func repeated(name string, pause time.Duration, do step) fault {
	return fault{name: name, begin: func(ctx context.Context, s *site) (active, error) {
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			var err error
			for err == nil && sleep(ctx, pause) == nil {
				err = do(ctx, s)
			}
			done <- err
		}()
		return active{end: func(context.Context) error {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}}, nil
	}}
}

// cut cuts all open connections each second.
func cut(who func(*site) []*process, way func(*process) *injure.Proxy) fault {
	return repeated("connections cut", time.Second, func(_ context.Context, s *site) error {
		for _, p := range who(s) {
			way(p).Drop()
		}
		return nil
	})
}

// once does something at the beginning, and undoes it at the end.
func once(name string, do, undo step) fault {
	return fault{name: name, begin: func(ctx context.Context, s *site) (active, error) {
		if err := do(ctx, s); err != nil {
			return active{}, err
		}
		return active{end: func(ctx context.Context) error {
			if undo == nil {
				return nil
			}
			return undo(ctx, s)
		}}, nil
	}}
}
