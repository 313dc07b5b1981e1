package monitor

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/nsqcompat"
)

// NewMirror is what the NSQ mirror of this process did and found. A standby has no topics.
func NewMirror(of *nsqcompat.Mirror) prometheus.Collector {
	f := &figures{}
	leads := f.gauge("farol_mirror_leads", "Whether this process is the active mirror; 0 on a standby.")
	published := f.counter("farol_mirror_published_total", "Messages that this mirror published to NSQ.")
	failures := f.counter("farol_mirror_failures_total", "Publish attempts that failed and were retried.")
	drift := f.gauge("farol_mirror_drift", "Difference between the messages in nsqd and in the database, confirmed by two checks in a row.", "topic")
	claimable := f.gauge("farol_mirror_claimable", "Due items according to the registry.", "topic")
	depth := f.gauge("farol_mirror_depth", "Messages in nsqd that are queued.", "topic")
	running := f.gauge("farol_mirror_running", "Running items according to the registry.", "topic")
	inFlight := f.gauge("farol_mirror_in_flight", "Messages in nsqd that are in flight.", "topic")
	f.collect = func(_ context.Context, ch chan<- prometheus.Metric) {
		s := of.Stats()
		ch <- leads(yes(s.Leads))
		ch <- published(float64(s.Published))
		ch <- failures(float64(s.Failures))
		for _, t := range of.Figures() {
			ch <- drift(float64(t.Drift), t.Topic)
			ch <- claimable(float64(t.Claimable), t.Topic)
			ch <- depth(float64(t.Depth), t.Topic)
			ch <- running(float64(t.Running), t.Topic)
			ch <- inFlight(float64(t.InFlight), t.Topic)
		}
	}
	return f
}
