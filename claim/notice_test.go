package claim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// announcing is a store that notes what others are notified of.
type announcing struct {
	asStore
	announced chan string
}

func (s announcing) Announce(_ context.Context, notice string) error {
	s.announced <- notice
	return nil
}

// Other processes learn of all that one statement made claimable at once, and not
// of the rest a pause later.
func TestNoticeHasAllThatAStatementPut(t *testing.T) {
	t.Parallel()
	for range 200 { // the notice goes off while the items are put
		synctest.Test(t, func(t *testing.T) {
			store := newSimStore(&sim{epoch: time.Now(), given: map[[2]int64]bool{}})
			for i, item := range store.items {
				item.runAt, item.band = 0, 1
				if i < store.slots()/2 {
					item.band = 0
				}
			}
			notices := announcing{asStore{&simConn{store, 0}}, make(chan string, simItems)}
			e := engineOn(t, notices)
			ctx, stop := context.WithCancel(t.Context())
			go e.notices.announce(ctx)
			items := must.Get(e.Claim(t.Context(), Filter{Stages: []Want{{"A", store.slots()}}}, store.slots()))(t)
			slices.SortFunc(items, func(a, b Item) int { return int(a.Band - b.Band) })
			endings := make([]Ending, len(items))
			for i, item := range items {
				endings[i] = Ending{Item: item, Done: Done{Next: "B"}}
			}
			for _, err := range e.Settle(t.Context(), endings) {
				if err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			stop()
			if notice := <-notices.announced; !strings.Contains(notice, "\nB\t0\t") || !strings.Contains(notice, "\nB\t1\t") {
				t.Errorf("%d items of two size bands went on, the notice is %q", len(items), notice)
			}
			e.Close()
		})
	}
}
