package testenv

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// Redis returns a client on an empty database that only this test uses.
func Redis(t testing.TB) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(RedisURL(t))
	must(t, err)
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

// RedisServer is a Redis of a test's own, to be hurt.
type RedisServer struct {
	URL    string        // of database 0, with its password
	Client *redis.Client // straight to it
	Dir    string        // its working directory

	t   testing.TB
	own *ownServer
}

// NewRedisServer returns a Redis that ends with the test.
func NewRedisServer(t testing.TB) *RedisServer {
	t.Helper()
	own := newOwn(t, devstack.Redis, func(*devstack.Options) {})
	own.start(t)
	s := &RedisServer{URL: own.stack.RedisURL, Dir: filepath.Join(own.dir, "redis"), t: t, own: own}
	options, err := redis.ParseURL(s.URL)
	must(t, err)
	s.Client = redis.NewClient(options)
	t.Cleanup(func() { s.Client.Close() }) //nolint:errcheck // nothing is left to say
	return s
}

// Addr is where the server listens, host:port.
func (s *RedisServer) Addr() string { return s.Client.Options().Addr }

// Stop ends the server for good.
func (s *RedisServer) Stop() {
	s.t.Helper()
	s.own.stop(s.t)
}

// Set changes settings, name and value in turn.
func (s *RedisServer) Set(settings ...string) {
	s.t.Helper()
	for i := 0; i+1 < len(settings); i += 2 {
		if err := s.Client.ConfigSet(s.t.Context(), settings[i], settings[i+1]).Err(); err != nil {
			s.t.Fatal("testenv: set "+settings[i]+":", err)
		}
	}
}

// Follow makes the server a replica of another, which it is soon.
func (s *RedisServer) Follow(primary *RedisServer) {
	s.t.Helper()
	o := primary.Client.Options()
	s.Set("masterauth", o.Password)
	host, port, err := net.SplitHostPort(o.Addr)
	must(s.t, err)
	if err := s.Client.ReplicaOf(s.t.Context(), host, port).Err(); err != nil {
		s.t.Fatal("testenv: follow:", err)
	}
}

// Promote makes a replica the primary.
func (s *RedisServer) Promote() {
	s.t.Helper()
	if err := s.Client.ReplicaOf(s.t.Context(), "NO", "ONE").Err(); err != nil {
		s.t.Fatal("testenv: promote:", err)
	}
}
