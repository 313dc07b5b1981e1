package steps

import (
	"context"
	"sync"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	registryfixity "github.com/farol-preservation/farol/registry/fixity"
)

// check has all copies that are due checked.
func (a *archive) check() {
	a.T.Helper()
	f := &fixity.Checker{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "w", Slots: 2, Batch: 5, Attempts: 3, Days: 90,
		Lease: 20 * time.Second, Poll: 20 * time.Millisecond, Again: time.Millisecond,
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := f.Run(ctx); err != nil {
			a.T.Error(err)
		}
	})
	defer all.Wait()
	defer stop()
	const left = `SELECT count(*) FROM storage_records s JOIN fixity_policies p USING (target) LEFT JOIN fixity_checks c ON c.storage_record_id = s.id
		WHERE s.active AND p.mode = 'read' AND p.paused_until <= now() AND s.last_fixity_at < now() - interval '90 days' AND coalesce(c.run_at, now()) <= now() OR c.worker <> ''`
	testenv.Eventually(a.T, "all due copies to be checked", func() bool { return pipelinetest.Value[int](a, left) == 0 })
}

// repair has all bad copies repaired.
func (a *archive) repair() {
	a.T.Helper()
	r := &fixity.Repairer{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "r", Quarantine: a.Bucket(a.S3.Prefix + "quarantine"), Again: time.Millisecond,
		Limits: registryfixity.RepairLimits{Failures: 10, Share: 5, Least: 100},
	}
	list := must.Get(registryfixity.In(a.Deps.Registry).BadCopies(context.Background(), "", 0, 0, 1000))(a.T)
	for _, b := range list {
		r.Repair(context.Background(), b)
	}
}

const day = 24 * time.Hour

func (a *archive) janitor() *upkeep.Janitor {
	return &upkeep.Janitor{
		Registry: a.Deps.Registry, Progress: a.Deps.Progress, Receiving: a.Deps.Receiving, Staging: a.Deps.Staging, Targets: a.Deps.Targets,
		Keep: ingest.Keeper(a.Deps), Log: a.Deps.Log, Retention: 14 * day, OrphanAge: day, Holder: "test",
	}
}

// round makes a round in which nothing goes wrong.
func (a *archive) round() {
	a.T.Helper()
	report, err := a.janitor().Round(a.T.Context())
	if err != nil || len(report.Unchecked) > 0 {
		a.T.Fatalf("Round = %+v, %v", report, err)
	}
}

// found returns the names of a finding; nil if it is not there.
func found(r *upkeep.Report, store, what, why string) []string {
	for _, f := range r.Findings {
		if f.Store == store && f.What == what && f.Why == why {
			return f.Names
		}
	}
	return nil
}
