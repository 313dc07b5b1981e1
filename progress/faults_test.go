package progress_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
)

// connect is a Store on a Redis that was there a moment ago.
func connect(t *testing.T, address string) *progress.Store {
	t.Helper()
	s, err := progress.Connect(t.Context(), address, "farol")
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// at is the address of a Redis with something changed.
func at(t *testing.T, address string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	change(u)
	return u.String()
}

// blamed checks that an error is Redis's, of this kind.
func blamed(t *testing.T, what string, err error, kind fault.Kind, said string) {
	t.Helper()
	f := fault.In(err)
	if f == nil || f.Service != fault.Redis || f.Kind != kind || !strings.HasPrefix(f.Said, said) || errors.Is(err, progress.ErrLost) {
		t.Errorf("%s = %v (%+v), want the fault %s of Redis, %q", what, err, f, kind, said)
	}
}

// What a real Redis says when it is not well is its failure, to writes as to a probe,
// and not the item's.
func TestRedisIsBlamedForWhatItRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hurt func(t *testing.T, s *testenv.RedisServer)
		kind fault.Kind
		said string
		cure func(t *testing.T, s *testenv.RedisServer) // nil: there is none
	}{
		"full": {
			func(t *testing.T, s *testenv.RedisServer) { s.Set("maxmemory", "1", "maxmemory-policy", "noeviction") },
			fault.Full, "OOM command not allowed", func(t *testing.T, s *testenv.RedisServer) { s.Set("maxmemory", "0") },
		},
		"became a replica": {
			func(t *testing.T, s *testenv.RedisServer) {
				must(t, s.Client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
			},
			fault.ReadOnly, "READONLY You can't write", func(t *testing.T, s *testenv.RedisServer) { s.Promote() },
		},
		"a replica that lost its primary": {
			func(t *testing.T, s *testenv.RedisServer) {
				s.Set("replica-serve-stale-data", "no", "replica-read-only", "no")
				must(t, s.Client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
			},
			fault.Unavailable, "MASTERDOWN", func(t *testing.T, s *testenv.RedisServer) { s.Promote() },
		},
		"cannot write its file": {
			func(t *testing.T, s *testenv.RedisServer) {
				must(t, os.RemoveAll(s.Dir))
				s.Set("save", "3600 1")
				must(t, s.Client.BgSave(t.Context()).Err())
				testenv.Eventually(t, "the save fails", func() bool {
					info := s.Client.Info(t.Context(), "persistence").Val()
					return strings.Contains(info, "rdb_last_bgsave_status:err")
				})
			},
			fault.ReadOnly, "MISCONF ", func(t *testing.T, s *testenv.RedisServer) { s.Set("save", "") },
		},
		"too few replicas": {
			func(t *testing.T, s *testenv.RedisServer) { s.Set("min-replicas-to-write", "1") },
			fault.ReadOnly, "NOREPLICAS", func(t *testing.T, s *testenv.RedisServer) { s.Set("min-replicas-to-write", "0") },
		},
		"away": {func(_ *testing.T, s *testenv.RedisServer) { s.Stop() }, fault.Unavailable, "connection", nil},
		"another password": {
			func(t *testing.T, s *testenv.RedisServer) {
				s.Set("requirepass", "changed")
				must(t, s.Client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
			},
			fault.Denied, "WRONGPASS", nil,
		},
		"fewer rights": {
			func(t *testing.T, s *testenv.RedisServer) {
				must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "default", "resetkeys", "~other:*").Err())
			},
			fault.Denied, "NOPERM", func(t *testing.T, s *testenv.RedisServer) {
				must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "default", "allkeys").Err())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.NewRedisServer(t)
			s := connect(t, server.URL)
			must(t, s.Done(t.Context(), claim(1), stage, map[int]string{1: "a"}))
			must(t, s.Probe(t.Context()))
			tt.hurt(t, server)
			blamed(t, "Done", s.Done(t.Context(), claim(1), stage, map[int]string{2: "b"}), tt.kind, tt.said)
			blamed(t, "Probe", s.Probe(t.Context()), tt.kind, tt.said)
			if tt.cure == nil {
				return
			}
			tt.cure(t, server)
			testenv.Eventually(t, "a probe succeeds", func() bool { return s.Probe(t.Context()) == nil })
			must(t, s.Done(t.Context(), claim(1), stage, map[int]string{2: "b"}))
			equal(t, "results", map[int]string{1: "a", 2: "b"}, begin(t, s, 1))
		})
	}
}

// Redis says that it has too many clients and closes the connection; the client may see
// the latter first.
func TestARedisWithTooManyClientsIsBlamed(t *testing.T) {
	t.Parallel()
	server := testenv.NewRedisServer(t)
	s := connect(t, server.URL)
	server.Set("maxclients", "1")
	must(t, server.Client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	err := s.Probe(t.Context())
	if f := fault.In(err); f == nil || f.Kind != fault.Overloaded && f.Kind != fault.Unavailable {
		t.Errorf("Probe = %v (%+v)", err, f)
	}
}

// A Redis that reads its data, after a restart or as a new replica, will answer soon.
func TestARedisThatStillLoadsIsUnavailable(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.NewRedisServer(t), testenv.NewRedisServer(t)
	for i := range 20 {
		fields := make([]any, 0, 400)
		for j := range 200 {
			fields = append(fields, fmt.Sprint(j), strings.Repeat("x", 50))
		}
		must(t, primary.Client.HSet(t.Context(), fmt.Sprint("filler", i), fields...).Err())
	}
	primary.Set("repl-diskless-sync-delay", "0")
	replica.Set("key-load-delay", "200000", "loading-process-events-interval-bytes", "1024") // microseconds
	replica.Set("replica-read-only", "no")                                                   // so that it says what it would after a restart
	s := connect(t, replica.URL)
	replica.Follow(primary)
	var err error
	testenv.Eventually(t, "it loads", func() bool {
		err = s.Probe(t.Context())
		return err != nil && strings.Contains(err.Error(), "LOADING")
	})
	blamed(t, "Probe", err, fault.Unavailable, "LOADING")
}

// If the way to Redis is broken, Redis is unavailable; if Redis does not answer, the call
// ends within seconds.
func TestTheWayToRedisMayFail(t *testing.T) {
	t.Parallel()
	server := testenv.NewRedisServer(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	must(t, err)
	t.Cleanup(func() { mute.Close() }) //nolint:errcheck // it only listens
	chatter := serve(t, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>")
	hangsUp := serve(t, "")
	host := func(addr string) func(*url.URL) { return func(u *url.URL) { u.Host = addr } }

	for name, tt := range map[string]struct {
		change func(*url.URL)
		kind   fault.Kind
		said   string
	}{
		"nobody listens":   {host("127.0.0.1:1"), fault.Unavailable, "connection refused"},
		"no such name":     {host("redis.invalid:6379"), fault.Unavailable, "the name redis.invalid is not found"},
		"silence":          {host(mute.Addr().String()), fault.Unavailable, "no answer before the timeout"},
		"hangs up":         {host(hangsUp), fault.Unavailable, "connection broken"},
		"no Redis":         {host(chatter), fault.WrongAnswer, "not an answer of Redis"},
		"no TLS":           {func(u *url.URL) { u.Scheme = "rediss" }, fault.Unavailable, "no answer before the timeout"},
		"no password":      {func(u *url.URL) { u.User = nil }, fault.Denied, "NOAUTH"},
		"a wrong one":      {func(u *url.URL) { u.User = url.UserPassword("", "guessed") }, fault.Denied, "WRONGPASS"},
		"no such database": {func(u *url.URL) { u.Path = "/4711" }, fault.Missing, "ERR DB index"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s, err := progress.Connect(t.Context(), at(t, server.URL, tt.change), "farol")
			if err == nil {
				must(t, s.Close())
			}
			blamed(t, "Connect", err, tt.kind, tt.said)
			if took := time.Since(began); took > testenv.AtOnce {
				t.Errorf("it took %v", took)
			}
			if err != nil && strings.Contains(err.Error(), "guessed") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// serve is a server that says one thing, whatever it is asked, and hangs up.
func serve(t *testing.T, says string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // it only listens
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(says))
				c.Close() //nolint:errcheck // the client sees it
			}()
		}
	}()
	return l.Addr().String()
}

// A Redis that stalls under load is left after seconds, and a caller that gives up
// earlier blames nobody.
func TestAStalledRedisIsDistinguishedFromACallerWithoutTime(t *testing.T) {
	t.Parallel()
	server := testenv.NewRedisServer(t)
	proxy := testenv.NewProxy(t, server.Addr())
	s := connect(t, at(t, server.URL, func(u *url.URL) { u.Host = proxy.Addr() }))
	proxy.Delay(time.Hour)

	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Begin(impatient, claim(1), stage); !errors.Is(err, context.DeadlineExceeded) || fault.In(err) != nil {
		t.Errorf("Begin of a caller without time = %v, blames %v", err, fault.In(err))
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Probe(stopped); fault.In(err) != nil {
		t.Errorf("Probe of a caller that was stopped = %v, blames %v", err, fault.In(err))
	}
	blamed(t, "Probe", s.Probe(t.Context()), fault.Unavailable, "no answer before the timeout")
	proxy.Resume()
	testenv.Eventually(t, "a probe succeeds", func() bool { return s.Probe(t.Context()) == nil })
}

// After a failover the connections to the old primary, which is a replica now, are
// left, and the name is asked again: it leads to the new one.
func TestAFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	first, second := testenv.NewRedisServer(t), testenv.NewRedisServer(t)
	password := func(u *url.URL) string { p, _ := u.User.Password(); return p }
	u, err := url.Parse(first.URL)
	must(t, err)
	second.Set("requirepass", password(u))
	must(t, second.Client.Close()) // it knows the old password
	proxy := testenv.NewProxy(t, first.Addr())
	s := connect(t, at(t, first.URL, func(u *url.URL) { u.Host = proxy.Addr() }))
	direct := connect(t, at(t, first.URL, func(u *url.URL) { u.Host = second.Addr() }))

	// Several connections are open, and all of them lead to the old primary.
	group := make(chan error, 8)
	for i := range cap(group) {
		go func() {
			group <- s.Done(t.Context(), progress.Claim{Item: int64(100 + i), Token: 1}, stage, map[int]string{1: "a"})
		}()
	}
	for range cap(group) {
		must(t, <-group)
	}
	proxy.MoveTo(second.Addr())
	must(t, first.Client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	failed := 0
	for range 5 {
		for name, err := range map[string]error{
			"Remove": s.Remove(t.Context(), []string{"farol:{1}:a"}),
			"Done":   s.Done(t.Context(), claim(1), stage, map[int]string{1: "a"}),
		} {
			if err != nil {
				blamed(t, name, err, fault.ReadOnly, "READONLY")
				failed++
			}
		}
	}
	if failed > 1 {
		t.Errorf("%d calls failed until all connections to the old primary were left, want 1", failed)
	}
	must(t, s.Probe(t.Context()))
	equal(t, "in the new primary", map[int]string{1: "a"}, begin(t, direct, 1))
}

// The key of a probe is nobody's, and not to be found.
func TestAProbeLeavesNothingThatCounts(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	must(t, s.Probe(t.Context()))
	for page, err := range s.Keys(t.Context()) {
		t.Errorf("Keys = %v, %v", page, err)
	}
	names, err := client.Keys(t.Context(), "*").Result()
	must(t, err)
	equal(t, "keys", []string{"farol:probe"}, names)
	if left := client.TTL(t.Context(), names[0]).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the key lives for %v", left)
	}
}
