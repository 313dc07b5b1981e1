package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// failoverExperiments have a replica take the place of Redis or of PostgreSQL. Every
// process goes by an address that leads to the new one some seconds later, as the
// name of a hosted service does.
func failoverExperiments() []experiment {
	return []experiment{
		trial("redis-failover", "Redis is lost, its replica is promoted, and the address leads there 5 s later", allDo, 0.1,
			redisFailover),
		trial("redis-switchover", "the replica of Redis is promoted, and the address leads to the old one, now read-only, for 10 s more", allDo, 0.1,
			redisSwitchover),
		trial("pg-failover", "PostgreSQL is lost, its synchronous standby is promoted, and the address leads there 10 s later", allDo, 0.1,
			postgresFailover),
	}
}

// another starts one more server of a kind, which ends with the site.
func (s *site) another(ctx context.Context, service devstack.Service, o devstack.Options) (*devstack.Stack, error) {
	o.Dir, o.Executable, o.Only = filepath.Join(s.Dir, "replica"), s.Binary+"-dev", []devstack.Service{service}
	stack, err := devstack.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start the replica: %w", err)
	}
	s.after = append(s.after, func(ctx context.Context) error {
		return errors.Join(stack.Stop(ctx), stack.Remove(ctx))
	})
	return stack, nil
}

// replica starts a replica of Redis and waits until it has everything.
func (s *site) replica(ctx context.Context) (*redis.Client, error) {
	stack, err := s.another(ctx, devstack.Redis, devstack.Options{})
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(stack.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("read the replica's address: %w", err)
	}
	replica := redis.NewClient(options)
	s.after = append(s.after, func(context.Context) error { return replica.Close() })
	// It takes the primary's password, since that is what the workers have.
	primary := s.Redis.Options()
	err = replica.ConfigSet(ctx, "requirepass", primary.Password).Err()
	if err = errors.Join(err, follow(ctx, replica, primary.Addr, primary.Password)); err != nil {
		return nil, err
	}
	return replica, s.await(ctx, "the replica of Redis to have everything", func() bool {
		info, err := replica.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// follow makes a Redis a replica of the one at an address.
func follow(ctx context.Context, replica *redis.Client, addr, password string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("read the primary's address: %w", err)
	}
	err = errors.Join(replica.ConfigSet(ctx, "masterauth", password).Err(), replica.ReplicaOf(ctx, host, port).Err())
	if err != nil {
		return fmt.Errorf("make a replica: %w", err)
	}
	return nil
}

func promote(ctx context.Context, replica *redis.Client) error {
	if err := replica.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote a replica: %w", err)
	}
	return nil
}

func redisFailover(ctx context.Context, s *site) error {
	replica, err := s.replica(ctx)
	if err != nil {
		return err
	}
	return hold(5*time.Second, refused(all, toRedis), once("promote", func(ctx context.Context, s *site) error {
		if err := promote(ctx, replica); err != nil {
			return err
		}
		s.lead(toRedis, replica.Options().Addr)
		return nil
	}, nil))(ctx, s)
}

func redisSwitchover(ctx context.Context, s *site) error {
	replica, err := s.replica(ctx)
	if err != nil {
		return err
	}
	s.after = append(s.after, func(ctx context.Context) error { return promote(ctx, s.Redis) })
	return hold(10*time.Second, once("change places", func(ctx context.Context, s *site) error {
		if err := promote(ctx, replica); err != nil {
			return err
		}
		return follow(ctx, s.Redis, replica.Options().Addr, s.Redis.Options().Password)
	}, func(_ context.Context, s *site) error {
		s.lead(toRedis, replica.Options().Addr)
		return nil
	}))(ctx, s)
}

// postgresFailover loses nothing that was committed, since the standby is
// synchronous.
func postgresFailover(ctx context.Context, s *site) error {
	standby, err := s.another(ctx, devstack.Postgres, devstack.Options{StandbyOf: s.AdminURL, PostgresSettings: []string{"fsync=off", "jit=off"}})
	if err != nil {
		return err
	}
	s.after = append(s.after, func(ctx context.Context) error {
		return errors.Join(s.Admin(ctx, `ALTER SYSTEM RESET synchronous_standby_names`), s.Admin(ctx, `SELECT pg_reload_conf()`))
	})
	if err := errors.Join(s.Admin(ctx, `ALTER SYSTEM SET synchronous_standby_names = '*'`), s.Admin(ctx, `SELECT pg_reload_conf()`)); err != nil {
		return err
	}
	err = s.await(ctx, "the standby to be synchronous", func() bool {
		var n int
		err := s.DB.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`).Scan(&n)
		return err == nil && n == 1
	})
	if err != nil {
		return err
	}
	return hold(10*time.Second, refused(all, toPostgres), once("promote", func(ctx context.Context, s *site) error {
		if err := s.LookAt(ctx, standby.AdminURL, ""); err != nil { // we too look at the new primary
			return err //nolint:wrapcheck // it says what it could not do
		}
		if err := s.Exec(ctx, `SELECT pg_promote()`); err != nil {
			return err
		}
		s.lead(toPostgres, hostOf(standby.AdminURL))
		return nil
	}, nil))(ctx, s)
}

// lead has later connections of every process go to another server.
func (s *site) lead(way func(*process) *injure.Proxy, server string) {
	for _, p := range s.everyone() {
		way(p).MoveTo(server)
	}
}

// await waits for a condition, for half a minute at most.
func (s *site) await(ctx context.Context, what string, is func() bool) error {
	done, err := poll(ctx, 30*time.Second, func() (bool, error) { return is(), nil })
	if err == nil && !done {
		err = fmt.Errorf("timeout while waiting for %s", what)
	}
	return err
}
