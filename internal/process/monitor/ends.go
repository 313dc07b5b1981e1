package monitor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
)

// Ends counts the attempts that a process ended, in the words of the ledger. It is the
// claim.Observer of a process that only ends the attempts of workers that are gone.
type Ends struct{ attempts, retried, failed *prometheus.CounterVec }

// NewEnds registers counters for all stages.
func NewEnds(r prometheus.Registerer) Ends {
	e := Ends{
		attempts: counter(r, "farol_attempts_total",
			"Attempts that this process ended, its own and those of dead workers, by outcome as in the ledger.", "stage", "outcome"),
		retried: counter(r, "farol_succeeded_after_retries_total", "Stages that succeeded after at least one failed attempt.", "stage"),
		failed:  counter(r, "farol_failed_completely_total", "Items that became Failed or Suspended at the stage.", "stage"),
	}
	for _, stage := range settings.StepNames() { // what has not happened is 0, and an alarm sees the first time
		e.retried.WithLabelValues(stage)
		e.failed.WithLabelValues(stage)
	}
	return e
}

// Ended is of claim.Observer.
func (e Ends) Ended(end claim.End) {
	e.attempts.WithLabelValues(end.Stage, end.Outcome).Inc()
	if end.Retried() {
		e.retried.WithLabelValues(end.Stage).Inc()
	}
	if end.Failed() {
		e.failed.WithLabelValues(end.Stage).Inc()
	}
}

// Claimed is of claim.Observer.
func (Ends) Claimed(time.Duration, int) {}

// Settled is of claim.Observer.
func (Ends) Settled(time.Duration, int) {}

// Lost is of claim.Observer.
func (Ends) Lost(string) {}
