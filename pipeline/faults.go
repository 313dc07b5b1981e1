package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// What follows keeps beside the note, which is for reading, what a stage knew of a
// failure: which file, what was expected and what was found.

// inFile is an error about one file.
type inFile struct {
	path string
	err  error
}

func about(path string, err error) error { return &inFile{path, err} }

func (e *inFile) Error() string { return e.err.Error() }
func (e *inFile) Unwrap() error { return e.err }

// mismatch is an error about two things that should be the same.
type mismatch struct{ text, expected, found string }

func (m *mismatch) Error() string { return m.text }

// badBag is what is wrong with a bag, as an error.
type badBag struct{ bag.Verdict }

// refusal ends the ingest of a bag that cannot be judged as a whole.
func refusal(code string, v bag.Verdict) error { return claim.Fatal(code, "%w", &badBag{v}) }

func (b *badBag) Error() string { return findings(b.Errors, b.More) }

// warnings puts what was odd of a valid bag into words, for the note, the ledger and
// the record; "" if nothing was.
func warnings(list []bag.Finding) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return "1 warning: " + findings(list, 0)
	}
	return fmt.Sprintf("%d warnings: %s", len(list), findings(list, 0))
}

// remarkOf is what the ledger has of the last time that the item's bag was found
// valid, in the words of warnings.
func remarkOf(attempts []registry.Attempt) string {
	for _, a := range slices.Backward(attempts) {
		if a.Stage == "Validate" && a.Outcome != nil && *a.Outcome == "done" {
			return a.Error
		}
	}
	return ""
}

// keepFaults keeps what a stage failed of for who asks why. The note has the same
// in words, so that nothing is lost but convenience where Redis does not take it.
func (r *Runner) keepFaults(ctx context.Context, w *work, result error) {
	faults := faultsOf(result)
	if len(faults.List) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastCount)
	defer cancel()
	if err := r.progress.Fail(ctx, w.claim(), faults); err != nil && !errors.Is(err, progress.ErrLost) {
		w.log.WarnContext(ctx, "the failure's details are in the note only", "err", err)
	}
}

// faultsOf takes apart what a stage returned.
func faultsOf(result error) (f progress.Faults) {
	if result == nil || errors.Is(result, claim.ErrLost) {
		return f
	}
	var b *badBag
	if errors.As(result, &b) {
		return progress.Faults{List: faultsIn(b.Errors), More: b.More, Warnings: faultsIn(b.Warnings)}
	}
	for _, err := range errorsInFiles(result) {
		fault := progress.Fault{Code: claim.Code(err), Path: err.path, Message: err.Error()}
		var m *mismatch
		if errors.As(err, &m) {
			fault.Expected, fault.Found = m.expected, m.found
		}
		f.List = append(f.List, fault)
	}
	return f
}

func faultsIn(list []bag.Finding) (faults []progress.Fault) {
	for _, f := range list {
		faults = append(faults, progress.Fault{Code: f.Code, Path: f.Path, Expected: f.Expected, Found: f.Found, Message: f.Message})
	}
	return faults
}

// errorsInFiles finds the errors about files in a tree of errors.
func errorsInFiles(err error) []*inFile {
	switch e := err.(type) { //nolint:errorlint // each node of the tree is looked at
	case *inFile:
		return []*inFile{e}
	case interface{ Unwrap() []error }:
		var all []*inFile
		for _, err := range e.Unwrap() {
			all = append(all, errorsInFiles(err)...)
		}
		return all
	case interface{ Unwrap() error }:
		return errorsInFiles(e.Unwrap())
	}
	return nil
}
