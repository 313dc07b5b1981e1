package connect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/farol-preservation/farol/registry/stores"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

const (
	sharedEvery = 30 * time.Second // for what this process has learnt of stores; what others have, ten times as seldom
	sharedIn    = 5 * time.Second  // at most
)

// shareAbilities takes over what other processes know of the stores and, until the services
// are closed, tells them what this one learns. Nothing depends on it: a process that knows
// nothing finds it out.
func (s *Services) shareAbilities(ctx context.Context) {
	records := stores.In(s.Registry)
	if err := learn(ctx, records, s.client); err != nil {
		slog.DebugContext(ctx, "cannot read what is known of the stores; finding it out", "err", err)
	}
	_, told := s.client.Abilities()
	late := context.WithoutCancel(ctx) // what goes on ends when the services are closed
	done, stop := context.WithCancel(late)
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(sharedEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-done.Done():
				return
			case <-tick.C:
			}
			told = tell(done, records, s.client, told)
			if n%10 == 0 {
				_ = learn(done, records, s.client) // in five minutes again
			}
		}
	})
	s.closers = append(s.closers, func() error {
		stop()
		loop.Wait()
		tell(late, records, s.client, told)
		return nil
	})
}

func learn(ctx context.Context, records stores.Records, client *storage.Client) error {
	ctx, cancel := context.WithTimeout(ctx, sharedIn)
	defer cancel()
	known, err := records.List(ctx)
	if err != nil {
		return err
	}
	for _, one := range known {
		var a ability.Known
		text, err := json.Marshal(one)
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			return errors.Join(errors.New("read what is known of a store"), err)
		}
		client.Learn(a)
	}
	return nil
}

// tell keeps what has changed since the last time, and returns how far it got.
func tell(ctx context.Context, records stores.Records, client *storage.Client, told int) int {
	all, changes := client.Abilities()
	if changes == told {
		return told
	}
	ctx, cancel := context.WithTimeout(ctx, sharedIn)
	defer cancel()
	for _, a := range all {
		text, err := json.Marshal(a)
		if err == nil {
			err = records.Save(ctx, text)
		}
		if err != nil {
			slog.DebugContext(ctx, "cannot keep what was learnt of a store; trying again", "store", a.Endpoint, "err", err)
			return told
		}
	}
	return changes
}

// Slowdowns is [storage.Client.Slowdowns] of the buckets that are open.
func (s *Services) Slowdowns() map[string]int64 { return s.client.Slowdowns() }

// Detours is [storage.Client.Detours] of the buckets that are open.
func (s *Services) Detours() (bytes, requests int64) { return s.client.Detours() }
