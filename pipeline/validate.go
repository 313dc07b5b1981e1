package pipeline

import (
	"context"

	"github.com/farol-preservation/farol/claim"
)

// validate judges the bag by BagIt and by the profile that it names, from its
// inventory alone. All errors are collected; each is the depositor's to mend, so
// none is tried again.
type validate struct{ Deps }

func (s *validate) Run(ctx context.Context, w *work) error {
	b, _, err := w.bag(ctx, s.Deps)
	if err != nil {
		return err
	}
	verdict := b.Validate(s.Profiles.Of(b))
	if !verdict.Valid {
		return claim.Fatal("invalid-bag", "%w", foundIn(verdict.Errors, verdict.More))
	}
	for _, f := range verdict.Warnings {
		w.log.InfoContext(ctx, "odd but valid", "code", f.Code, "path", f.Path, "warning", f.Message)
	}
	return nil
}
