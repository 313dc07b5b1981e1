package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// A job goes on after the database's clock was set back, and so does one whose
// process died: neither rests for longer than its interval or a lease.
func TestJobsGoOnAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"it ended": false, "its process died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.exec(`UPDATE schedules SET every = '1 minute'`)
			run := a.begin("one", false, true)
			a.exec(`UPDATE schedules SET every = '1 minute'`)
			if !dies {
				a.endRun(run, "", "")
			}
			testenv.SetClock(t, a.db, -time.Hour-7*time.Millisecond)
			if wait, ok, err := upkeep.In(a.Registry).DueIn(context.Background(), someJob, ""); err != nil || !ok || wait > 2*time.Minute {
				t.Errorf("it is due in %v, %v, %v", wait, ok, err)
			}
			a.exec(`SELECT clamp_times()`)
			if s := a.schedule(); s.NextRunAt.After(time.Now().Add(time.Minute)) {
				t.Errorf("the schedule is %+v", s)
			}
		})
	}
}
