package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/storage"
)

// Fixity counts the fixity checks of this process.
type Fixity struct {
	checks, bytes *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func newFixity(r *prometheus.Registry) Fixity {
	m := Fixity{
		checks:  counter(r, "farol_fixity_checks_total", "Fixity checks that this process completed, by result.", "target", "result"),
		bytes:   counter(r, "farol_fixity_bytes_total", "Bytes that fixity checks read.", "target"),
		seconds: histogram(r, "farol_fixity_seconds", "Duration of fixity checks.", 0.01, 4, 10, "target"),
	}
	for _, t := range storage.Targets() { // what has not happened is 0, and an alarm sees the first time
		for _, result := range []string{"matched", "altered", "missing", "retried"} {
			m.checks.WithLabelValues(t.Name, result)
		}
	}
	return m
}

// Observe counts a check.
func (m Fixity) Observe(o fixity.Outcome) {
	m.checks.WithLabelValues(o.Target, o.Result).Inc()
	m.bytes.WithLabelValues(o.Target).Add(float64(o.Bytes))
	m.seconds.WithLabelValues(o.Target).Observe(o.Took.Seconds())
}
