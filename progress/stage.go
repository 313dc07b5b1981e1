package progress

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const beginLua = `return keep()`

// Begin makes the claim's token the newest, and returns what the stage has
// finished so far: the files' indexes in the inventory, with the result of
// each. After Begin no older claim can write, whatever its stage.
func (s *Store) Begin(ctx context.Context, c Claim, stage string) (map[int]string, error) {
	if err := s.write(ctx, c, s.begin, s.doneKey(c.Item, stage)); err != nil {
		return nil, fmt.Errorf("begin %s of item %d: %w", stage, c.Item, err)
	}
	return s.Results(ctx, c.Item, stage)
}

const doneLua = `
for first = 3, #ARGV, 1000 do
	redis.call('HSET', KEYS[3], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if #ARGV > 2 then
	redis.call('SADD', KEYS[2], KEYS[3])
end
return keep()`

// Done records that the stage has finished files, with a small result for each
// of them, in one round trip. All are recorded or none; a later result of a
// file replaces an earlier one.
func (s *Store) Done(ctx context.Context, c Claim, stage string, results map[int]string) error {
	args := make([]any, 0, 2*len(results))
	for index, result := range results {
		if index < 0 {
			return fmt.Errorf("record %s of item %d: file %d", stage, c.Item, index)
		}
		args = append(args, index, result)
	}
	if err := s.write(ctx, c, s.done, s.doneKey(c.Item, stage), args...); err != nil {
		return fmt.Errorf("record %d files of %s of item %d: %w", len(results), stage, c.Item, err)
	}
	return nil
}

// Results returns what Begin does, of any stage and without a claim. Of what
// is recorded in the meantime it may return some.
func (s *Store) Results(ctx context.Context, item int64, stage string) (map[int]string, error) {
	results := map[int]string{}
	for cursor := uint64(0); ; {
		fields, next, err := s.page(ctx, s.doneKey(item, stage), cursor)
		if err != nil {
			return nil, fmt.Errorf("read %s of item %d: %w", stage, item, err)
		}
		for i := 0; i+1 < len(fields); i += 2 {
			index, err := strconv.Atoi(fields[i])
			if err != nil {
				return nil, fmt.Errorf("read %s of item %d: %w", stage, item, err)
			}
			results[index] = fields[i+1]
		}
		if next == 0 {
			return results, nil
		}
		cursor = next
	}
}

// ResultsOf returns what Results does, of some files only: those with these indexes.
func (s *Store) ResultsOf(ctx context.Context, item int64, stage string, indexes []int) (map[int]string, error) {
	if len(indexes) == 0 {
		return nil, nil
	}
	fields := make([]string, len(indexes))
	for i, index := range indexes {
		fields[i] = strconv.Itoa(index)
	}
	values, err := ask(ctx, s, func(ctx context.Context) answer[[]any] { return s.client.HMGet(ctx, s.doneKey(item, stage), fields...) },
		"read %d files of %s of item %d", len(indexes), stage, item)
	if err != nil {
		return nil, err
	}
	results := map[int]string{}
	for i, value := range values {
		if text, ok := value.(string); ok {
			results[indexes[i]] = text
		}
	}
	return results, nil
}

func (s *Store) page(ctx context.Context, key string, cursor uint64) ([]string, uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	fields, next, err := s.client.HScan(ctx, key, cursor, "", page).Result()
	return fields, next, s.explain(ctx, err)
}

// Summary returns how many files each stage has finished; a stage that has
// finished none is not there.
func (s *Store) Summary(ctx context.Context, item int64) (map[string]int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	keys, err := s.client.SMembers(ctx, s.key(item, "keys")).Result()
	if err != nil {
		return nil, fmt.Errorf("list the stages of item %d: %w", item, s.explain(ctx, err))
	}
	counts := map[string]*redis.IntCmd{}
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			if stage, ok := strings.CutPrefix(key, s.doneKey(item, "")); ok {
				counts[stage] = p.HLen(ctx, key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the files of item %d: %w", item, s.explain(ctx, err))
	}
	summary := map[string]int64{}
	for stage, count := range counts {
		if n := count.Val(); n > 0 {
			summary[stage] = n
		}
	}
	return summary, nil
}

const clearStageLua = `
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
	if key == KEYS[3] or key == ARGV[3] or string.sub(key, 1, #ARGV[4]) == ARGV[4] then
		redis.call('UNLINK', key)
		redis.call('SREM', KEYS[2], key)
	end
end
return keep()`

// ClearStage forgets all that a stage has written: results, blobs and logs.
func (s *Store) ClearStage(ctx context.Context, c Claim, stage string) error {
	err := s.write(ctx, c, s.clearStage, s.doneKey(c.Item, stage),
		s.blobKey(c.Item, stage), s.logKey(c.Item, stage, ""))
	if err != nil {
		return fmt.Errorf("clear %s of item %d: %w", stage, c.Item, err)
	}
	return nil
}

const clearLua = `
for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do
	redis.call('UNLINK', key)
end
return redis.call('UNLINK', KEYS[1], KEYS[2])`

// Clear forgets everything about an item, the fence too, and is for items that
// have come to their end: nothing reads what a late writer may still leave, and
// that ends by itself.
func (s *Store) Clear(ctx context.Context, item int64) error {
	_, err := ask(ctx, s, func(ctx context.Context) answer[any] {
		return s.clear.Run(ctx, s.client, []string{s.key(item, "keys"), s.key(item, "token")})
	}, "clear item %d", item)
	return err
}
