package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/build"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// newFixity is what checks copies in a worker of this name.
func newFixity(deps pipeline.Deps, c settings.Fixity, worker string, metrics fixityMetrics) *pipeline.Fixity {
	return &pipeline.Fixity{
		Deps: deps, Worker: worker, Slots: c.Slots, Batch: c.Batch, Attempts: c.Attempts, Days: c.Days, Observe: metrics.observe,
	}
}

// leastShare is how many checks a share is taken of at least.
const leastShare = 100

// newRepairer is what repairs bad copies in a process of this name.
func newRepairer(s *connect.Services, c settings.Repair, worker string, log *slog.Logger) (*pipeline.Repairer, error) {
	quarantine, err := s.Receiving(c.Quarantine)
	if err != nil {
		return nil, err
	}
	return &pipeline.Repairer{
		Deps:   pipeline.Deps{Registry: s.Registry, Targets: s.Targets, Version: build.This().Version, Log: log},
		Worker: worker, Quarantine: quarantine,
		Limits: fixity.BrakeLimits{Failures: c.MaxFailures, Share: float64(c.MaxShare), Least: leastShare},
	}, nil
}

// fixityMetrics are the checks that this process has made.
type fixityMetrics struct {
	checks, bytes *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func newFixityMetrics(r *prometheus.Registry) fixityMetrics {
	m := fixityMetrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "farol_fixity_checks_total", Help: "Checks of copies that ended in this process, by result.",
		}, []string{"target", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "farol_fixity_bytes_total", Help: "Bytes that were read for them.",
		}, []string{"target"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "farol_fixity_seconds", Help: "Time that they took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}, []string{"target"}),
	}
	for _, t := range storage.Targets() { // what has not happened is 0, and an alarm sees the first time
		for _, result := range []string{"matched", "altered", "missing", "retried"} {
			m.checks.WithLabelValues(t.Name, result)
		}
	}
	r.MustRegister(m.checks, m.bytes, m.seconds)
	return m
}

func (m fixityMetrics) observe(o pipeline.FixityOutcome) {
	m.checks.WithLabelValues(o.Target, o.Result).Inc()
	m.bytes.WithLabelValues(o.Target).Add(float64(o.Bytes))
	m.seconds.WithLabelValues(o.Target).Observe(o.Took.Seconds())
}
