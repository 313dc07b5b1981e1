package progress_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/retry"
)

// work is what bags do to a store, again where Redis was at fault. It ends when ctx does, and returns
// how many bags came to their end. Anything that was lost is an error.
func work(ctx context.Context, s *progress.Store, bags int) (ended int, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	var errs []error
	for i := range bags {
		group.Go(func() {
			ok, err := workOn(ctx, s, int64(i+1))
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); ok {
				ended++
			}
		})
	}
	group.Wait()
	return ended, errors.Join(errs...)
}

func workOn(ctx context.Context, s *progress.Store, id int64) (bool, error) {
	again := func(do func() error) error {
		for {
			err := do()
			if err == nil || ctx.Err() != nil {
				return err
			}
			if fault.In(err) == nil {
				return err
			}
			retry.Pause(ctx, 20*time.Millisecond)
		}
	}
	c := progress.Claim{Item: id, Token: 1}
	const files = 30
	for i := range files {
		if err := again(func() error { return s.Done(ctx, c, stage, map[int]string{i: fmt.Sprint(i)}) }); err != nil {
			return false, err
		}
		retry.Pause(ctx, 5*time.Millisecond)
	}
	var results map[int]string
	if err := again(func() (err error) { results, err = s.Results(ctx, id, stage); return err }); err != nil {
		return false, err
	}
	if len(results) != files {
		return false, fmt.Errorf("item %d has %d of %d files", id, len(results), files)
	}
	return true, again(func() error { return s.Clear(ctx, id) })
}

// While the slots of a cluster move, no file is done twice, and no bag notices.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	c := testenv.NewRedisCluster(t)
	s := connect(t, c.URL)
	const bags = 100
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var moves sync.WaitGroup
	moves.Go(func() {
		for i := range bags {
			slot := redisSlot(fmt.Sprint(i + 1))
			from, to := c.Primaries[slot*3/16384], c.Primaries[(slot*3/16384+1)%3]
			if err := c.Move(ctx, slot, from, to); err != nil {
				t.Errorf("move slot %d: %v", slot, err)
				return
			}
		}
	})
	ended, err := work(ctx, s, bags)
	moves.Wait()
	if ended != bags || err != nil {
		t.Errorf("%d of %d bags came to their end: %v", ended, bags, err)
	}
}

// redisSlot is CRC16 (XMODEM) of a hash tag, modulo 16384, as the specification of clusters has it.
func redisSlot(tag string) int {
	crc := uint16(0)
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}

// All keys of a cluster are found, and removed, whichever node has them.
func TestKeysOfAllNodes(t *testing.T) {
	t.Parallel()
	s := connect(t, testenv.NewRedisCluster(t).URL)
	const items = 50
	for i := range int64(items) {
		must(t, s.Done(t.Context(), progress.Claim{Item: i + 1, Token: 1}, stage, map[int]string{1: "a"}))
	}
	found := map[int64]bool{}
	var names []string
	for keys, err := range s.Keys(t.Context()) {
		must(t, err)
		for _, k := range keys {
			found[k.Item], names = true, append(names, k.Name)
		}
	}
	if len(found) != items {
		t.Errorf("the keys of %d items were found, want %d", len(found), items)
	}
	weight, _, err := s.Weigh(t.Context(), names)
	must(t, err)
	if weight == 0 {
		t.Error("the keys weigh nothing")
	}
	must(t, s.Remove(t.Context(), names))
	for keys, err := range s.Keys(t.Context()) {
		must(t, err)
		t.Errorf("after Remove there are %v", keys)
	}
}

// A primary that dies is Redis's failure until another has taken its place, and then all goes on.
func TestPrimaryOfClusterDies(t *testing.T) {
	t.Parallel()
	c := testenv.NewRedisCluster(t)
	survives(t, c.URL, func() { c.Primaries[1].Kill(t) })
}

func TestPrimaryOfSentinelDies(t *testing.T) {
	t.Parallel()
	c := testenv.NewRedisSentinel(t)
	survives(t, c.URL, func() { c.Nodes[0].Kill(t) })
}

// survives has bags worked on while something dies. A failover may lose what was written a moment
// before, since replicas follow behind; what is written after it stays.
func survives(t *testing.T, url string, dies func()) {
	t.Helper()
	s := connect(t, url)
	for i := range int64(30) {
		must(t, s.Done(t.Context(), progress.Claim{Item: i + 1, Token: 1}, stage, map[int]string{1: "a"}))
	}
	dies()
	testenv.Eventually(t, "all items to be writable again", func() bool {
		for i := range int64(30) {
			err := s.Done(t.Context(), progress.Claim{Item: i + 1, Token: 2}, stage, map[int]string{2: "b"})
			if err != nil && fault.In(err) == nil {
				t.Fatalf("while another takes its place: %v", err)
			}
			if err != nil {
				return false
			}
		}
		return true
	})
	for i := range int64(30) {
		results, err := s.Results(t.Context(), i+1, stage)
		must(t, err)
		if results[2] != "b" {
			t.Errorf("item %d has %v", i+1, results)
		}
	}
}

// What a URL names is what is connected to; what it cannot name is said, and no secret.
func TestURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]redis.UniversalOptions{
		"redis://h:1/3":                               {Addrs: []string{"h:1"}, DB: 3},
		"redis://u:p@h":                               {Addrs: []string{"h:6379"}, Username: "u", Password: "p"},
		"redis://h:1?addr=i:2&addr=j:3":               {Addrs: []string{"h:1", "i:2", "j:3"}},
		"redis://h:1?cluster=true":                    {Addrs: []string{"h:1"}, IsClusterMode: true},
		"redis://:p@h:1/2?master_name=m&addr=i:2":     {Addrs: []string{"h:1", "i:2"}, Password: "p", DB: 2, MasterName: "m"},
		"redis://h?master_name=m&sentinel_password=s": {Addrs: []string{"h:6379"}, MasterName: "m", SentinelPassword: "s"},
	} {
		got, err := progress.ParseURL(url)
		must(t, err)
		equal(t, url, []any{want.Addrs, want.DB, want.Username, want.Password, want.MasterName, want.SentinelPassword, want.IsClusterMode},
			[]any{got.Addrs, got.DB, got.Username, got.Password, got.MasterName, got.SentinelPassword, got.IsClusterMode})
	}
	for _, url := range []string{
		"", "redis", "http://:secret@h", "redis://:secret@[", "redis://:secret@h/1?addr=i:1", "redis://:secret@h?cluster=yes",
		"redis://:secret@h?cluster=true&master_name=m", "redis://h?sentinel_password=secret", "redis://:secret@h?poolsize=3", "redis://:secret@h:1?cluster=true&db=4",
	} {
		if o, err := progress.ParseURL(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseURL(%q) = %+v, %v", url, o, err)
		}
	}
	o, err := progress.ParseURL("rediss://h:1?addr=i:2")
	must(t, err)
	if o.TLSConfig == nil {
		t.Error("rediss:// has no TLS")
	}
}
