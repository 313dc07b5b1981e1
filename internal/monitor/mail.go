package monitor

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/outbox"
)

// Mail counts the mail that this process sent.
type Mail struct{ results *prometheus.CounterVec }

func newMail(r *prometheus.Registry) Mail {
	m := Mail{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "farol_mail_total", Help: "Attempts of this process to send a mail, by result.",
	}, []string{"result"})}
	m.Observe(0, 0, 0) // an alarm sees the first time
	r.MustRegister(m.results)
	return m
}

// Observe counts the mails of a run. Those that were given up are among those that failed.
func (m Mail) Observe(sent, failed, gaveUp int) {
	m.results.WithLabelValues("sent").Add(float64(sent))
	m.results.WithLabelValues("failed").Add(float64(failed - gaveUp))
	m.results.WithLabelValues("given up").Add(float64(gaveUp))
}

// Outbox is the mail that waits as the database has it, the same from whichever process.
type Outbox struct{ Registry *registry.Registry }

func (Outbox) descs() (waiting, oldest *prometheus.Desc) {
	return prometheus.NewDesc("farol_mail_waiting", "Mails that are not sent yet, those for a later digest included.", nil, nil),
		prometheus.NewDesc("farol_mail_oldest_seconds", "Age of the oldest mail that was tried and is not sent; 0 if there is none.", nil, nil)
}

// Describe is of prometheus.Collector.
func (f Outbox) Describe(ch chan<- *prometheus.Desc) {
	waiting, oldest := f.descs()
	ch <- waiting
	ch <- oldest
}

// Collect is of prometheus.Collector. Without the database there are no figures.
func (f Outbox) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime) // a scrape hands none over
	defer cancel()
	figures, err := outbox.In(f.Registry).Figures(ctx)
	if err != nil {
		return // farol_database_up says so
	}
	waiting, oldest := f.descs()
	ch <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(figures.Waiting))
	ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, figures.Oldest.Seconds())
}
