package monitor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
)

// Work counts what a worker process did since it started, in the words of the SQL
// views and of the ledger.
type Work struct {
	Ends

	Registry *prometheus.Registry

	ended   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	bytes   *prometheus.CounterVec
	claims  prometheus.Histogram
	claimed prometheus.Counter
	settles prometheus.Histogram

	lost   *prometheus.CounterVec
	Fixity Fixity
}

// NewWork has counters for all stages.
func NewWork() *Work {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	latency := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)})
	}
	m := &Work{
		Ends:     NewEnds(),
		Registry: prometheus.NewRegistry(),
		ended:    counter("farol_stage_outcomes_total", "Stage runs that ended, by outcome code; done means success.", "stage", "code"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "farol_stage_seconds", Help: "Duration of stage runs.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}, []string{"stage"}),
		bytes:   counter("farol_stage_bytes_total", "Bytes of the items whose stage succeeded.", "stage"),
		claims:  latency("farol_claim_seconds", "Duration of claim queries."),
		claimed: prometheus.NewCounter(prometheus.CounterOpts{Name: "farol_claimed_items_total", Help: "Items that this process claimed, without those that it carried on to their next stage."}),
		settles: latency("farol_settle_seconds", "Time from the end of a stage until its outcome is recorded."),
		lost:    counter("farol_leases_lost_total", "Leases that this process lost.", "stage"),
	}
	for _, stage := range settings.StepNames() { // what has not happened is 0, and an alarm sees the first time
		m.lost.WithLabelValues(stage)
	}
	m.Fixity = newFixity(m.Registry)
	m.Registry.MustRegister(m.ended, m.took, m.bytes, m.claims, m.claimed, m.settles, m.lost)
	m.Registry.MustRegister(m.Collectors()...)
	return m
}

// Observe counts a stage that ended.
func (m *Work) Observe(o pipeline.Outcome) {
	code := o.Code
	if code == "" {
		code = "done"
		m.bytes.WithLabelValues(o.Stage).Add(float64(o.Bytes))
	}
	m.ended.WithLabelValues(o.Stage, code).Inc()
	m.took.WithLabelValues(o.Stage).Observe(o.Took.Seconds())
}

// Claimed is of claim.Observer.
func (m *Work) Claimed(took time.Duration, items int) {
	m.claims.Observe(took.Seconds())
	m.claimed.Add(float64(items))
}

// Settled is of claim.Observer.
func (m *Work) Settled(took time.Duration, _ int) { m.settles.Observe(took.Seconds()) }

// Lost is of claim.Observer.
func (m *Work) Lost(stage string) { m.lost.WithLabelValues(stage).Inc() }

// Leases are those that an engine holds.
type Leases struct{ Engine *claim.Engine }

func heldDesc() *prometheus.Desc {
	return prometheus.NewDesc("farol_leases_held", "Leases that this process holds.", []string{"stage"}, nil)
}

// Describe implements [prometheus.Collector].
func (h Leases) Describe(ch chan<- *prometheus.Desc) { ch <- heldDesc() }

// Collect implements [prometheus.Collector].
func (h Leases) Collect(ch chan<- prometheus.Metric) {
	held := h.Engine.Held()
	for _, stage := range settings.StepNames() {
		ch <- prometheus.MustNewConstMetric(heldDesc(), prometheus.GaugeValue, float64(held[stage]), stage)
	}
}

// Services are those that the work of this process needs, as it sees them.
type Services struct{ Runner *pipeline.Runner }

func serviceDesc() *prometheus.Desc {
	return prometheus.NewDesc("farol_service_ok", "Whether this process claims work that needs the service.", []string{"service"}, nil)
}

// Describe implements [prometheus.Collector].
func (s Services) Describe(ch chan<- *prometheus.Desc) { ch <- serviceDesc() }

// Collect implements [prometheus.Collector].
func (s Services) Collect(ch chan<- prometheus.Metric) {
	views, _ := s.Runner.Services()
	for _, v := range views {
		ch <- prometheus.MustNewConstMetric(serviceDesc(), prometheus.GaugeValue, map[bool]float64{true: 1}[v.OK], v.Service)
	}
}

// Stores counts what the stores' missing abilities cost this process. Detours returns the bytes
// that were read a second time to be hashed, and the requests more.
type Stores struct {
	Detours func() (bytes, requests int64)
}

func storeDescs() (bytes, requests *prometheus.Desc) {
	return prometheus.NewDesc("farol_storage_read_back_bytes_total", "Bytes that were read back to be hashed, since their store proves nothing of them.", nil, nil),
		prometheus.NewDesc("farol_storage_detours_total", "Requests that a store with all abilities would not have needed.", nil, nil)
}

// Describe implements [prometheus.Collector].
func (s Stores) Describe(ch chan<- *prometheus.Desc) {
	bytes, requests := storeDescs()
	ch <- bytes
	ch <- requests
}

// Collect implements [prometheus.Collector].
func (s Stores) Collect(ch chan<- prometheus.Metric) {
	bytes, requests := storeDescs()
	n, m := s.Detours()
	ch <- prometheus.MustNewConstMetric(bytes, prometheus.CounterValue, float64(n))
	ch <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(m))
}
