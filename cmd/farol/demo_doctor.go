package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farol-preservation/farol/pipeline/upkeep"
)

// examine asks the doctor whether anything was left behind. What the refused bags
// have in staging and Redis stays for their retention, and is none of that; nor is that
// a person has to look at them.
func (d *demo) examine(ctx context.Context) error {
	const retention, orphanAge = 14 * 24 * time.Hour, 24 * time.Hour // the defaults
	j := newJanitor(d.services, janitorConfig{Retention: retention, OrphanAge: orphanAge}, "demo", d.log)
	report := (&upkeep.Doctor{Janitor: j}).Examine(ctx)
	report.Findings = slices.DeleteFunc(report.Findings, func(f upkeep.Finding) bool { return f.Why == upkeep.OpenReview })
	if report.NeedsPerson() || len(report.Unchecked) > 0 {
		return errors.Join(errors.New("the doctor found something that should not be"), writeFindings(d.out, report))
	}
	say(d.out, "farol doctor: no orphans in any store, and every copy that is on record is there.")
	return nil
}
