package pipeline

import (
	"context"
	"errors"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
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
type badBag struct {
	list []bag.Finding
	more int
}

func foundIn(list []bag.Finding, more int) error { return &badBag{list, more} }

func (b *badBag) Error() string { return findings(b.list, b.more) }

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
		f.More = b.more
		for _, finding := range b.list {
			f.List = append(f.List, progress.Fault{
				Code: finding.Code, Path: finding.Path, Expected: finding.Expected, Found: finding.Found, Message: finding.Message,
			})
		}
		return f
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
