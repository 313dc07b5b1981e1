package testenv

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/devstack"
)

// redisNumbers hands out the numbers of databases: 1 to 999, again when free.
type redisNumbers struct {
	mu    sync.Mutex
	next  int
	freed []int
}

// Redis returns a client on an empty database that only this test uses.
func Redis(t testing.TB) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(RedisURL(t))
	if err != nil {
		t.Fatal("testenv:", err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error("testenv:", err)
		}
	})
	return client
}

// RedisURL is Redis for those who connect themselves.
func RedisURL(t testing.TB) string {
	t.Helper()
	server := stack(t, devstack.Redis).RedisURL
	number, ok := running.redis.take()
	if !ok {
		t.Fatal("testenv: more than 999 tests have a Redis database at once")
	}
	address := strings.TrimSuffix(server, "/0") + "/" + strconv.Itoa(number)
	t.Cleanup(func() {
		if err := flush(address); err != nil {
			t.Error("testenv: empty the Redis database:", err)
			return // nobody gets it after that
		}
		running.redis.put(number)
	})
	return address
}

func flush(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	options, err := redis.ParseURL(address)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	return errors.Join(client.FlushDB(ctx).Err(), client.Close())
}

func (n *redisNumbers) take() (int, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.freed) - 1; last >= 0 {
		number := n.freed[last]
		n.freed = n.freed[:last]
		return number, true
	}
	n.next++
	return n.next, n.next < 1000
}

func (n *redisNumbers) put(number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.freed = append(n.freed, number)
}
