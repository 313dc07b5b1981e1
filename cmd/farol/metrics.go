package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
)

// workMetrics are a worker's figures for Prometheus: what this process has done
// since it started. They use the words of the SQL views and of the ledger.
type workMetrics struct {
	registry *prometheus.Registry

	ended   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	bytes   *prometheus.CounterVec
	claims  prometheus.Histogram
	claimed prometheus.Counter
	settles prometheus.Histogram

	attempts *prometheus.CounterVec
	retried  *prometheus.CounterVec
	failed   *prometheus.CounterVec
	lost     *prometheus.CounterVec
	fixity   fixityMetrics
}

func newWorkMetrics() *workMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	latency := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)})
	}
	m := &workMetrics{
		registry: prometheus.NewRegistry(),
		ended:    counter("farol_stage_outcomes_total", "Stages that ended, by outcome code; done if it is done.", "stage", "code"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "farol_stage_seconds", Help: "Time that stages took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}, []string{"stage"}),
		bytes:   counter("farol_stage_bytes_total", "Sizes of the items whose stage was done.", "stage"),
		claims:  latency("farol_claim_seconds", "Time from asking for items to the answer."),
		claimed: prometheus.NewCounter(prometheus.CounterOpts{Name: "farol_claimed_items_total", Help: "Items that were claimed."}),
		settles: latency("farol_settle_seconds", "Time from the end of a stage to its being on record."),
		attempts: counter("farol_attempts_total",
			"Attempts that this process ended, its own or those of workers that were gone, by outcome as in the ledger.", "stage", "outcome"),
		retried: counter("farol_succeeded_after_retries_total", "Stages that were done, but not at the first attempt.", "stage"),
		failed:  counter("farol_failed_completely_total", "Items that became Failed or Suspended at the stage.", "stage"),
		lost:    counter("farol_leases_lost_total", "Leases that this process held and lost.", "stage"),
	}
	for _, stage := range settings.StepNames() { // what has not happened is 0, and an alarm sees the first time
		m.retried.WithLabelValues(stage)
		m.failed.WithLabelValues(stage)
		m.lost.WithLabelValues(stage)
	}
	m.fixity = newFixityMetrics(m.registry)
	m.registry.MustRegister(m.ended, m.took, m.bytes, m.claims, m.claimed, m.settles, m.attempts, m.retried, m.failed, m.lost)
	return m
}

func (m *workMetrics) observe(o pipeline.Outcome) {
	code := o.Code
	if code == "" {
		code = "done"
		m.bytes.WithLabelValues(o.Stage).Add(float64(o.Bytes))
	}
	m.ended.WithLabelValues(o.Stage, code).Inc()
	m.took.WithLabelValues(o.Stage).Observe(o.Took.Seconds())
}

// Claimed is of claim.Observer, as are those that follow.
func (m *workMetrics) Claimed(took time.Duration, items int) {
	m.claims.Observe(took.Seconds())
	m.claimed.Add(float64(items))
}

func (m *workMetrics) Settled(took time.Duration, _ int) { m.settles.Observe(took.Seconds()) }

func (m *workMetrics) Ended(end claim.End) {
	m.attempts.WithLabelValues(end.Stage, end.Outcome).Inc()
	if end.Retried() {
		m.retried.WithLabelValues(end.Stage).Inc()
	}
	if end.Failed() {
		m.failed.WithLabelValues(end.Stage).Inc()
	}
}

func (m *workMetrics) Lost(stage string) { m.lost.WithLabelValues(stage).Inc() }

// heldLeases tells how many leases an engine holds, when it is asked.
type heldLeases struct{ engine *claim.Engine }

func heldDesc() *prometheus.Desc {
	return prometheus.NewDesc("farol_leases_held", "Leases that this process holds.", []string{"stage"}, nil)
}

func (h heldLeases) Describe(ch chan<- *prometheus.Desc) { ch <- heldDesc() }

func (h heldLeases) Collect(ch chan<- prometheus.Metric) {
	held := h.engine.Held()
	for _, stage := range settings.StepNames() {
		ch <- prometheus.MustNewConstMetric(heldDesc(), prometheus.GaugeValue, float64(held[stage]), stage)
	}
}

// serviceStates tells how this process sees the services that its work needs, when
// it is asked.
type serviceStates struct{ runner *pipeline.Runner }

func serviceDesc() *prometheus.Desc {
	return prometheus.NewDesc("farol_service_ok", "Whether this process claims work that needs the service.", []string{"service"}, nil)
}

func (s serviceStates) Describe(ch chan<- *prometheus.Desc) { ch <- serviceDesc() }

func (s serviceStates) Collect(ch chan<- prometheus.Metric) {
	views, _ := s.runner.Services()
	for _, v := range views {
		ch <- prometheus.MustNewConstMetric(serviceDesc(), prometheus.GaugeValue, map[bool]float64{true: 1}[v.OK], v.Service)
	}
}
