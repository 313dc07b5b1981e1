package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/nsqcompat"
)

// Mirror is what the NSQ mirror of this process did and found. A standby has no topics.
type Mirror struct{ Of *nsqcompat.Mirror }

// mirrorDescs are of each topic, in the order of mirrorValues.
func mirrorDescs() (leads, published, failures *prometheus.Desc, topics []*prometheus.Desc) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	topic := func(name, help string) *prometheus.Desc { return desc(name, help, "topic") }
	return desc("farol_mirror_leads", "Whether this process is the active mirror; 0 on a standby."),
		desc("farol_mirror_published_total", "Messages that this mirror published to NSQ."),
		desc("farol_mirror_failures_total", "Publish attempts that failed and were retried."),
		[]*prometheus.Desc{
			topic("farol_mirror_drift", "Difference between the messages in nsqd and in the database, confirmed by two checks in a row."),
			topic("farol_mirror_claimable", "Due items according to the registry."),
			topic("farol_mirror_depth", "Messages in nsqd that are queued."),
			topic("farol_mirror_running", "Running items according to the registry."),
			topic("farol_mirror_in_flight", "Messages in nsqd that are in flight."),
		}
}

func mirrorValues(t nsqcompat.TopicFigures) []int64 {
	return []int64{t.Drift, t.Claimable, t.Depth, t.Running, t.InFlight}
}

// Describe is of prometheus.Collector.
func (Mirror) Describe(ch chan<- *prometheus.Desc) {
	leads, published, failures, topics := mirrorDescs()
	for _, d := range append(topics, leads, published, failures) {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (f Mirror) Collect(ch chan<- prometheus.Metric) {
	leads, published, failures, topics := mirrorDescs()
	s := f.Of.Stats()
	ch <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, map[bool]float64{true: 1}[s.Leads])
	ch <- prometheus.MustNewConstMetric(published, prometheus.CounterValue, float64(s.Published))
	ch <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(s.Failures))
	for _, t := range f.Of.Figures() {
		for i, v := range mirrorValues(t) {
			ch <- prometheus.MustNewConstMetric(topics[i], prometheus.GaugeValue, float64(v), t.Topic)
		}
	}
}
