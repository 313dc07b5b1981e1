package progress_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
)

// All keys of the store are seen with their items, however many there are, and no
// others, whatever the prefix would mean as a pattern.
func TestKeysTellWhoseTheyAre(t *testing.T) {
	t.Parallel()
	client := testenv.Redis(t)
	s, other := progress.New(client, "fa[r]o*l"), progress.New(client, "farol")
	ctx := t.Context()
	const many = 1500
	for i := range many {
		must(t, s.Put(ctx, progress.Claim{Item: int64(i + 1), Token: 1}, stage, "a", "b"))
	}
	must(t, other.Put(ctx, progress.Claim{Item: 5000, Token: 1}, stage, "a", "b"))
	for _, stray := range []string{"fa[r]o*l:{x}:done", "fa[r]o*l:{07}:done", "fa[r]o*l:7:done", "fa[r]o*l:{-7}:done"} {
		must(t, client.Set(ctx, stray, "x", 0).Err())
	}
	items := map[int64]map[string]bool{}
	for page, err := range s.Keys(ctx) {
		must(t, err)
		for _, k := range page {
			if items[k.Item] == nil {
				items[k.Item] = map[string]bool{}
			}
			items[k.Item][k.Name] = true
		}
	}
	if len(items) != many+1 || len(items[0]) != 4 || len(items[7]) != 3 || len(items[many]) != 3 {
		t.Errorf("%d items, item 7 has %v, none has %v", len(items), items[7], items[0])
	}

	var names []string
	for name := range items[7] {
		names = append(names, name)
	}
	bytes, idle, err := s.Weigh(ctx, append(names, "fa[r]o*l:{9999}:gone"))
	if err != nil || bytes < 100 || bytes > 10_000 || idle < 0 || idle > time.Minute {
		t.Errorf("Weigh = %d, %v, %v", bytes, idle, err)
	}
	must(t, client.Expire(ctx, names[0], 10*24*time.Hour).Err())
	if _, idle, err := s.Weigh(ctx, names); err != nil || idle < 19*24*time.Hour || idle > 21*24*time.Hour {
		t.Errorf("written %v ago, %v; want 20 days", idle, err)
	}
	must(t, s.Remove(ctx, append(names, "gone")))
	left, err := client.Keys(ctx, "*{7}*").Result()
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if n, err := client.DBSize(ctx).Result(); err != nil || n != 3*(many-1)+3+4 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// An outage is no empty Redis.
func TestKeysDuringAnOutageAreAnError(t *testing.T) {
	t.Parallel()
	s, client := store(t)
	must(t, client.Close())
	n := 0
	for page, err := range s.Keys(t.Context()) {
		if n++; err == nil || len(page) > 0 {
			t.Errorf("Keys = %v, %v", page, err)
		}
	}
	_, _, weighErr := s.Weigh(t.Context(), []string{"a"})
	if removeErr := s.Remove(t.Context(), []string{"a"}); n != 1 || weighErr == nil || removeErr == nil || !strings.Contains(fmt.Sprint(weighErr), "Redis") {
		t.Errorf("%d pages; Weigh = %v, Remove = %v", n, weighErr, removeErr)
	}
}
