// Package progress keeps in Redis what the stages have finished of an item,
// file by file, so that the next attempt begins where the last one died. What comes in
// are indexes of files with small results, blobs and logs, under a claim; what goes out
// is what an earlier attempt left.
//
// What is kept can be lost: a Redis that was emptied looks as if nothing had
// been done yet, and the stages, which are safe to repeat, find out or do it
// again. Files are known by their index in the item's inventory, to keep a
// file's share below 250 bytes.
//
// Every write names the claim it is made under. The newest token that was seen
// is a fence: a write with an older one changes nothing and returns [ErrLost].
// Whatever is written ends by itself after 30 days without another write to
// the item.
package progress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// ErrLost means that someone with a newer token has written: the item was
// claimed again, and the caller should stop.
var ErrLost = errors.New("progress: the claim is lost")

const (
	// timeToLive is far beyond the week that a job may take, so that only what
	// nobody works on any more ends by it.
	timeToLive = 30 * 24 * time.Hour
	// callTimeout bounds one command with its retries. A Redis that forks or writes its
	// file may stall for a second or two; after readTimeout the command is retried once, on
	// another connection. A longer stall is an outage: the item goes back, which costs it no
	// attempt, and other items need not wait for it.
	callTimeout = 2*readTimeout + time.Second
	readTimeout = 3 * time.Second
	// probeTimeout bounds a probe.
	probeTimeout = 5 * time.Second
	// page is how many files are read at a time: some hundred kilobytes.
	page = 5_000
)

// A Claim is what a worker has on an item: see package claim.
type Claim struct {
	Item  int64
	Token int64 // positive, and greater with each claim of the item
}

// A Store keeps progress in a Redis database. It may be used by many goroutines
// at once. Errors other than [ErrLost] are Redis's or the context's, wrapped,
// and worth another try. Those of Redis, and of the way to it, carry a
// [fault.Error]; those of a caller whose time is up carry none.
//
// A write whose reply is lost is repeated, by go-redis or by the caller, and
// changes nothing the second time, except that [Store.Append] may append twice.
type Store struct {
	client redis.UniversalClient
	prefix string
	lines  *lines

	begin, done, put, appendTo, keep, clearStage, clear *redis.Script
}

// New returns a Store whose keys begin with the prefix. The client's own
// timeouts, pool and retries apply; [Connect] sets them.
func New(client redis.UniversalClient, prefix string) *Store {
	client.AddHook(answered{})
	return &Store{
		client:     client,
		prefix:     prefix,
		lines:      &lines{}, // none that could be closed
		begin:      redis.NewScript(fenceLua + beginLua),
		done:       redis.NewScript(fenceLua + doneLua),
		put:        redis.NewScript(fenceLua + putLua),
		appendTo:   redis.NewScript(fenceLua + appendLua),
		keep:       redis.NewScript(fenceLua + noteLua),
		clearStage: redis.NewScript(fenceLua + clearStageLua),
		clear:      redis.NewScript(clearLua),
	}
}

// Prefix begins all keys of an installation. Tests use others.
const Prefix = "farol"

// Connect returns a Store on the Redis at a URL that [ParseURL] reads, after
// Redis has answered. It has 16 connections at most to each node, and tries a command four
// times; [Store.Close] is the caller's.
func Connect(ctx context.Context, url, prefix string, more ...Option) (*Store, error) {
	options, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	for _, o := range more {
		o(options)
	}
	logging.Disable() // what it would write by itself, its errors say
	options.ContextTimeoutEnabled = true
	options.DialTimeout = readTimeout
	options.ReadTimeout = readTimeout
	options.WriteTimeout = readTimeout
	options.MaxRetries = 3
	options.PoolSize = 16
	options.MaxActiveConns = 16
	l := &lines{dial: redis.NewDialer(options.Simple()), open: make(map[net.Conn]time.Time)}
	options.Dialer = l.connect
	client := redis.NewUniversalClient(options)
	s := New(client, prefix)
	s.lines = l
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("ping Redis at %s: %w", strings.Join(options.Addrs, ", "), s.explain(ctx, err)), client.Close())
	}
	return s, nil
}

// Close closes the client, and with it its connections.
func (s *Store) Close() error { return s.client.Close() }

// fenceLua begins every script that writes under a claim.
//
//	KEYS: token, the set of the item's other keys, the key to write to
//	ARGV: token, seconds to live, the write's own arguments
//
// Tokens are compared as decimals, since Lua's numbers end at 2^53. A missing
// one is the first, or that of a Redis that was emptied: the caller's stands.
// Every key of the item lives on together.
const fenceLua = `
local held, mine, ttl = redis.call('GET', KEYS[1]), ARGV[1], ARGV[2]
if held and (#held > #mine or (#held == #mine and held > mine)) then
	return 0
end
redis.call('SET', KEYS[1], mine, 'EX', ttl)
local function keep()
	for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
		redis.call('EXPIRE', key, ttl)
	end
	redis.call('EXPIRE', KEYS[2], ttl)
	return 1
end
`

// write runs a script that begins with fenceLua.
func (s *Store) write(ctx context.Context, c Claim, script *redis.Script, key string, args ...any) error {
	if c.Token <= 0 {
		return fmt.Errorf("token %d is not positive", c.Token)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	keys := []string{s.key(c.Item, "token"), s.key(c.Item, "keys"), key}
	fence := []any{c.Token, int64(timeToLive / time.Second)}
	kept, err := script.Run(ctx, s.client, keys, append(fence, args...)...).Int()
	if err != nil {
		return s.explain(ctx, err)
	}
	if kept == 0 {
		return ErrLost
	}
	return nil
}

// answer is a reply of Redis that is to come.
type answer[T any] interface{ Result() (T, error) }

// ask sends one command, in bounded time. An error of Redis begins with what was to be done;
// an answer of nothing is the zero value.
func ask[T any](ctx context.Context, s *Store, command func(context.Context) answer[T], what string, args ...any) (T, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	got, err := command(ctx).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return got, fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), s.explain(ctx, err))
	}
	return got, nil
}

// key names a part of an item. The braces keep an item in one slot of a
// cluster, which scripts need.
func (s *Store) key(item int64, parts ...string) string {
	return s.prefix + ":{" + strconv.FormatInt(item, 10) + "}:" + strings.Join(parts, ":")
}

func (s *Store) doneKey(item int64, stage string) string { return s.key(item, "done", stage) }

func (s *Store) blobKey(item int64, stage string) string { return s.key(item, "blob", stage) }

func (s *Store) logKey(item int64, stage, name string) string {
	return s.key(item, "log", stage, name)
}
