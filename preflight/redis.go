package preflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/progress"
)

func (s Surroundings) checkRedis(ctx context.Context) []Finding {
	options, err := progress.ParseURL(string(s.Redis.URL))
	if err != nil { // the settings have been read, and what the parser says may hold a password
		return []Finding{redisFailed(errors.New("FAROL_REDIS_URL cannot be read"))}
	}
	options.ContextTimeoutEnabled, options.MaxRetries, options.DialerRetries, options.PoolSize = true, -1, 1, 1
	client := redis.NewUniversalClient(options)
	defer client.Close() //nolint:errcheck // nothing is under way on it
	if err := client.Ping(ctx).Err(); err != nil {
		return []Finding{redisFailed(err)}
	}
	info, err := redisInfo(ctx, client)
	list := []Finding{s.redisAnswers(ctx, client, strings.Join(options.Addrs, ", "), info)}
	if err != nil {
		return append(list, warn(fault.Redis, "settings", "it does not show INFO: "+err.Error(),
			"check by hand that it has appendonly yes and maxmemory-policy noeviction, or allow INFO to the user in FAROL_REDIS_URL"))
	}
	return append(list, redisPersists(info), redisKeeps(info))
}

func redisFailed(err error) Finding {
	return failed(fault.Redis, err, func(err error) (fault.Kind, bool) {
		var said redis.Error
		if errors.As(err, &said) {
			return fault.OfRedis(said.Error()), true
		}
		return "", false
	}, "check that Redis runs and that FAROL_REDIS_URL is its address", map[fault.Kind]string{
		fault.Denied:   "correct the user and the password in FAROL_REDIS_URL, or allow the user to read, write and run scripts (ACL)",
		fault.Full:     "raise maxmemory of the Redis in FAROL_REDIS_URL, or remove the keys of other programs",
		fault.ReadOnly: "set FAROL_REDIS_URL to the primary; if it is the primary, its log says why it refuses writes",
	})
}

// redisAnswers sees that Redis accepts writes: by writing, if we may, or by what it
// says of itself.
func (s Surroundings) redisAnswers(ctx context.Context, client redis.UniversalClient, addr string, info map[string]string) Finding {
	if s.Starting || s.Write != WriteNothing {
		const lua = `redis.call('SET', KEYS[1], '1', 'EX', 10) return redis.call('DEL', KEYS[1])`
		if err := client.Eval(ctx, lua, []string{progress.Prefix + ":check:" + rand.Text()}).Err(); err != nil {
			return redisFailed(err)
		}
		return good(fault.Redis, "answers", "Redis at "+addr+" accepts writes")
	}
	if info["role"] == "slave" && info["slave_read_only"] != "0" {
		return redisFailed(&fault.Error{Service: fault.Redis, Kind: fault.ReadOnly, Err: errors.New("it is a read-only replica")})
	}
	return good(fault.Redis, "answers", "Redis at "+addr+" answers")
}

func redisPersists(info map[string]string) Finding {
	if info["aof_enabled"] == "1" {
		return good(fault.Redis, "persistence", "appendonly is on")
	}
	return warn(fault.Redis, "persistence", "appendonly is off: after a restart of Redis, stages in progress begin again",
		"set appendonly yes in the Redis that FAROL_REDIS_URL names")
}

// redisKeeps sees that Redis throws nothing away. What it evicted would be done again,
// so that nothing is lost but time.
func redisKeeps(info map[string]string) Finding {
	policy := info["maxmemory_policy"]
	limit := "no maxmemory"
	if m := info["maxmemory_human"]; m != "" && info["maxmemory"] != "0" {
		limit = "maxmemory " + m
	}
	if policy != "noeviction" && policy != "" {
		return warn(fault.Redis, "eviction", fmt.Sprintf("maxmemory-policy is %s (%s): progress may be evicted, and is then repeated", policy, limit),
			"set maxmemory-policy noeviction in the Redis that FAROL_REDIS_URL names")
	}
	return good(fault.Redis, "eviction", "noeviction, "+limit)
}

// redisInfo is INFO, by name. Hosted services refuse CONFIG GET, but not this.
func redisInfo(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	text, err := client.Info(ctx, "persistence", "memory", "replication").Result()
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}
