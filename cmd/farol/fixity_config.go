package main

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/pipeline"
	fixitypkg "github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// fixityConfig is how copies are checked.
type fixityConfig struct {
	Days     int `env:"FAROL_FIXITY_DAYS" old:"MAX_DAYS_SINCE_LAST_FIXITY" envDefault:"90" min:"1" doc:"days between two fixity checks of a copy, in storage targets whose policy leaves it open (farol fixity policy)"`
	Slots    int `env:"FAROL_FIXITY_SLOTS" old:"APT_FIXITY_WORKERS" envDefault:"2" min:"0" doc:"copies that a worker reads at once to check them; 0: none"`
	Batch    int `env:"FAROL_FIXITY_BATCH" old:"APT_FIXITY_BUFFER_SIZE" envDefault:"4" min:"0" doc:"copies that it claims beyond that while they are small, so that it need not wait for the next claim; at most"`
	Attempts int `env:"FAROL_FIXITY_ATTEMPTS" old:"APT_FIXITY_MAX_ATTEMPTS" envDefault:"3" min:"1" doc:"tries to read a copy, with growing pauses, after which it is tried once a day"`
}

// repairConfig is how bad copies are repaired, and when that stops by itself.
type repairConfig struct {
	Quarantine  string        `env:"FAROL_QUARANTINE_BUCKET" envDefault:"quarantine" is:"a bucket name" doc:"bucket of the S3 service for the bytes of bad copies that are replaced; made if it is missing"`
	MaxFailures int           `env:"FAROL_REPAIR_MAX_FAILURES" envDefault:"10" min:"0" doc:"copies of a provider that may fail within an hour; if there are more, nothing there is repaired until an admin says so"`
	MaxShare    int           `env:"FAROL_REPAIR_MAX_SHARE" envDefault:"5" min:"1" doc:"the same as a share, in per cent of the copies that were checked within that hour, once they are 100"`
	Auto        string        `env:"FAROL_AUTO_REPAIR" envDefault:"off" is:"on or off" oneof:"on off" doc:"whether workers repair bad copies by themselves"`
	After       time.Duration `env:"FAROL_REPAIR_AFTER" envDefault:"1h" doc:"how long a copy has to be known to be bad before workers repair it by themselves: until then it shows whether it is an incident"`
}

// leastShare is how many checks a share is taken of at least.
const leastShare = 100

// readRepair refuses a bucket in which something else is.
func (s *settings) readRepair(c storageConfig) (r repairConfig) {
	s.readBlock("", &r)
	others := map[string]string{c.Staging: "the staging bucket"}
	for _, t := range c.Targets {
		others[t.Bucket] = "the bucket of " + t.Name
	}
	if other, taken := others[r.Quarantine]; taken {
		s.wrong("FAROL_QUARANTINE_BUCKET", `is "`+r.Quarantine+`", which is `+other+`; what is bad needs a bucket of its own`)
	}
	return r
}

// auditConfig is what farol fixity and farol repair read.
type auditConfig struct {
	Database databaseConfig
	Storage  storageConfig
	Log      logConfig
	Fixity   fixityConfig
	Repair   repairConfig
}

func readAuditConfig(s *settings) (c auditConfig) {
	s.readDatabase(&c.Database)
	c.Storage = s.readStorage()
	s.readBlock("", &c.Log)
	s.readBlock("", &c.Fixity)
	c.Repair = s.readRepair(c.Storage)
	return c
}

// newFixity is what checks copies in a worker of this name.
func newFixity(deps pipeline.Deps, c fixityConfig, worker string, metrics fixityMetrics) *fixitypkg.Checker {
	return &fixitypkg.Checker{
		Registry: deps.Registry, Targets: deps.Targets, Log: deps.Log,
		Worker: worker, Slots: c.Slots, Batch: c.Batch, Attempts: c.Attempts, Days: c.Days, Observe: metrics.observe,
	}
}

// newRepairer is what repairs bad copies in a process of this name.
func newRepairer(s *services, c repairConfig, worker string, log *slog.Logger) (*fixitypkg.Repairer, error) {
	quarantine, err := s.receiving(c.Quarantine)
	if err != nil {
		return nil, err
	}
	return &fixitypkg.Repairer{
		Registry: s.registry, Targets: s.targets, Log: log,
		Worker: worker, Quarantine: quarantine,
		Limits: fixity.BrakeLimits{Failures: c.MaxFailures, Share: float64(c.MaxShare), Least: leastShare},
	}, nil
}

// targetOf finds a target by its name.
func (c storageConfig) targetOf(name string) (storage.Target, bool) {
	for _, t := range c.Targets {
		if t.Name == name {
			return t, true
		}
	}
	return storage.Target{}, false
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

func (m fixityMetrics) observe(o fixitypkg.Outcome) {
	m.checks.WithLabelValues(o.Target, o.Result).Inc()
	m.bytes.WithLabelValues(o.Target).Add(float64(o.Bytes))
	m.seconds.WithLabelValues(o.Target).Observe(o.Took.Seconds())
}
