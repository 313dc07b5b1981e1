package ingest

import (
	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
)

// badBag is what is wrong with a bag, as an error.
type badBag struct{ bag.Verdict }

// refusal ends the ingest of a bag that cannot be judged as a whole.
func refusal(code string, v bag.Verdict) error { return claim.Fatal(code, "%w", &badBag{v}) }

func (b *badBag) Error() string { return interim.Findings(b.Errors, b.More) }

// Faults are the findings in parts: see [progress.Store.Fail].
func (b *badBag) Faults() progress.Faults {
	return progress.Faults{List: faultsIn(b.Errors), More: b.More, Warnings: faultsIn(b.Warnings)}
}

func faultsIn(list []bag.Finding) (faults []progress.Fault) {
	for _, f := range list {
		faults = append(faults, progress.Fault{Code: f.Code, Path: f.Path, Expected: f.Expected, Found: f.Found, Message: f.Message})
	}
	return faults
}
