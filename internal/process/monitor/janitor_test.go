package monitor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func TestJanitorCountsWhatItRemoved(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	newJanitor(r).Observe(&upkeep.Report{Findings: []upkeep.Finding{
		{Store: "redis", What: "keys", Count: 2, Bytes: 100, Janitor: upkeep.Removed},
		{Store: "redis", What: "keys", Count: 5, Bytes: 500, Janitor: upkeep.Waits},
	}})
	want := map[string]float64{
		"farol_janitor_rounds_total done": 1, "farol_janitor_rounds_total incomplete": 0,
		"farol_janitor_removed_total redis keys": 2, "farol_janitor_removed_bytes_total redis keys": 100,
	}
	if diff := cmp.Diff(want, gathered(t, r)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
