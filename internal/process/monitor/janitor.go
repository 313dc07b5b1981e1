package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/pipeline/upkeep"
)

// Janitor counts what the janitor of this process removed.
type Janitor struct{ rounds, removed, bytes *prometheus.CounterVec }

func newJanitor(r *prometheus.Registry) Janitor {
	m := Janitor{
		rounds:  counter(r, "farol_janitor_rounds_total", "Rounds of the janitor in this process, by result.", "result"),
		removed: counter(r, "farol_janitor_removed_total", "Objects and keys that the janitor removed.", "store", "what"),
		bytes:   counter(r, "farol_janitor_removed_bytes_total", "Bytes that the janitor removed, where the size is known.", "store", "what"),
	}
	m.rounds.WithLabelValues("done")
	m.rounds.WithLabelValues("incomplete")
	return m
}

// Observe counts a round.
func (m Janitor) Observe(report *upkeep.Report) {
	result := "done"
	if len(report.Unchecked) > 0 {
		result = "incomplete"
	}
	m.rounds.WithLabelValues(result).Inc()
	for _, f := range report.Findings {
		if f.Janitor == upkeep.Removed {
			m.removed.WithLabelValues(f.Store, f.What).Add(float64(f.Count))
			m.bytes.WithLabelValues(f.Store, f.What).Add(float64(f.Bytes))
		}
	}
}
