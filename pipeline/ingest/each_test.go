package ingest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/claim"
)

// Progress that Redis would not keep costs time after a crash, and no work that
// is done; the loss of the claim ends it.
func TestSaverEndsWithAllResults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ save, want error }{
		"kept":      {nil, nil},
		"not kept":  {errors.New("Redis is away"), nil},
		"lost":      {claim.ErrLost, claim.ErrLost},
		"lost, why": {fmt.Errorf("progress: %w", claim.ErrLost), claim.ErrLost},
	} {
		var mu sync.Mutex
		saved := map[int]string{}
		all := map[int]string{}
		s := newSaver(all, func(batch map[int]string) error {
			mu.Lock()
			defer mu.Unlock()
			for i, result := range batch {
				saved[i] = result
			}
			return tc.save
		})
		for i := range 100 {
			s.add(i, fmt.Sprint(i))
		}
		err := s.close(true)
		if !errors.Is(err, tc.want) || len(all) != 100 || len(saved) != 100 || all[42] != "42" {
			t.Errorf("%s: %d results, %d saved, %v; want %v", name, len(all), len(saved), err, tc.want)
		}
	}
}

// Results are saved every now and then. Those of a stage that is soon done are not.
func TestSaverSavesNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var saved []int
		s := newSaver(map[int]string{}, func(batch map[int]string) error {
			saved = append(saved, len(batch))
			return nil
		})
		for i := range 30 {
			if i == 20 {
				<-time.NewTimer(saveEvery + 1).C
			}
			s.add(i, "")
		}
		if err := s.close(false); err != nil || !slices.Equal(saved, []int{20}) {
			t.Errorf("%v were saved, %v; want the first 20, at once", saved, err)
		}
	})
}
