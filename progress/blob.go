package progress

import (
	"context"
	"fmt"
	"iter"
)

const putLua = `
if ARGV[4] == '' then
	redis.call('HDEL', KEYS[3], ARGV[3])
else
	redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
	redis.call('SADD', KEYS[2], KEYS[3])
end
return keep()`

// Put keeps a small blob under a name of the stage's own, such as the id of a
// multipart upload under the index of its file. An empty value forgets it.
func (s *Store) Put(ctx context.Context, c Claim, stage, name, value string) error {
	if err := s.write(ctx, c, s.put, s.blobKey(c.Item, stage), name, value); err != nil {
		return fmt.Errorf("put %s of %s of item %d: %w", name, stage, c.Item, err)
	}
	return nil
}

// Get returns the blob of a name, empty if there is none.
func (s *Store) Get(ctx context.Context, item int64, stage, name string) (string, error) {
	return ask(ctx, s, func(ctx context.Context) answer[string] { return s.client.HGet(ctx, s.blobKey(item, stage), name) },
		"get %s of %s of item %d", name, stage, item)
}

// Blobs returns all blobs of a stage by name, for who has to undo them.
func (s *Store) Blobs(ctx context.Context, item int64, stage string) (map[string]string, error) {
	return ask(ctx, s, func(ctx context.Context) answer[map[string]string] {
		return s.client.HGetAll(ctx, s.blobKey(item, stage))
	},
		"get the blobs of %s of item %d", stage, item)
}

const appendLua = `
for first = 3, #ARGV, 1000 do
	redis.call('RPUSH', KEYS[3], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if #ARGV > 2 then
	redis.call('SADD', KEYS[2], KEYS[3])
end
return keep()`

// Append adds entries to the end of a log of the stage, such as its
// checkpoints. If the reply is lost they may be there twice, in a row.
func (s *Store) Append(ctx context.Context, c Claim, stage, log string, entries ...string) error {
	args := make([]any, len(entries))
	for i, entry := range entries {
		args[i] = entry
	}
	if err := s.write(ctx, c, s.appendTo, s.logKey(c.Item, stage, log), args...); err != nil {
		return fmt.Errorf("append to %s of %s of item %d: %w", log, stage, c.Item, err)
	}
	return nil
}

// Entries returns a log from its beginning; it is empty if there is none.
func (s *Store) Entries(ctx context.Context, item int64, stage, log string) ([]string, error) {
	var entries []string
	for some, err := range s.Log(ctx, item, stage, log, page) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, some...)
	}
	return entries, nil
}

// Log walks a log from its beginning, so many entries at a time. It ends at the first
// error, which comes without entries.
func (s *Store) Log(ctx context.Context, item int64, stage, log string, atOnce int) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		key := s.logKey(item, stage, log)
		for from := int64(0); ; from += int64(atOnce) {
			some, err := ask(ctx, s, func(ctx context.Context) answer[[]string] {
				return s.client.LRange(ctx, key, from, from+int64(atOnce)-1)
			},
				"read %s of %s of item %d", log, stage, item)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(some) > 0 && !yield(some, nil) || len(some) < atOnce {
				return
			}
		}
	}
}
