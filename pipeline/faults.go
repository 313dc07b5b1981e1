package pipeline

import (
	"context"
	"errors"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/progress"
)

// keepFaults saves the details of a failure: which file, what was expected and what was
// found. The note has the same in words, so little is lost if Redis does not accept it.
func (r *Runner) keepFaults(ctx context.Context, w *Work, result error) {
	faults := faultsOf(result)
	if len(faults.List) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastCount)
	defer cancel()
	if err := r.progress.Fail(ctx, w.Claim(), faults); err != nil && !errors.Is(err, progress.ErrLost) {
		w.Log.WarnContext(ctx, "cannot save the details of the failure; only the note has them", "err", err)
	}
}

// faultsOf takes apart what a stage returned: an error that knows its faults has a
// method for it.
func faultsOf(result error) (f progress.Faults) {
	if result == nil || errors.Is(result, claim.ErrLost) {
		return f
	}
	var partial interface{ Faults() progress.Faults }
	if errors.As(result, &partial) {
		return partial.Faults()
	}
	files, _ := cause.All[*cause.FileError](result)
	for _, err := range files {
		fault := progress.Fault{Code: claim.Code(err), Path: err.Path, Message: err.Error()}
		if m, ok := errors.AsType[*cause.Mismatch](err); ok {
			fault.Expected, fault.Found = m.Expected, m.Found
		}
		f.List = append(f.List, fault)
	}
	return f
}
