package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
)

// The first claim of a pass asks Redis nothing, which knows nothing of the pass, and deletes nothing
// if it has written nothing. Any other does both.
func TestFirstClaimOfAPassLeavesRedisAlone(t *testing.T) {
	t.Parallel()
	asked := 0
	client := redis.NewClient(&redis.Options{Limiter: limiter(func() error {
		asked++
		return errors.New("no")
	})})
	t.Cleanup(func() { client.Close() })
	store := progress.New(client, "test")
	for name, tc := range map[string]struct {
		token int64
		wrote bool
		asks  int
	}{
		"first": {5, false, 0}, "first, and wrote": {5, true, 1}, "second": {7, false, 2},
	} {
		w := &Work{Item: claim.Item{ID: 1, Token: tc.token, Entered: 4}, Progress: store, Log: slog.New(slog.DiscardHandler)}
		asked = 0
		if _, err := w.Finished(t.Context()); (err != nil) != (tc.token != 5) {
			t.Errorf("%s: %v", name, err)
		}
		if tc.wrote {
			w.Claim()
		}
		(&Runner{progress: store}).clear(context.Background(), w, false)
		if asked != tc.asks {
			t.Errorf("%s: Redis was asked %d times, want %d", name, asked, tc.asks)
		}
	}
}

// limiter refuses or allows each command.
type limiter func() error

func (l limiter) Allow() error     { return l() }
func (limiter) ReportResult(error) {}
