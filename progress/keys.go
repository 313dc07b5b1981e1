package progress

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Key is a key in Redis that begins with the Store's prefix.
type Key struct {
	Name string
	Item int64 // 0: it is none of ours, whatever its prefix says
}

// Keys walks all keys with the Store's prefix but that of [Store.Probe], a page at a time, in no order. A
// key may come twice, and one that is written in the meantime may come or not: Redis
// promises no more (SCAN). It ends at the first error, which comes without keys.
func (s *Store) Keys(ctx context.Context) iter.Seq2[[]Key, error] {
	return func(yield func([]Key, error) bool) {
		nodes, err := s.nodes(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("list the nodes of Redis: %w", err))
			return
		}
		for _, node := range nodes {
			if !s.keysOf(ctx, node, yield) {
				return
			}
		}
	}
}

// nodes are those that have keys: all primaries of a cluster, or else the one Redis.
func (s *Store) nodes(ctx context.Context) (nodes []redis.Cmdable, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{s.client}, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, s.explain(ctx, err)
}

// keysOf walks the keys of a node; false is to end the walk.
func (s *Store) keysOf(ctx context.Context, node redis.Cmdable, yield func([]Key, error) bool) bool {
	for cursor := uint64(0); ; {
		names, next, err := s.scan(ctx, node, cursor)
		if err != nil {
			yield(nil, fmt.Errorf("list the keys in Redis: %w", err))
			return false
		}
		keys := make([]Key, len(names))
		for i, name := range names {
			keys[i] = Key{name, s.itemOf(name)}
		}
		if len(keys) > 0 && !yield(keys, nil) {
			return false
		}
		if next == 0 {
			return true
		}
		cursor = next
	}
}

func (s *Store) scan(ctx context.Context, node redis.Cmdable, cursor uint64) ([]string, uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	const atOnce = 1000
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`) // in a pattern
	names, next, err := node.Scan(ctx, cursor, literal.Replace(s.prefix)+":*", atOnce).Result()
	names = slices.DeleteFunc(names, func(name string) bool { return name == s.probeKey() })
	return names, next, s.explain(ctx, err)
}

// itemOf reads the item from a name that key has made.
func (s *Store) itemOf(name string) int64 {
	rest, ok := strings.CutPrefix(name, s.prefix+":{")
	number, _, closed := strings.Cut(rest, "}:")
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || !closed || err != nil || id < 1 || strconv.FormatInt(id, 10) != number {
		return 0
	}
	return id
}

// Weigh returns the bytes of memory that keys take, and how long ago the one was
// written that was left alone for the longest. Keys that are gone weigh nothing,
// and the age of one that was not written by this package is not known.
func (s *Store) Weigh(ctx context.Context, keys []string) (bytes int64, idle time.Duration, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	sizes, lives := make([]*redis.IntCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			sizes[i], lives[i] = p.MemoryUsage(ctx, key), p.TTL(ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // which says that a key is gone
		return 0, 0, fmt.Errorf("measure %d keys in Redis: %w", len(keys), s.explain(ctx, err))
	}
	for i := range keys {
		bytes += sizes[i].Val()
		if left := lives[i].Val(); left > 0 {
			idle = max(idle, timeToLive-left)
		}
	}
	return bytes, idle, nil
}

// Remove deletes keys, whatever they are. Keys that are gone are no error.
func (s *Store) Remove(ctx context.Context, keys []string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys { // one by one, since a cluster takes no keys of several slots at once
			p.Unlink(ctx, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete %d keys in Redis: %w", len(keys), s.explain(ctx, err))
	}
	return nil
}
