package main

import (
	"log/slog"

	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/monitor"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/fixity"
	registryfixity "github.com/farol-preservation/farol/registry/fixity"
)

// newFixity is what checks copies in a worker of this name.
func newFixity(deps pipeline.Deps, c settings.Fixity, worker string, metrics monitor.Fixity) *fixity.Checker {
	return &fixity.Checker{
		Registry: deps.Registry, Targets: deps.Targets, Log: deps.Log,
		Worker: worker, Slots: c.Slots, Batch: c.Batch, Attempts: c.Attempts, Days: c.Days, Observe: metrics.Observe,
	}
}

// leastShare is how many checks a share is taken of at least.
const leastShare = 100

// newRepairer is what repairs bad copies in a process of this name.
func newRepairer(s *connect.Services, c settings.Repair, worker string, log *slog.Logger) (*fixity.Repairer, error) {
	quarantine, err := s.Receiving(c.Quarantine)
	if err != nil {
		return nil, err
	}
	return &fixity.Repairer{
		Registry: s.Registry, Targets: s.Targets, Log: log,
		Worker: worker, Quarantine: quarantine,
		Limits: registryfixity.BrakeLimits{Failures: c.MaxFailures, Share: float64(c.MaxShare), Least: leastShare},
	}, nil
}
