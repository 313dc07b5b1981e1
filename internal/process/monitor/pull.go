package monitor

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// mostMeasured is how many queues, and receivers of them, have figures: those that
// pulled last.
const mostMeasured = 500

// NewPull are the queues of the pull API as the database has them, the same from
// whichever process. Without the database there are no figures.
func NewPull(r *registry.Registry, log *slog.Logger) prometheus.Collector {
	f, queues := &figures{}, &asked[[]record.Queue]{fresh: freshFor, most: queryTime}
	depth := f.gauge("farol_pull_queue_depth", "Messages that the slowest receiver has not finished; all messages if there is no receiver.", "queue")
	oldest := f.gauge("farol_pull_queue_oldest_seconds", "Age of the oldest message that a receiver has not finished; 0 if there is none.", "queue")
	failed := f.gauge("farol_pull_queue_failed", "Failed deliveries.", "queue")
	lag := f.gauge("farol_pull_receiver_lag", "Messages not yet delivered to the receiver.", "queue", "receiver")
	processing := f.gauge("farol_pull_receiver_processing", "Messages delivered to the receiver and not yet acknowledged.", "queue", "receiver")
	behind := f.gauge("farol_pull_receiver_oldest_seconds", "Age of the oldest message that a receiver has not finished; 0 if there is none.", "queue", "receiver")
	ask := func(ctx context.Context) ([]record.Queue, error) {
		list, err := r.Queues(ctx, "", mostMeasured)
		if err != nil {
			log.WarnContext(ctx, "cannot read the figures of the pull API's queues; metrics omit them", "err", err)
		}
		return list, err
	}
	f.collect = func(ctx context.Context, ch chan<- prometheus.Metric) {
		list, _, _ := queues.query(ctx, ask)
		for _, q := range list {
			ch <- depth(float64(q.Depth), q.Queue)
			ch <- oldest(q.Oldest, q.Queue)
			ch <- failed(float64(q.Failed), q.Queue)
			for _, r := range q.Receivers {
				ch <- lag(float64(r.Waiting), q.Queue, r.Receiver)
				ch <- processing(float64(r.Processing), q.Queue, r.Receiver)
				ch <- behind(r.Oldest, q.Queue, r.Receiver)
			}
		}
	}
	return f
}
