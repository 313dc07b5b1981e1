package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// counter makes a counter and registers it.
func counter(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// histogram makes a histogram of seconds and registers it. Each bucket but the first is by a factor
// larger than the one before.
func histogram(r prometheus.Registerer, name, help string, first, factor float64, buckets int, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(first, factor, buckets),
	}, labels)
}

// observe adds to a histogram, with a trace as an example of the value; "" is no trace.
func observe(o prometheus.Observer, seconds float64, trace string) {
	if with, ok := o.(prometheus.ExemplarObserver); ok && trace != "" {
		with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace})
		return
	}
	o.Observe(seconds)
}

// figures is a collector of metrics that are asked for at each scrape.
type figures struct {
	descs   []*prometheus.Desc
	collect func(context.Context, chan<- prometheus.Metric)
}

// figure makes a metric of a value, and of the values of its labels.
type figure func(v float64, labels ...string) prometheus.Metric

func (f *figures) add(kind prometheus.ValueType, name, help string, labels []string) figure {
	desc := prometheus.NewDesc(name, help, labels, nil)
	f.descs = append(f.descs, desc)
	return func(v float64, labels ...string) prometheus.Metric {
		return prometheus.MustNewConstMetric(desc, kind, v, labels...)
	}
}

func (f *figures) gauge(name, help string, labels ...string) figure {
	return f.add(prometheus.GaugeValue, name, help, labels)
}

func (f *figures) counter(name, help string, labels ...string) figure {
	return f.add(prometheus.CounterValue, name, help, labels)
}

// Describe is of prometheus.Collector.
func (f *figures) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range f.descs {
		ch <- desc
	}
}

// Collect is of prometheus.Collector.
func (f *figures) Collect(ch chan<- prometheus.Metric) { f.collect(context.Background(), ch) } // a scrape hands no context over

// yes is 1 for true, and 0 else.
func yes(b bool) float64 { return map[bool]float64{true: 1}[b] }

// asked is what a scrape asks of the database, or its last answer if that is fresh.
type asked[T any] struct {
	fresh time.Duration
	most  time.Duration // for a query

	mu   sync.Mutex // one query at a time
	at   time.Time  // of the last query
	last T
	took time.Duration
	err  error
}

// query asks the database, or returns its last answer if that is fresh. Concurrent calls
// wait for the same answer. An error is kept as long: a database in trouble is not asked
// more often.
func (a *asked[T]) query(ctx context.Context, ask func(context.Context) (T, error)) (T, time.Duration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && time.Since(a.at) < a.fresh {
		return a.last, a.took, a.err
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.most)
	defer cancel()
	a.last, a.err = ask(ctx)
	a.at, a.took = time.Now(), time.Since(begun)
	return a.last, a.took, a.err
}
