package ingest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

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
		err := s.close()
		if !errors.Is(err, tc.want) || len(all) != 100 || len(saved) != 100 || all[42] != "42" {
			t.Errorf("%s: %d results, %d saved, %v; want %v", name, len(all), len(saved), err, tc.want)
		}
	}
}
