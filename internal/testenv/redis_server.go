package testenv

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/devstack"
)

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
	if err != nil {
		t.Fatal("testenv:", err)
	}
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
	if err != nil {
		s.t.Fatal("testenv:", err)
	}
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
