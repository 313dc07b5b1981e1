package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// mostMeasured is how many queues, and receivers of them, have figures: those that
// pulled last.
const mostMeasured = 500

// Pull are the queues of the pull API as the database has them, the same from
// whichever process.
type Pull struct {
	registry *registry.Registry
	log      *slog.Logger

	depth, oldest, failed, lag, processing, behind *prometheus.Desc

	mu   sync.Mutex // one query at a time
	at   time.Time  // of the last query
	last []record.Queue
}

// NewPull asks the database at each scrape.
func NewPull(r *registry.Registry, log *slog.Logger) *Pull {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Pull{
		registry: r, log: log,
		depth:      desc("farol_pull_queue_depth", "Messages that the slowest receiver has not finished; all messages if there is no receiver.", "queue"),
		oldest:     desc("farol_pull_queue_oldest_seconds", "Age of the oldest message that a receiver has not finished; 0 if there is none.", "queue"),
		failed:     desc("farol_pull_queue_failed", "Failed deliveries.", "queue"),
		lag:        desc("farol_pull_receiver_lag", "Messages not yet delivered to the receiver.", "queue", "receiver"),
		processing: desc("farol_pull_receiver_processing", "Messages delivered to the receiver and not yet acknowledged.", "queue", "receiver"),
		behind:     desc("farol_pull_receiver_oldest_seconds", "Age of the oldest message that a receiver has not finished; 0 if there is none.", "queue", "receiver"),
	}
}

// Describe is of prometheus.Collector.
func (p *Pull) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.depth, p.oldest, p.failed, p.lag, p.processing, p.behind} {
		ch <- d
	}
}

// Collect is of prometheus.Collector. Without the database there are no figures.
func (p *Pull) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, q := range p.query() {
		gauge(p.depth, float64(q.Depth), q.Queue)
		gauge(p.oldest, q.Oldest, q.Queue)
		gauge(p.failed, float64(q.Failed), q.Queue)
		for _, r := range q.Receivers {
			gauge(p.lag, float64(r.Waiting), q.Queue, r.Receiver)
			gauge(p.processing, float64(r.Processing), q.Queue, r.Receiver)
			gauge(p.behind, r.Oldest, q.Queue, r.Receiver)
		}
	}
}

func (p *Pull) query() []record.Queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < freshFor {
		return p.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTime) // a scrape hands none over
	defer cancel()
	list, err := p.registry.Queues(ctx, "", mostMeasured)
	if err != nil {
		p.log.WarnContext(ctx, "cannot read the figures of the pull API's queues; metrics omit them", "err", err)
	}
	p.last, p.at = list, time.Now()
	return list
}
