package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/pipeline/upkeep"
)

// Arrivals counts the S3 events that this process received.
type Arrivals struct {
	results *prometheus.CounterVec
	last    prometheus.Gauge
}

// NewArrivals has a counter for each result.
func NewArrivals(r *prometheus.Registry) Arrivals {
	a := Arrivals{
		results: counter(r, "farol_arrival_events_total", "S3 events that this process received, by result.", "result"),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "farol_arrival_last_event_timestamp_seconds", Help: "When this process received the last S3 event that led to a scan; 0 if it has received none.",
		}),
	}
	r.MustRegister(a.last)
	for _, result := range []string{upkeep.EventScanned, upkeep.EventFailed, upkeep.EventIgnored, upkeep.EventMalformed} {
		a.results.WithLabelValues(result) // an alarm sees the first time
	}
	return a
}

// Observe counts events of one result.
func (a Arrivals) Observe(result string, events int) {
	a.results.WithLabelValues(result).Add(float64(events))
	if result == upkeep.EventScanned {
		a.last.SetToCurrentTime()
	}
}
