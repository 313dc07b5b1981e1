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
	m := Mail{counter(r, "farol_mail_total", "Attempts of this process to send a mail, by result.", "result")}
	m.Observe(0, 0, 0) // an alarm sees the first time
	return m
}

// Observe counts the mails of a run. Those that were given up are among those that failed.
func (m Mail) Observe(sent, failed, gaveUp int) {
	m.results.WithLabelValues("sent").Add(float64(sent))
	m.results.WithLabelValues("failed").Add(float64(failed - gaveUp))
	m.results.WithLabelValues("given up").Add(float64(gaveUp))
}

// NewOutbox is the mail that waits as the database has it, the same from whichever process. Without
// the database there are no figures.
func NewOutbox(r *registry.Registry) prometheus.Collector {
	f, mail := &figures{}, &asked[outbox.Figures]{most: queryTime}
	waiting := f.gauge("farol_mail_waiting", "Mails that are not sent yet, those for a later digest included.")
	oldest := f.gauge("farol_mail_oldest_seconds", "Age of the oldest mail that was tried and is not sent; 0 if there is none.")
	f.collect = func(ctx context.Context, ch chan<- prometheus.Metric) {
		if found, _, err := mail.query(ctx, outbox.In(r).Figures); err == nil { // else farol_database_up says so
			ch <- waiting(float64(found.Waiting))
			ch <- oldest(found.Oldest.Seconds())
		}
	}
	return f
}
