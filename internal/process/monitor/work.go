package monitor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
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
	claims  prometheus.Observer
	claimed prometheus.Counter
	settles prometheus.Observer

	lost   *prometheus.CounterVec
	Fixity Fixity
}

// NewWork has counters for all stages.
func NewWork() *Work {
	r := prometheus.NewRegistry()
	m := &Work{
		Ends:     NewEnds(r),
		Registry: r,
		ended:    counter(r, "farol_stage_outcomes_total", "Stage runs that ended, by outcome code; done means success.", "stage", "code"),
		took:     histogram(r, "farol_stage_seconds", "Duration of stage runs.", 0.01, 4, 10, "stage"),
		bytes:    counter(r, "farol_stage_bytes_total", "Bytes of the items whose stage succeeded.", "stage"),
		claims:   histogram(r, "farol_claim_seconds", "Duration of claim queries.", 0.0005, 2, 15).WithLabelValues(),
		claimed:  counter(r, "farol_claimed_items_total", "Items that this process claimed, without those that it carried on to their next stage.").WithLabelValues(),
		settles:  histogram(r, "farol_settle_seconds", "Time from the end of a stage until its outcome is recorded.", 0.0005, 2, 15).WithLabelValues(),
		lost:     counter(r, "farol_leases_lost_total", "Leases that this process lost.", "stage"),
		Fixity:   newFixity(r),
	}
	for _, stage := range settings.StepNames() { // what has not happened is 0, and an alarm sees the first time
		m.lost.WithLabelValues(stage)
	}
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
	observe(m.took.WithLabelValues(o.Stage), o.Took.Seconds(), o.Trace)
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

// NewLeases are those that an engine holds.
func NewLeases(e *claim.Engine) prometheus.Collector {
	f := &figures{}
	held := f.gauge("farol_leases_held", "Leases that this process holds.", "stage")
	f.collect = func(_ context.Context, ch chan<- prometheus.Metric) {
		leases := e.Held()
		for _, stage := range settings.StepNames() {
			ch <- held(float64(leases[stage]), stage)
		}
	}
	return f
}

// NewServices are those that the work of this process needs, as it sees them.
func NewServices(r *pipeline.Runner) prometheus.Collector {
	f := &figures{}
	ok := f.gauge("farol_service_ok", "Whether this process claims work that needs the service.", "service")
	f.collect = func(_ context.Context, ch chan<- prometheus.Metric) {
		views, _ := r.Services()
		for _, v := range views {
			ch <- ok(yes(v.OK), v.Service)
		}
	}
	return f
}

// NewStores counts what the stores' missing abilities cost this process. detours returns the bytes
// that were read a second time to be hashed, and the requests more; slowdowns returns by bucket the
// answers that asked for fewer requests.
func NewStores(detours func() (bytes, requests int64), slowdowns func() map[string]int64) prometheus.Collector {
	f := &figures{}
	bytes := f.counter("farol_storage_read_back_bytes_total", "Bytes that were read back to be hashed, since their store proves nothing of them.")
	requests := f.counter("farol_storage_detours_total", "Requests that a store with all abilities would not have needed.")
	slow := f.counter("farol_storage_slowdowns_total", "Answers of a store that asked for fewer requests.", "service")
	f.collect = func(_ context.Context, ch chan<- prometheus.Metric) {
		for service, n := range slowdowns() {
			ch <- slow(float64(n), service)
		}
		n, m := detours()
		ch <- bytes(float64(n))
		ch <- requests(float64(m))
	}
	return f
}
