package rounds

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim/batch"
)

// Rounds go back to the one before, and now and then a round is full, unless that takes
// long. After a rest the first one is.
func TestReaperGoesBackToTheRoundBefore(t *testing.T) {
	t.Parallel()
	var r Rounds
	now := time.Now()
	if got := r.Since(now, time.Time{}); got != fullRound {
		t.Errorf("the first round goes back %v, want a full one", got)
	}
	r.Ended(now, fullRound, true)
	full := 0
	for round := range 32 {
		at := now.Add(time.Duration(round+1) * 5 * time.Second)
		switch got := r.Since(at, time.Time{}); got {
		case fullRound:
			full++
			r.Ended(at, got, true)
		case 5*time.Second + batch.Timeout:
			r.Ended(at, got, true)
		default:
			t.Errorf("round %d goes back %v", round, got)
		}
	}
	if full != 2 {
		t.Errorf("%d of 32 rounds were full, want 2", full)
	}
	at := now.Add(time.Hour)
	r.Since(at, time.Time{})
	r.Ended(at, time.Second, false) // what it did not get to is left for the next
	if got, want := r.Since(at.Add(time.Second), time.Time{}), time.Hour+time.Second-32*5*time.Second+batch.Timeout; got != want {
		t.Errorf("after a round that failed, the next goes back %v, want %v", got, want)
	}
	r.takes = 0
	r.Ended(time.Now().Add(-time.Minute), fullRound, true)
	if r.takes > fullLeast {
		t.Errorf("after a full round that waited for a minute, another is thought to take %v", r.takes)
	}
	r.takes = time.Hour
	for range 64 {
		if got := r.Since(at.Add(time.Second), time.Time{}); got == fullRound {
			t.Fatal("a round that takes an hour is repeated after minutes")
		}
	}
	if got := r.Since(at.Add(time.Second), at); got != fullRound {
		t.Errorf("the first round after a rest goes back %v, want a full one", got)
	}
}
