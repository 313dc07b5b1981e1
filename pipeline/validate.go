package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/claim"
)

// validate judges the bag by BagIt and by the profile that it names, from its
// inventory alone. All errors are collected; each is the depositor's to mend, so
// none is tried again. What it judged by is kept for the record.
type validate struct{ Deps }

func (s *validate) Run(ctx context.Context, w *work) error {
	b, inventoryID, err := w.bag(ctx, s.Deps)
	if err != nil {
		return err
	}
	profile := s.Profiles.Of(b)
	verdict := b.Validate(profile)
	if !verdict.Valid {
		return claim.Fatal("invalid-bag", "%w", foundIn(verdict.Errors, verdict.More))
	}
	for _, f := range verdict.Warnings {
		w.log.InfoContext(ctx, "odd but valid", "code", f.Code, "path", f.Path, "warning", f.Message)
	}
	version, _ := b.Tag("bagit.txt", "BagIt-Version")
	return writeList[struct{}](ctx, w, s.Deps, verdictName, inventoryID, judged{
		By:       fmt.Sprintf("%s, BagIt %s", cmp.Or(profile.Identifier(), profile.String()), cleanText(version)),
		Software: s.software(), Warnings: len(verdict.Warnings), At: time.Now().UTC(),
	}, 0, func(func(struct{}) bool) {})
}
