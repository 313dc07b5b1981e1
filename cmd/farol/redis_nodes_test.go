package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/progress"
)

// In the midst of the work, slots of a cluster move and one of its primaries dies: every bag comes to its end,
// none of them spends an attempt, and the janitor leaves nothing of them in Redis.
func TestClusterChangesInTheMidst(t *testing.T) {
	t.Parallel()
	c := testenv.NewRedisCluster(t)
	inTheMidst(t, c.URL, 300, func(ctx context.Context, done int) {
		moved := map[int]bool{}
		for id := done; id < done+60; id++ { // of bags that are worked on, and that are next
			slot := int(must.Get(c.Others[0].Client.ClusterKeySlot(ctx, fmt.Sprintf("farol:{%d}", id)).Result())(t))
			if moved[slot] {
				continue
			}
			moved[slot] = true
			from := (slot*3 + 2) / testenv.RedisSlots
			must.Do(t, c.Move(ctx, slot, c.Primaries[from], c.Primaries[(from+1)%3]))
		}
		c.Primaries[1].Kill(t)
	})
}

// Likewise the primary that Sentinel watches.
func TestSentinelChoosesInTheMidst(t *testing.T) {
	t.Parallel()
	c := testenv.NewRedisSentinel(t)
	inTheMidst(t, c.URL, 100, func(context.Context, int) { c.Nodes[0].Kill(t) })
}

func inTheMidst(t *testing.T, redisURL string, bags int, happens func(ctx context.Context, done int)) {
	t.Helper()
	s := newSite(t)
	s.settings["FAROL_REDIS_URL"] = redisURL
	s.created(s.in.RestoreBucket)
	specs := make([]bagtest.Spec, bags)
	for i := range specs {
		specs[i] = bagtest.Spec{Name: "bag" + strconv.Itoa(i), Files: []bagtest.File{random("data/a.bin", 2000, 0), random("data/b.bin", 90_000, 0), {Path: "data/empty"}}}
	}
	s.deposit(specs...)
	w := s.worker()
	done := func() int {
		return ask[int](t, s.db, `SELECT count(*)::int FROM work_items WHERE status = 'Success'`)
	}
	w.eventually("some bags to be stored", func() bool { return done() >= bags/5 })
	happens(t.Context(), done())
	if n := done(); n == bags {
		t.Fatal("all bags had come to their end before")
	}
	s.atRest(w)
	stop(t, w)
	counts(t, s.db, map[string]int{
		`SELECT count(*)::int FROM work_items WHERE status = 'Success'`:                        bags,
		`SELECT count(*)::int FROM intellectual_objects`:                                       bags,
		`SELECT count(*)::int FROM work_item_attempts WHERE outcome IN ('transient', 'fatal')`: 0,
		`SELECT count(*)::int FROM storage_records`:                                            2 * ask[int](t, s.db, `SELECT count(*)::int FROM generic_files`),
	})
	s.farol("schedule", "run", "janitor") // a primary that died may have lost that keys were deleted
	options := must.Get(progress.ParseURL(redisURL))(t)
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	store := progress.New(client, progress.Prefix)
	for keys, err := range store.Keys(t.Context()) {
		if err != nil || len(keys) > 0 {
			t.Errorf("left in Redis: %v, %v", keys, err)
		}
	}
}
