package testenv

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/devstack"
)

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
	number, err := takeNumber(server)
	if err != nil {
		t.Fatal("testenv: take a Redis database:", err)
	}
	address := strings.TrimSuffix(server, "/0") + "/" + strconv.Itoa(number)
	t.Cleanup(func() {
		if err := giveBack(server, address, number); err != nil {
			t.Error("testenv: empty the Redis database:", err) // nobody gets it after that
		}
	})
	return address
}

// Databases have numbers, 1 to 999, and several processes may use the server: so
// database 0 knows which are free.
const (
	lastNumber  = "testenv:last"
	freeNumbers = "testenv:free"
)

func takeNumber(server string) (number int, err error) {
	err = withRedis(server, func(ctx context.Context, c *redis.Client) error {
		if number, err = c.LPop(ctx, freeNumbers).Int(); !errors.Is(err, redis.Nil) {
			return err
		}
		n, err := c.Incr(ctx, lastNumber).Result()
		if number = int(n); err == nil && n >= 1000 {
			err = errors.New("more than 999 tests have one at once")
		}
		return err
	})
	return number, err
}

func giveBack(server, address string, number int) error {
	if err := withRedis(address, func(ctx context.Context, c *redis.Client) error { return c.FlushDB(ctx).Err() }); err != nil {
		return err
	}
	return withRedis(server, func(ctx context.Context, c *redis.Client) error { return c.LPush(ctx, freeNumbers, number).Err() })
}

func withRedis(address string, do func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options, err := redis.ParseURL(address)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	return errors.Join(do(ctx, client), client.Close())
}
