package progress

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Facts are what Redis says of itself, in its own words. A hosted service may keep
// some to itself: then they are "" or -1.
type Facts struct {
	Version    string
	Role       string // master, or slave
	AppendOnly string // yes or no: whether it survives its own restart with at most the last second missing
	Eviction   string // maxmemory-policy; any but noeviction loses progress when memory is full
	MaxMemory  int64  // bytes; 0: no limit
	UsedMemory int64  // bytes
}

// Facts asks Redis for what matters to who sets it up.
func (s *Store) Facts(ctx context.Context) (Facts, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	f := Facts{MaxMemory: -1, UsedMemory: -1}
	// not CONFIG GET, which hosted services refuse
	info, err := s.client.Info(ctx).Result()
	var refused redis.Error
	if errors.As(err, &refused) && (strings.HasPrefix(refused.Error(), "NOPERM ") || strings.HasPrefix(refused.Error(), "ERR unknown command")) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read the settings of Redis: %w", s.explain(ctx, err))
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			f.Version = value
		case "role":
			f.Role = value
		case "maxmemory_policy":
			f.Eviction = value
		case "maxmemory":
			f.MaxMemory = bytesOf(value)
		case "used_memory":
			f.UsedMemory = bytesOf(value)
		case "aof_enabled":
			f.AppendOnly = "no"
			if value == "1" {
				f.AppendOnly = "yes"
			}
		}
	}
	return f, nil
}

func bytesOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
