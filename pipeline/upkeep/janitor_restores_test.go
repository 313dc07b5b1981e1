package upkeep

import (
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// Uploads to a restoration bucket that no restoration under way can own are aborted once
// they are old; those of others, and of what is being restored, are not.
func TestForgottenUploadsOfRestorationsAreAborted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "live"})
	b := a.RestoreBucket()
	for _, key := range []string{"test.edu/gone.tar", "test.edu/gone/data/a.txt", "test.edu/live.tar", "somebody-elses"} {
		a.Upload(b, key)
	}
	a.Ask("test.edu/live")
	a.round()
	if open := a.Uploads(b); len(open) != 4 {
		t.Errorf("left %v: too young", open)
	}
	j := a.janitor()
	j.OrphanAge = time.Nanosecond
	testenv.Eventually(t, "the uploads to be old enough", func() bool {
		if report, err := j.Round(t.Context()); err != nil || len(report.Unchecked) > 0 {
			t.Fatalf("Round = %+v, %v", report, err)
		}
		open := a.Uploads(b)
		slices.Sort(open)
		return slices.Equal(open, []string{"somebody-elses", "test.edu/live.tar"})
	})
}
