package fixity

import (
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/fixity"
)

// What is asked for twice is checked once: the second is answered with what the first
// has found, unless that was bad, or it is asked for again on purpose.
func TestFileJustCheckedIsNotCheckedTwice(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Stored(map[string]string{"0": "zero", "1": "one"})
	const good, bad = "test.edu/bag/data/0", "test.edu/bag/data/1"
	a.Flip("Standard-VA", bad, 1)
	ask := func(file string, again bool, copies, recent int64) {
		t.Helper()
		list, err := fixity.In(a.Deps.Registry).Request(t.Context(), file, "Standard-VA", again)
		if err != nil || len(list) != 1 || list[0].Copies != copies || list[0].Recent != recent {
			t.Errorf("asked for %s: %+v, %v; want %d copies to be checked and %d that were", file, list, err, copies, recent)
		}
	}
	checked := func(file string, want int) {
		t.Helper()
		stop := a.running(a.checker())
		testenv.Eventually(t, "all that was asked for", func() bool { return pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) == 0 })
		stop()
		if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
			WHERE e.event_type = 'fixity check' AND e.outcome_information LIKE '% at %' AND f.identifier = $1`, file); n != want {
			t.Errorf("%d events of checks of %s, want %d", n, file, want)
		}
	}
	ask(good, false, 1, 0)
	ask(good, false, 1, 0) // both before it is checked: once
	checked(good, 1)
	ask(good, false, 0, 1)
	checked(good, 1)
	ask(good, true, 1, 0)
	checked(good, 2)
	ask(bad, false, 1, 0)
	checked(bad, 1)
	ask(bad, false, 1, 0)
	checked(bad, 2)
	a.Exec(`UPDATE storage_records SET last_fixity_at = last_fixity_at - interval '61 seconds'`)
	ask(good, false, 1, 0)
	checked(good, 3)
}
